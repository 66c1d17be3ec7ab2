//! One question, answered slice by slice.
//!
//! | stage  | a slice of it                                                              |
//! |--------|----------------------------------------------------------------------------|
//! | Match  | all objects: which tensors are in the blocks that are asked about            |
//! | Climb  | a level: what refers to what was found last                                  |
//! | Tops   | all objects: which tensors have an autograd graph                          |
//! | Graph  | some nodes of those: which keep what has no holder yet                       |
//! | Rise   | as Climb, from the tensors at the top of those graphs                        |
//! | Verify | what was named is still there and still leads to what was asked about        |

use super::answer;
use super::climb::{Climb, Named, STRIDE};
use super::objects::{Class, Types, references};
use super::{Budget, World, graph};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use strandline_core::format::holders::Ask;

/// Samples of all findings together: one for each bit of a mask.
const SAMPLES: usize = 64;
/// Parts that a level is cut into at most.
const PARTS: u64 = 32;
/// Objects that a verification looks at, at most, for each name.
const VISITS: usize = 20_000;

enum Stage {
    Match,
    Climb { part: u64 },
    Tops,
    Graph,
    Rise { part: u64 },
    Verify,
}

/// What a slice came to.
pub(super) enum Progress {
    /// There is more to do.
    More,
    /// This is the answer to each finding.
    Answered(Vec<Value>),
}

/// A question under way. Between slices it keeps addresses, names and counts.
pub(super) struct Work {
    ask: Ask,
    stage: Stage,
    /// Parts that a level is cut into.
    parts: u64,
    /// Sampled blocks, with their bits.
    samples: HashMap<u64, u64>,
    /// Samples of each finding.
    groups: Vec<u64>,
    /// Tensors of Python's that lie in sampled blocks.
    tensors: HashMap<u64, u64>,
    climb: Option<Climb>,
    /// What has no holder, with its samples, and the walk over the graphs that may keep it.
    wanted: HashMap<u64, u64>,
    walk: Option<graph::Walk>,
    /// The climb from the tops of graphs, and those.
    rise: Option<Climb>,
    tops: HashSet<u64>,
    /// Objects that are tracked.
    objects: u64,
}

impl Work {
    /// Takes a question.
    pub(super) fn new(ask: Ask) -> Work {
        let (mut samples, mut groups) = (HashMap::new(), Vec::new());
        let each = (SAMPLES / ask.findings.len().max(1)).min(32);
        for f in &ask.findings {
            // Spread over the blocks, which come in the order of their age.
            let mut group = 0;
            let count = f.blocks.len().min(each);
            for i in 0..count {
                let Some(&block) = f.blocks.get(i * f.blocks.len() / count) else { continue };
                if samples.len() < SAMPLES && !samples.contains_key(&block) {
                    let bit = 1u64 << samples.len();
                    samples.insert(block, bit);
                    group |= bit;
                }
            }
            groups.push(group);
        }
        Work {
            ask,
            stage: Stage::Match,
            parts: 1,
            samples,
            groups,
            tensors: HashMap::new(),
            climb: None,
            wanted: HashMap::new(),
            walk: None,
            rise: None,
            tops: HashSet::new(),
            objects: 0,
        }
    }

    /// The question's number.
    pub(super) fn number(&self) -> u64 {
        self.ask.number
    }

    /// What each finding was asked with.
    pub(super) fn about(&self) -> impl Iterator<Item = &Value> {
        self.ask.findings.iter().map(|f| &f.about)
    }

    /// Objects that the collector tracks.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Does a slice.
    ///
    /// # Errors
    /// Why it cannot be answered, as one clause.
    ///
    /// # Safety
    /// With the GIL held and the collector not at work.
    pub(super) unsafe fn slice(&mut self, w: &World, budget: &Budget) -> Result<Progress, String> {
        // SAFETY: the caller's promise, for all of them.
        unsafe {
            match self.stage {
                Stage::Match => self.find(w, budget)?,
                Stage::Climb { part } => self.climb(w, budget, part)?,
                Stage::Tops => self.tops(w, budget),
                Stage::Graph => self.graph(w, budget),
                Stage::Rise { part } => self.rise(w, budget, part)?,
                Stage::Verify => {
                    self.verify(w, budget);
                    return Ok(Progress::Answered(self.answers()));
                }
            }
        }
        Ok(Progress::More)
    }

    /// All tensors of Python's, and how many objects there are; `None`: the budget did not suffice.
    unsafe fn all_tensors(&mut self, w: &World, budget: &Budget) -> Option<Vec<u64>> {
        let mut types = Types::new(&w.python);
        let (mut tensors, mut objects, mut whole) = (Vec::new(), 0, true);
        w.collector.walk(|object| {
            objects += 1;
            // SAFETY: the object is tracked, hence alive.
            if unsafe { types.of(object) }.class == Class::Tensor {
                tensors.push(object);
            }
            if objects % u64::from(STRIDE) == 0 {
                whole = !budget.is_over();
            }
            whole
        });
        self.objects = self.objects.max(objects);
        whole.then_some(tensors)
    }

    unsafe fn find(&mut self, w: &World, budget: &Budget) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe {
            let tensors = self.all_tensors(w, budget);
            let Some(tensors) = tensors else {
                return Err(format!(
                    "Python tracks more than {} objects: the pause would be too long",
                    self.objects
                ));
            };
            for (tensor, known) in tensors.iter().zip(w.torch.of_python(&tensors)) {
                if let Some(bit) = self.samples.get(&known.data) {
                    self.tensors.insert(*tensor, *bit);
                }
            }
        }
        let mut climb = Climb::new(self.tensors.iter().map(|(t, b)| (*t, *b)), self.groups.clone());
        self.stage = if climb.rise() { Stage::Climb { part: 0 } } else { Stage::Tops };
        self.climb = Some(climb);
        Ok(())
    }

    unsafe fn climb(&mut self, w: &World, budget: &Budget, part: u64) -> Result<(), String> {
        let Some(climb) = &mut self.climb else { return Ok(()) };
        // SAFETY: the caller's promise.
        let whole = unsafe { climb.pass(w, (part, self.parts), budget) };
        self.stage = match Work::next_part(&mut self.parts, part, whole)? {
            Some(part) => Stage::Climb { part },
            None if climb.rise() => Stage::Climb { part: 0 },
            None if climb.done == self.groups.iter().fold(0, |a, g| a | g) => Stage::Verify,
            None => Stage::Tops,
        };
        Ok(())
    }

    unsafe fn tops(&mut self, w: &World, budget: &Budget) {
        let done = self.climb.as_ref().map_or(0, |c| c.done);
        // Blocks, and autograd functions that were climbed to, whose samples have no holder.
        let mut wanted: HashMap<u64, u64> = self.samples.iter().map(|(b, m)| (*b, *m)).collect();
        let mut tops = Vec::new();
        // SAFETY: the caller's promise; what was climbed through is only compared.
        unsafe {
            let Some(tensors) = self.all_tensors(w, budget) else {
                self.stage = Stage::Verify;
                return;
            };
            wanted.extend(self.climb.iter().flat_map(Climb::through));
            wanted.retain(|_, mask| *mask & !done != 0);
            let known = w.torch.of_python(&tensors);
            for (tensor, autograd) in tensors.iter().zip(w.torch.autograd(&known)) {
                if autograd.node != 0 {
                    tops.push((*tensor, autograd.node));
                }
            }
        }
        self.walk = Some(graph::Walk::new(tops, wanted.keys().copied().collect()));
        self.wanted = wanted;
        self.stage = Stage::Graph;
    }

    fn graph(&mut self, w: &World, budget: &Budget) {
        let Some(walk) = &mut self.walk else { return };
        if !walk.go_on(&w.torch, budget) {
            return;
        }
        let mut from: HashMap<u64, u64> = HashMap::new();
        for kept in &walk.found {
            let mask = self.wanted.get(&kept.what).copied().unwrap_or(0);
            for tensor in [kept.by, walk.top(kept.by)] {
                *from.entry(tensor).or_default() |= mask;
            }
        }
        self.tops = from.keys().copied().collect();
        let mut rise = Climb::new(from.into_iter(), self.groups.clone());
        self.stage = if rise.rise() { Stage::Rise { part: 0 } } else { Stage::Verify };
        self.rise = Some(rise);
    }

    unsafe fn rise(&mut self, w: &World, budget: &Budget, part: u64) -> Result<(), String> {
        let Some(rise) = &mut self.rise else { return Ok(()) };
        // SAFETY: the caller's promise.
        let whole = unsafe { rise.pass(w, (part, self.parts), budget) };
        self.stage = match Work::next_part(&mut self.parts, part, whole)? {
            Some(part) => Stage::Rise { part },
            None if rise.rise() => Stage::Rise { part: 0 },
            None => Stage::Verify,
        };
        Ok(())
    }

    /// The part after this one; where the budget did not suffice, the level again in smaller ones.
    fn next_part(parts: &mut u64, part: u64, whole: bool) -> Result<Option<u64>, String> {
        if whole {
            return Ok(Some(part + 1).filter(|p| p < parts));
        }
        *parts *= 2;
        match *parts <= PARTS {
            true => Ok(Some(0)),
            false => Err("Python's objects cannot be searched in pauses that are short enough".into()),
        }
    }

    /// Forgets names whose object is gone, or does not lead to what was asked about any more.
    unsafe fn verify(&mut self, w: &World, budget: &Budget) {
        let climbs = [&self.climb, &self.rise];
        let named: HashSet<u64> =
            climbs.into_iter().flatten().flat_map(|c| c.named.iter().map(|n| n.object)).collect();
        let mut there: HashSet<u64> = HashSet::new();
        w.collector.walk(|object| {
            if named.contains(&object) {
                there.insert(object);
            }
            true
        });
        let mut types = Types::new(&w.python);
        let (tops, samples) = (&self.tops, &self.samples);
        let mut leads = |n: &Named, graph: bool| {
            if !there.contains(&n.object) || budget.is_over() {
                return false;
            }
            let mut seen: HashSet<u64> = HashSet::from([n.object]);
            let mut level = vec![n.object];
            for _ in 0..=n.level {
                let mut next = Vec::new();
                for object in level {
                    // SAFETY: the first is tracked, the others are referred to by what is: all are alive.
                    let kind = unsafe { types.of(object) };
                    if kind.class == Class::Tensor {
                        let is_it = match graph {
                            true => tops.contains(&object),
                            // SAFETY: a tensor that is alive.
                            false => unsafe { w.torch.of_python(&[object]) }
                                .iter()
                                .any(|t| samples.contains_key(&t.data)),
                        };
                        if is_it {
                            return true;
                        }
                        continue;
                    }
                    if seen.len() < VISITS && kind.class.is_entered() {
                        // SAFETY: alive, and an object that the collector can enter.
                        unsafe {
                            references(object, kind, &mut |child| {
                                if seen.insert(child) {
                                    next.push(child);
                                }
                            });
                        }
                    }
                }
                level = next;
            }
            false
        };
        for (climb, graph) in [(&mut self.climb, false), (&mut self.rise, true)] {
            if let Some(c) = climb {
                c.named.retain(|n| leads(n, graph));
            }
        }
    }

    fn answers(&self) -> Vec<Value> {
        let climbed = self.climb.as_ref().map_or(&[][..], |c| &c.named);
        let risen = self.rise.as_ref().map_or(&[][..], |c| &c.named);
        let found = self.tensors.values().fold(0, |a, m| a | m);
        let one = |(f, group): (_, &u64)| answer::of(f, *group, found, climbed, risen);
        self.about().zip(&self.groups).map(one).collect()
    }
}
