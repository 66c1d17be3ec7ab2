//! One question, answered slice by slice.
//!
//! | stage  | a slice of it                                                              |
//! |--------|----------------------------------------------------------------------------|
//! | Match  | some objects: which tensors are in the blocks that are asked about, and which have an autograd graph |
//! | Climb  | some objects: what refers to what was found                                  |
//! | Graph  | some nodes of graphs: which keep what has no holder yet                      |
//! | Rise   | as Climb, from the tensors at the top of those graphs                        |
//! | Verify | what was named is still there and still leads to what was asked about        |

use super::answer;
use super::climb::{Climb, Named, STRIDE};
use super::collector::{self, Reached, Walk};
use super::objects::{Class, Types, references};
use super::{Budget, World, graph};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use strandline_core::format::holders::Ask;

/// Samples of all findings together: one for each bit of a mask.
const SAMPLES: usize = 64;
/// Objects that a verification looks at, at most, for each name.
const VISITS: usize = 20_000;
/// Tensors of a slice at most: what they are is copied by the kernel, after the walk.
const TENSORS: usize = 8_192;
/// Objects that are tracked at most: a pass over these takes about half a second of pauses.
const OBJECTS: u64 = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Match,
    Climb,
    Graph,
    Rise,
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
    /// The walk that looks for tensors.
    walk: Walk,
    /// Sampled blocks, with their bits.
    samples: HashMap<u64, u64>,
    /// Samples of each finding.
    groups: Vec<u64>,
    /// Tensors of Python's that lie in sampled blocks.
    tensors: HashMap<u64, u64>,
    climb: Option<Climb>,
    /// Tensors that a node has made, with that.
    made: Vec<(u64, u64)>,
    /// What has no holder, with its samples, and the walk over the graphs that may keep it.
    wanted: HashMap<u64, u64>,
    graphs: Option<graph::Walk>,
    /// The climb from the tops of graphs, and those.
    rise: Option<Climb>,
    tops: HashSet<u64>,
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
            walk: Walk::default(),
            samples,
            groups,
            tensors: HashMap::new(),
            climb: None,
            made: Vec::new(),
            wanted: HashMap::new(),
            graphs: None,
            rise: None,
            tops: HashSet::new(),
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
        self.walk.objects
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
                Stage::Climb => {
                    if self.climb.as_mut().is_none_or(|c| c.go_on(w, budget)) {
                        self.look_at_graphs();
                    }
                }
                Stage::Graph => self.graph(w, budget),
                Stage::Rise => {
                    if self.rise.as_mut().is_none_or(|c| c.go_on(w, budget)) {
                        self.stage = Stage::Verify;
                    }
                }
                Stage::Verify => {
                    if self.verify(w, budget) {
                        return Ok(Progress::Answered(self.answers()));
                    }
                }
            }
        }
        Ok(Progress::More)
    }

    /// Looks at some objects for tensors.
    ///
    /// # Safety
    /// As [`Work::slice`].
    unsafe fn find(&mut self, w: &World, budget: &Budget) -> Result<(), String> {
        let many = w.collector.long_lived().max(self.walk.objects);
        if many > OBJECTS {
            return Err(format!(
                "Python tracks more than {many} objects: looking at them would take too long"
            ));
        }
        let mut types = Types::new(&w.python);
        let (mut tensors, mut left) = (Vec::new(), STRIDE);
        // SAFETY: the caller's promise; an object that is handed out is tracked, hence alive, and nothing runs before its tensor is
        // looked at.
        let reached = unsafe {
            let reached = self.walk.go_on(w.collector, |object| {
                if types.of(object).class == Class::Tensor {
                    tensors.push(object);
                }
                left -= 1;
                if left == 0 {
                    left = STRIDE;
                    return tensors.len() < TENSORS && !budget.is_over();
                }
                true
            });
            let known = w.torch.of_python(&tensors);
            for ((tensor, known), autograd) in tensors.iter().zip(&known).zip(w.torch.autograd(&known)) {
                if let Some(bit) = self.samples.get(&known.data) {
                    self.tensors.insert(*tensor, *bit);
                }
                if autograd.node != 0 && self.made.len() < graph::NODES {
                    self.made.push((*tensor, autograd.node));
                }
            }
            reached
        };
        match reached {
            Reached::Middle => return Ok(()),
            Reached::Lost => return Err("Python's collector is at work all the time".into()),
            Reached::End => {}
        }
        self.climb = Some(Climb::new(self.tensors.iter().map(|(t, b)| (*t, *b)), self.groups.clone()));
        self.stage = Stage::Climb;
        Ok(())
    }

    /// Goes over to the graphs, where there are samples whose holder has no final name.
    fn look_at_graphs(&mut self) {
        let done = self.climb.as_ref().map_or(0, |c| c.done);
        if done == self.groups.iter().fold(0, |a, g| a | g) {
            self.stage = Stage::Verify;
            return;
        }
        // Blocks, and autograd functions that were climbed to, whose samples have no holder.
        let mut wanted: HashMap<u64, u64> = self.samples.iter().map(|(b, m)| (*b, *m)).collect();
        wanted.extend(self.climb.iter().flat_map(Climb::through));
        wanted.retain(|_, mask| *mask & !done != 0);
        let made = std::mem::take(&mut self.made);
        self.graphs = Some(graph::Walk::new(made, wanted.keys().copied().collect()));
        self.wanted = wanted;
        self.stage = Stage::Graph;
    }

    fn graph(&mut self, w: &World, budget: &Budget) {
        let Some(walk) = &mut self.graphs else { return };
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
        self.rise = Some(Climb::new(from.into_iter(), self.groups.clone()));
        self.stage = Stage::Rise;
    }

    /// Forgets names whose object is gone, or does not lead to what was asked about any more. `true`: all were looked at.
    ///
    /// # Safety
    /// As [`Work::slice`].
    unsafe fn verify(&mut self, w: &World, budget: &Budget) -> bool {
        let mut types = Types::new(&w.python);
        for (climb, graph) in [(&mut self.climb, false), (&mut self.rise, true)] {
            let Some(named) = climb.as_mut().map(|c| &mut c.named) else { continue };
            while let Some(at) = named.iter().position(|n| !n.is_verified) {
                // SAFETY: the caller's promise.
                let leads = unsafe {
                    named.get(at).is_some_and(|n| leads(w, &mut types, n, &self.tops, &self.samples, graph))
                };
                match named.get_mut(at).filter(|_| leads) {
                    Some(n) => n.is_verified = true,
                    None => drop(named.remove(at)),
                }
                if budget.is_over() {
                    return false;
                }
            }
        }
        true
    }

    fn answers(&self) -> Vec<Value> {
        let climbed = self.climb.as_ref().map_or(&[][..], |c| &c.named);
        let risen = self.rise.as_ref().map_or(&[][..], |c| &c.named);
        let found = self.tensors.values().fold(0, |a, m| a | m);
        let one = |(f, group): (_, &u64)| answer::of(f, *group, found, climbed, risen);
        self.about().zip(&self.groups).map(one).collect()
    }
}

/// Whether what has a name is there, and leads down to a tensor in a sampled block, or to one at the top of a graph.
///
/// # Safety
/// As [`Work::slice`].
unsafe fn leads(
    w: &World,
    types: &mut Types<'_>,
    named: &Named,
    tops: &HashSet<u64>,
    samples: &HashMap<u64, u64>,
    graph: bool,
) -> bool {
    if !collector::is_tracked(named.object) {
        return false;
    }
    let mut seen: HashSet<u64> = HashSet::from([named.object]);
    let mut level = vec![named.object];
    for _ in 0..=named.level {
        let (mut next, mut tensors) = (Vec::new(), Vec::new());
        for object in level {
            // SAFETY: the first is tracked, the others are referred to by what is: all are alive.
            let kind = unsafe { types.of(object) };
            match kind.class {
                Class::Tensor => tensors.push(object),
                class if class.is_entered() => {
                    // SAFETY: alive, and an object that the collector can enter.
                    unsafe {
                        references(object, kind, &mut |child| {
                            if seen.len() < VISITS && seen.insert(child) {
                                next.push(child);
                            }
                        });
                    }
                }
                _ => {}
            }
        }
        let is_it = match graph {
            true => tensors.iter().any(|t| tops.contains(t)),
            // SAFETY: tensors that are alive.
            false => unsafe { w.torch.of_python(&tensors) }.iter().any(|t| samples.contains_key(&t.data)),
        };
        if is_it {
            return true;
        }
        level = next;
    }
    false
}
