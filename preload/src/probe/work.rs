//! One question, answered slice by slice.
//!
//! | stage  | a slice of it                                                              |
//! |--------|----------------------------------------------------------------------------|
//! | Match  | some objects: which tensors are in the blocks that are asked about, and which have an autograd graph |
//! | Climb  | some objects: what refers to what was found                                  |
//! | Now    | all of it: names that have a new object at every step, which keeps what has no holder yet, or whose graph does |
//! | Graph  | some nodes of graphs: which keep what has no holder yet                      |
//! | Rise   | as Climb, from the tensors at the top of those graphs                        |
//! | Verify | some names: the whole way down to what was asked about is there, at one moment |

use super::answer;
use super::budget::Budget;
use super::climb::{Climb, STRIDE};
use super::named::Named;
use super::objects::{Class, Types};
use super::world::World;
use super::{graph, rebound, verify};
use crate::python::collector::{Reached, Walk};
use crate::recorder::at_work::in_room;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use strandline_core::event::Room;
use strandline_core::format::holders::Ask;

/// Samples of all findings together: one for each bit of a mask.
const SAMPLES: usize = 64;
/// Tensors that are looked at together: what they are is copied by the kernel, in about a microsecond each.
const TENSORS: usize = 256;
/// Holders that are looked at again.
const HOLDERS: usize = 16;
/// Times that a last look may run out of time before it is given up, slices of 40 ms.
const TRIES: u32 = 8;
/// Objects that are tracked at most: a pass over these takes about half a second of pauses.
const OBJECTS: u64 = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Match,
    Climb,
    Now,
    Graph,
    Rise,
    Verify,
}

/// A last look that was not finished in its slice.
#[derive(Clone, Copy, Default)]
struct Rest {
    /// Samples that were proved, and the ways of graphs that were looked at.
    mask: u64,
    ways: usize,
    /// Times that there was no time for one way.
    tries: u32,
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
    /// Names whose tensors' graphs were seen to keep some of it.
    now: Vec<Named>,
    /// Names whose containers, made anew in every step, were seen to keep some of it.
    held: Vec<Named>,
    /// The climb from the tops of graphs.
    rise: Option<Climb>,
    /// What is left of the last look at the first name that has none yet.
    rest: Rest,
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
            now: Vec::new(),
            held: Vec::new(),
            rise: None,
            rest: Rest::default(),
        }
    }

    /// What comes next is to be done at one moment: it wants all of a slice, and this one has begun before.
    pub(super) fn wants_a_slice(&self, budget: &Budget) -> bool {
        const BEGUN: u64 = 1_000_000;
        self.stage == Stage::Now && budget.used().0 > BEGUN
    }

    /// The question's number.
    pub(super) fn number(&self) -> u64 {
        self.ask.number
    }

    /// What the next slice is about.
    pub(super) fn stage(&self) -> &'static str {
        match self.stage {
            Stage::Match => "match",
            Stage::Climb => "climb",
            Stage::Now => "now",
            Stage::Graph => "graph",
            Stage::Rise => "rise",
            Stage::Verify => "verify",
        }
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
        let _at_work = in_room(Room::Probe);
        // SAFETY: the caller's promise, for all of them.
        unsafe {
            match self.stage {
                Stage::Match => self.find(w, budget)?,
                Stage::Climb => {
                    if self.climb.as_mut().is_none_or(|c| c.go_on(w, budget)) {
                        self.look_at_graphs();
                    }
                }
                Stage::Now => self.look_at_names(w, budget),
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
        let (mut tensors, mut storages, mut left) = (Vec::with_capacity(TENSORS), Vec::new(), STRIDE);
        let mut walk = std::mem::take(&mut self.walk);
        // SAFETY: the caller's promise; an object that is handed out is tracked, hence alive, and nothing runs before its tensor is
        // looked at.
        let reached = unsafe {
            let reached = walk.go_on(w.collector, |object| {
                match types.of(object).class {
                    Class::Tensor => tensors.push(object),
                    Class::Storage => storages.push(object),
                    _ => {}
                }
                if tensors.len().max(storages.len()) == TENSORS {
                    self.look_at(w, &mut tensors, &mut storages);
                }
                left -= 1;
                if left == 0 {
                    left = STRIDE;
                    return !budget.is_over();
                }
                true
            });
            self.look_at(w, &mut tensors, &mut storages);
            reached
        };
        self.walk = walk;
        match reached {
            Reached::Middle => return Ok(()),
            Reached::Lost => return Err("Python's garbage collector was running at every attempt".into()),
            Reached::End => {}
        }
        self.climb = Some(Climb::new(self.tensors.iter().map(|(t, b)| (*t, *b)), self.groups.clone()));
        self.stage = Stage::Climb;
        Ok(())
    }

    /// Notes which of these tensors and storages are in blocks that were asked about, and which have a graph; none are left.
    ///
    /// # Safety
    /// They are alive; with the GIL held.
    unsafe fn look_at(&mut self, w: &World, tensors: &mut Vec<u64>, storages: &mut Vec<u64>) {
        // SAFETY: the caller's promise.
        let (known, data) = unsafe { (w.torch.of_python(tensors), w.torch.of_storages(storages)) };
        for (storage, data) in storages.drain(..).zip(data) {
            if let Some(bit) = self.samples.get(&data) {
                self.tensors.insert(storage, *bit);
            }
        }
        for ((tensor, known), autograd) in tensors.drain(..).zip(&known).zip(w.torch.autograd(&known)) {
            if let Some(bit) = self.samples.get(&known.data) {
                self.tensors.insert(tensor, *bit);
            }
            if autograd.node != 0 && self.made.len() < graph::NODES {
                self.made.push((tensor, autograd.node));
            }
        }
    }

    /// Goes over to the graphs, where there are samples whose holder has no final name.
    fn look_at_graphs(&mut self) {
        let done = self.climb.as_ref().map_or(0, |c| c.done);
        // Blocks, and autograd functions that were climbed to, whose samples have no holder.
        let mut wanted: HashMap<u64, u64> = self.samples.iter().map(|(b, m)| (*b, *m)).collect();
        wanted.extend(self.climb.iter().flat_map(Climb::through));
        wanted.retain(|_, mask| *mask & !done != 0);
        self.stage = if wanted.is_empty() { Stage::Verify } else { Stage::Now };
        self.wanted = wanted;
    }

    /// Looks for names that have a new tensor at every step. What they do not account for is looked for in all graphs.
    ///
    /// # Safety
    /// As [`Work::slice`].
    unsafe fn look_at_names(&mut self, w: &World, budget: &Budget) {
        // SAFETY: the caller's promise.
        let (found, is_whole) =
            unsafe { rebound::search(w, &mut Types::new(&w.python), &self.wanted, budget) };
        let known = |named: &[Named]| named.iter().fold(0, |all, n| all | n.mask).count_ones();
        if known(&found.graphs) + known(&found.kept) > known(&self.now) + known(&self.held) {
            (self.now, self.held) = (found.graphs, found.kept);
        }
        self.rest.tries += 1;
        if !is_whole && self.rest.tries < TRIES {
            return;
        }
        self.rest = Rest::default();
        // One that has the graph of a step or two is no holder of the others.
        let many =
            |n: &Named| self.groups.iter().any(|g| (g & n.mask).count_ones() * 4 >= g.count_ones().max(8));
        self.now.retain(many);
        self.held.retain(many);
        let done = self.now.iter().chain(&self.held).fold(0, |all, n| all | n.mask);
        if let Some(climb) = &mut self.climb {
            climb.named.append(&mut self.held);
        }
        self.wanted.retain(|_, mask| *mask & !done != 0);
        if self.wanted.is_empty() {
            self.stage = Stage::Verify;
            return;
        }
        let made = std::mem::take(&mut self.made);
        self.graphs = Some(graph::Walk::new(made, self.wanted.keys().copied().collect()));
        self.stage = Stage::Graph;
    }

    fn graph(&mut self, w: &World, budget: &Budget) {
        let Some(walk) = &mut self.graphs else { return };
        if !walk.go_on(w, budget) {
            return;
        }
        let mut from: HashMap<u64, u64> = HashMap::new();
        for by in walk.found.iter().map(|k| k.by).collect::<HashSet<u64>>() {
            walk.settle_top(by);
        }
        for kept in &walk.found {
            let mask = self.wanted.get(&kept.what).copied().unwrap_or(0);
            for tensor in [kept.by, walk.top(kept.by)] {
                *from.entry(tensor).or_default() |= mask;
            }
        }
        self.rise = Some(Climb::new(from.into_iter(), self.groups.clone()));
        self.stage = Stage::Rise;
    }

    /// Forgets names that do not stand the last look (`verify.rs`), and what a name was not seen to lead to at that moment.
    /// `true`: all were looked at.
    ///
    /// # Safety
    /// As [`Work::slice`].
    unsafe fn verify(&mut self, w: &World, budget: &Budget) -> bool {
        let mut types = Types::new(&w.python);
        for graph in [false, true] {
            loop {
                let climb = if graph { &self.rise } else { &self.climb };
                let names = climb.as_ref().map_or(&[][..], |c| &c.named);
                let Some(at) = names.iter().position(|n| !n.is_verified) else { break };
                let Some(named) = names.get(at) else { break };
                // SAFETY: the caller's promise.
                let (rest, is_whole) = unsafe { self.proved(w, &mut types, named, graph, budget) };
                if !is_whole && rest.tries < TRIES {
                    self.rest = rest;
                    return false;
                }
                let mask = rest.mask & named.mask;
                self.rest = Rest::default();
                let climb = if graph { &mut self.rise } else { &mut self.climb };
                let Some(names) = climb.as_mut().map(|c| &mut c.named) else { break };
                match names.get_mut(at).filter(|_| mask != 0) {
                    Some(n) => (n.is_verified, n.mask) = (true, mask),
                    None => drop(names.remove(at)),
                }
                if budget.is_over() {
                    return false;
                }
            }
        }
        true
    }

    /// The samples that a name leads to at this moment, every step of the way; and whether there was time for all of them.
    ///
    /// # Safety
    /// As [`Work::slice`].
    unsafe fn proved(
        &self,
        w: &World,
        types: &mut Types<'_>,
        named: &Named,
        graph: bool,
        budget: &Budget,
    ) -> (Rest, bool) {
        let mut rest = self.rest;
        let Some(climb) = (if graph { &self.rise } else { &self.climb }) else { return (rest, true) };
        // SAFETY: the caller's promise; what has its name still is alive, and so is what it leads to.
        unsafe {
            let Some(object) = verify::has(w, types, named) else { return (Rest::default(), true) };
            let (tensors, is_whole) = climb.below(w, types, object, budget);
            if !graph {
                rest.mask |= self.sampled(w, types, tensors);
            } else if is_whole || rest.tries + 1 == TRIES {
                return self.kept(w, types, named.mask, &tensors, rest, budget);
            }
            rest.tries += u32::from(!is_whole);
            (rest, is_whole)
        }
    }

    /// The samples that tensors and storages lie in.
    ///
    /// # Safety
    /// They are alive; with the GIL held.
    unsafe fn sampled(
        &self,
        w: &World,
        types: &mut Types<'_>,
        tensors: impl IntoIterator<Item = u64>,
    ) -> u64 {
        // SAFETY: the caller's promise.
        let (storages, tensors): (Vec<u64>, Vec<u64>) =
            tensors.into_iter().partition(|t| unsafe { types.of(*t) }.class == Class::Storage);
        // SAFETY: the caller's promise.
        let (known, data) = unsafe { (w.torch.of_python(&tensors), w.torch.of_storages(&storages)) };
        let all = known.iter().map(|t| t.data).chain(data);
        all.filter_map(|data| self.samples.get(&data)).fold(0, |a, bit| a | bit)
    }

    /// The samples, of those in `mask`, that the graphs of these tensors keep: as many ways as there is time for, at least one. Each is gone
    /// at one moment, from the name down.
    ///
    /// # Safety
    /// As [`Work::slice`]; the tensors are alive.
    unsafe fn kept(
        &self,
        w: &World,
        types: &mut Types<'_>,
        mask: u64,
        tensors: &HashSet<u64>,
        mut rest: Rest,
        budget: &Budget,
    ) -> (Rest, bool) {
        let (Some(graphs), from) = (&self.graphs, rest.ways) else { return (rest, true) };
        let mut looked = 0;
        for kept in graphs.found.iter().skip(from) {
            let may = self.wanted.get(&kept.what).copied().unwrap_or(0) & mask & !rest.mask;
            let top = [kept.by, graphs.top(kept.by)].into_iter().find(|t| tensors.contains(t));
            if let Some(top) = top.filter(|_| may != 0) {
                if looked > 0 && budget.is_over() {
                    return (rest, false);
                }
                looked += 1;
                // SAFETY: the caller's promise; an object that a node keeps is alive.
                unsafe {
                    let proves = graphs.proves(w, top, kept, budget);
                    if proves.is_none() && rest.tries < TRIES {
                        rest.tries += 1;
                        return (rest, false);
                    }
                    rest.mask |= match (proves, self.samples.get(&kept.what)) {
                        (Some(true), Some(bit)) => *bit,
                        (Some(true), None) => {
                            let climb = self.climb.as_ref();
                            let below = climb.map(|c| c.below(w, types, kept.what, budget).0);
                            self.sampled(w, types, below.unwrap_or_default())
                        }
                        _ => 0,
                    };
                }
            }
            (rest.ways, rest.tries) = (rest.ways + 1, 0);
        }
        (rest, true)
    }

    fn answers(&self) -> Vec<Value> {
        let climbed = self.climb.as_ref().map_or(&[][..], |c| &c.named);
        let risen: Vec<Named> =
            self.now.iter().chain(self.rise.iter().flat_map(|c| &c.named)).cloned().collect();
        let found = self.tensors.values().fold(0, |a, m| a | m);
        let one = |(f, group): (_, &u64)| answer::answer_for(f, *group, found, climbed, &risen);
        self.about().zip(&self.groups).map(one).collect()
    }

    /// What was named as a holder in the answers, to be looked at again, each with the finding's place among them.
    pub(super) fn holders(&self) -> Vec<Named> {
        let all = [&self.climb, &self.rise].into_iter().flatten().flat_map(|c| &c.named);
        let told = |n: &&Named| n.is_final && n.entries.is_some() && !n.is_rebound;
        let mut all: Vec<Named> = all.filter(told).cloned().collect();
        all.sort_by_key(|n| std::cmp::Reverse(n.mask.count_ones()));
        all.truncate(HOLDERS);
        all
    }
}
