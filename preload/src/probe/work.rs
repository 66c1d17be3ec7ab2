//! One question, answered slice by slice.
//!
//! | stage  | a slice of it                                                              |
//! |--------|----------------------------------------------------------------------------|
//! | Close  | all of it: the stages Match and Climb among what the user's own names lead to (`close.rs`); so is Rise, until that was not enough |
//! | Match  | some objects: which tensors are in the blocks that are asked about, and which have an autograd graph |
//! | Climb  | some objects: what refers to what was found                                  |
//! | Now    | all of it: names that have a new object at every step, which keeps what has no holder yet, or whose graph does |
//! | Graph  | some nodes of graphs: which keep what has no holder yet                      |
//! | Reach  | all of it: as Close, from the objects of Python's that those graphs keep; Now follows again |
//! | Rise   | as Climb, from the tensors at the top of those graphs                        |
//! | Verify | some names: the whole way down to what was asked about is there, at one moment |

use super::budget::{self, Budget};
use super::climb::{Climb, STRIDE};
use super::close::{self, Close};
use super::named::Named;
use super::objects::Class;
use super::tensors::{Implementation, Torch};
use super::types::Types;
use super::world::World;
use super::{graph, rebound};
use crate::platform::pages::Pages;
use crate::python::collector::{Reached, Walk};
use crate::python::uncounted;
use crate::recorder::at_work::in_room;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use strandline_core::event::{Room, named};
use strandline_core::format::holders::Ask;

/// Samples of all findings together: one for each bit of a mask.
const SAMPLES: usize = 64;
/// Its multiples are spread evenly over what they are divided by.
const GOLDEN: usize = 0x9e37_79b9;
/// Tensors that are looked at together: what they are is copied by the kernel, in about a microsecond each.
const TENSORS: usize = 256;
/// Times that a last look may run out of time before it is given up, slices of 40 ms.
pub(super) const TRIES: u32 = 8;
/// Times that what graphs keep of Python's objects is looked into: a checkpoint keeps its arguments by a graph that a hook of another one has.
const REACHES: u32 = 2;
/// Objects that are tracked at most: a pass over these takes about half a second of pauses.
const OBJECTS: u64 = 2_000_000;

named! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) enum Stage {
        #[default]
        Close = "close",
        Match = "match",
        Climb = "climb",
        Now = "now",
        Graph = "graph",
        Reach = "reach",
        Rise = "rise",
        Verify = "verify",
    }
}

/// A last look that was not finished in its slice.
#[derive(Clone, Copy, Default)]
pub(super) struct Rest {
    /// Samples that were proved, and the ways of graphs that were looked at.
    pub(super) mask: u64,
    pub(super) ways: usize,
    /// Times that there was no time for one way.
    pub(super) tries: u32,
}

/// What a slice came to.
pub(super) enum Progress {
    /// There is more to do.
    More,
    /// This is the answer to each finding.
    Answered(Vec<Value>),
}

/// A question under way. Between slices it keeps addresses, names and counts.
#[derive(Default)]
pub(super) struct Work {
    pub(super) ask: Ask,
    pub(super) stage: Stage,
    /// Only what the user's own names lead to is looked at; how often also what graphs keep was.
    is_close: bool,
    pub(super) reaches: u32,
    /// The walk that looks for tensors.
    walk: Walk,
    /// Sampled blocks, with their bits.
    pub(super) samples: HashMap<u64, u64>,
    /// For how much of a finding's memory each stands, in the order of the bits, where that is known; and samples of each finding.
    pub(super) weights: Vec<u64>,
    pub(super) groups: Vec<u64>,
    /// What the user's own names alone have told, where that was not enough.
    pub(super) close: Vec<Value>,
    /// Tensors of Python's that lie in sampled blocks, or whose gradients do.
    pub(super) tensors: HashMap<u64, u64>,
    /// Samples by the tensor of C++ or the storage that lies in them, and by the gradient.
    pub(super) own: HashMap<u64, u64>,
    pub(super) gradients: HashMap<u64, u64>,
    /// Tensors whose gradient has a graph, and samples that only such graphs were seen to keep.
    with_graphs: HashSet<u64>,
    pub(super) by_gradients: u64,
    pub(super) climb: Option<Climb>,
    /// Tensors that a node has made, with that.
    pub(super) made: Vec<(u64, u64)>,
    /// What has no holder, with its samples, and the walk over the graphs that may keep it.
    pub(super) wanted: HashMap<u64, u64>,
    pub(super) graphs: Option<graph::Walk>,
    /// Names whose tensors' graphs were seen to keep some of it.
    pub(super) now: Vec<Named>,
    /// Names whose containers, made anew in every step, were seen to keep some of it.
    held: Vec<Named>,
    /// The climb from the tops of graphs.
    pub(super) rise: Option<Climb>,
    /// The job has switched Python's collector off, as of the last slice.
    pub(super) is_collector_off: bool,
    /// What is left of the last look at the first name that has none yet.
    pub(super) rest: Rest,
}

impl Work {
    /// Takes a question.
    pub(super) fn new(ask: Ask) -> Work {
        let (mut samples, mut weights, mut groups) = (HashMap::new(), Vec::new(), Vec::new());
        let each = (SAMPLES / ask.findings.len().max(1)).min(32);
        for f in &ask.findings {
            // Spread over the blocks, which come in the order of their age; not at equal distances, at which the same one of several that each
            // step leaves may lie.
            let mut group = 0;
            let count = f.blocks.len().min(each);
            for i in 0..count {
                let [from, to] = [i, i + 1].map(|i| i * f.blocks.len() / count);
                let at = from + i.wrapping_mul(GOLDEN) % (to - from).max(1);
                let Some(&block) = f.blocks.get(at) else { continue };
                if samples.len() < SAMPLES && !samples.contains_key(&block) {
                    let bit = 1u64 << samples.len();
                    samples.insert(block, bit);
                    weights.extend(f.weights.get(at));
                    group |= bit;
                }
            }
            groups.push(group);
        }
        weights.truncate(if weights.len() == samples.len() { usize::MAX } else { 0 });
        Work { weights, ..Work::begin(Stage::Close, ask, samples, groups) }
    }

    fn begin(stage: Stage, ask: Ask, samples: HashMap<u64, u64>, groups: Vec<u64>) -> Work {
        Work { ask, stage, is_close: stage == Stage::Close, samples, groups, ..Work::default() }
    }

    /// What comes next wants all of a slice, and this one has begun before.
    pub(super) fn wants_a_slice(&self, budget: &Budget) -> bool {
        const BEGUN: u64 = 1_000_000;
        self.is_at_once() && budget.used().0 > BEGUN
    }

    /// What comes next is to be done at one moment.
    fn is_at_once(&self) -> bool {
        matches!(self.stage, Stage::Close | Stage::Now | Stage::Reach)
            || self.stage == Stage::Rise && self.is_close
    }

    /// Nanoseconds of the processor that the next slice may take.
    pub(super) fn needs(&self) -> u64 {
        if self.is_at_once() { budget::AT_ONCE } else { budget::SLICE }
    }

    /// The question's number.
    pub(super) fn number(&self) -> u64 {
        self.ask.number
    }

    /// What the next slice is about.
    pub(super) fn stage(&self) -> &'static str {
        self.stage.name()
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
        self.is_collector_off = uncounted::is_collector_off();
        // SAFETY: the caller's promise, for all of them.
        unsafe {
            match self.stage {
                Stage::Close => self.look_close(w, budget),
                Stage::Match => self.find(w, budget)?,
                Stage::Climb => {
                    if self.climb.as_mut().is_none_or(|c| c.go_on(w, budget)) {
                        self.look_at_graphs();
                    }
                }
                Stage::Now => self.look_at_names(w, budget),
                Stage::Graph => self.graph(w, budget),
                Stage::Reach => self.reach(w, budget),
                Stage::Rise if self.is_close => {
                    let mut close = close::look(w, &mut Types::new(&w.python), budget);
                    self.add_kept(w, &mut close, budget);
                    self.rise.iter_mut().for_each(|c| c.all_at_once(w, &close.objects, &Budget::new()));
                    while !budget.is_all_used() && self.rise_further() {
                        self.rise.iter_mut().for_each(|c| c.all_at_once(w, &close.objects, &Budget::new()));
                    }
                    self.stage = Stage::Verify;
                }
                Stage::Rise => {
                    if self.rise.as_mut().is_none_or(|c| c.go_on(w, budget)) {
                        self.reaches += 1;
                        if self.reaches > REACHES || !self.rise_further() {
                            self.stage = Stage::Verify;
                        }
                    }
                }
                Stage::Verify => {
                    let is_whole = self.verify(w, budget);
                    if is_whole && self.is_close && !self.is_enough(self.proved_samples()) {
                        // Told with what comes of a longer search.
                        let close = self.answers();
                        let (samples, groups) =
                            (std::mem::take(&mut self.samples), std::mem::take(&mut self.groups));
                        let (weights, ask) =
                            (std::mem::take(&mut self.weights), std::mem::take(&mut self.ask));
                        *self = Work { weights, ..Work::begin(Stage::Match, ask, samples, groups) };
                        self.close = close;
                    } else if is_whole {
                        return Ok(Progress::Answered(self.answers()));
                    }
                }
            }
        }
        Ok(Progress::More)
    }

    /// Looks at what the user's own names lead to.
    ///
    /// # Safety
    /// As [`Work::slice`].
    unsafe fn look_close(&mut self, w: &World, budget: &Budget) {
        // SAFETY: the caller's promise; what is handed out is alive, and nothing of the job runs in this slice.
        unsafe {
            let mut close = close::look(w, &mut Types::new(&w.python), budget);
            self.climb_close(w, &mut close);
        }
        self.look_at_graphs();
    }

    /// Climbs from those of these tensors that are asked about, among the objects that were come to; the tensors are used up.
    ///
    /// # Safety
    /// As [`Work::slice`]; the objects are alive.
    pub(super) unsafe fn climb_close(&mut self, w: &World, close: &mut Close) {
        // SAFETY: the caller's promise.
        unsafe {
            self.note(w, close);
            let mut climb = Climb::new(self.tensors.iter().map(|(t, b)| (*t, *b)), self.groups.clone());
            climb.all_at_once(w, &close.objects, &Budget::new());
            self.climb = Some(climb);
        }
    }

    /// Notes the nodes, tensors and storages that were come to; they are used up.
    ///
    /// # Safety
    /// As [`Work::slice`]; they are alive.
    pub(super) unsafe fn note(&mut self, w: &World, close: &mut Close) {
        // SAFETY: the caller's promise.
        unsafe {
            close.nodes.drain(..).for_each(|node| self.note_node(&w.torch, node));
            while !close.tensors.is_empty() || !close.storages.is_empty() {
                let some = |all: &mut Vec<u64>| all.split_off(all.len().saturating_sub(TENSORS));
                let (mut tensors, mut storages) = (some(&mut close.tensors), some(&mut close.storages));
                self.look_at(w, &mut tensors, &mut storages);
            }
        }
    }

    /// Samples of each finding that make the others not worth a search among all objects: some were freed or moved on meanwhile.
    fn is_enough(&self, found: u64) -> bool {
        is_enough(&self.groups, found)
    }

    /// Samples that have a holder: what a name of the user's own leads to by attributes alone has no better one.
    fn proved_samples(&self) -> u64 {
        let all = [&self.climb, &self.rise].into_iter().flatten().flat_map(|c| &c.named).chain(&self.now);
        let is_one = |n: &&Named| n.is_final && !n.is_wrapper || n.rank.is_root();
        all.filter(is_one).fold(0, |all, n| all | n.mask)
    }

    /// Looks at some objects for tensors.
    ///
    /// # Safety
    /// As [`Work::slice`].
    unsafe fn find(&mut self, w: &World, budget: &Budget) -> Result<(), String> {
        let many = w.collector.long_lived().max(self.walk.objects);
        if many > OBJECTS {
            return Err(format!(
                "Python tracks more than {many} objects: searching them would take too long"
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
                    Class::Node => self.note_node(&w.torch, object),
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

    /// Notes a node that Python has.
    ///
    /// # Safety
    /// As [`Torch::node_of`].
    unsafe fn note_node(&mut self, torch: &Torch, object: u64) {
        if self.made.len() < graph::NODES {
            // SAFETY: the caller's promise.
            self.made.push((object, unsafe { torch.node_of(object) }.0));
        }
    }

    /// Notes which of these tensors and storages are in blocks that were asked about, or have a gradient that is, and which have a graph;
    /// none are left.
    ///
    /// # Safety
    /// They are alive; with the GIL held.
    unsafe fn look_at(&mut self, w: &World, tensors: &mut Vec<u64>, storages: &mut Vec<u64>) {
        // SAFETY: the caller's promise.
        let (known, data) = unsafe { (w.torch.of_python(tensors), w.torch.of_storages(storages)) };
        for (storage, data) in storages.drain(..).zip(data) {
            if let Some(bit) = self.samples.get(&data) {
                self.tensors.insert(storage, *bit);
                self.own.insert(storage, *bit);
            }
        }
        let pages = Pages::default();
        let autograd = w.torch.autograd(&pages, &known);
        // A backward that created a graph has made the gradient a part of it.
        let gradients = w.torch.gradients(&pages, &autograd);
        let of_gradients = w.torch.autograd(&pages, &gradients);
        let at = known.iter().map(|t| t.at).zip(gradients.iter().map(|g| g.at));
        let blocks = Implementation::blocks(&known, &gradients);
        for ((((tensor, at), blocks), autograd), of_gradient) in
            tensors.drain(..).zip(at).zip(blocks).zip(autograd).zip(of_gradients)
        {
            let mask = |data: [u64; 3]| {
                data.iter().filter_map(|d| self.samples.get(d)).fold(0, |all, bit| all | bit)
            };
            let [own, gradient] = blocks.map(mask);
            if own | gradient != 0 {
                *self.tensors.entry(tensor).or_default() |= own | gradient;
                *self.own.entry(at.0).or_default() |= own;
                *self.gradients.entry(at.1).or_default() |= gradient;
            }
            if of_gradient.node != 0 {
                self.with_graphs.insert(tensor);
            }
            for node in [autograd.node, of_gradient.node] {
                if node != 0 && self.made.len() < graph::NODES {
                    self.made.push((tensor, node));
                }
            }
        }
    }

    /// Goes over to the graphs, where there are samples whose holder has no final name.
    pub(super) fn look_at_graphs(&mut self) {
        let done = self.climb.as_ref().map_or(0, |c| c.done);
        if self.is_close && self.is_enough(done) {
            self.stage = Stage::Verify;
            return;
        }
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
        let (new, old) = (known(&found.graphs) + known(&found.kept), known(&self.now) + known(&self.held));
        if new > old {
            (self.now, self.held) = (found.graphs, found.kept);
        }
        self.rest.tries += 1;
        if !is_whole && !self.is_close && self.rest.tries < TRIES {
            return;
        }
        if !is_whole && self.is_close {
            // Which graph is the inner one is not known then.
            self.now.clear();
        }
        self.rest = Rest::default();
        for names in [&mut self.now, &mut self.held] {
            rebound::retain_most(names, &self.groups);
        }
        let done = self.now.iter().chain(&self.held).fold(0, |all, n| all | n.mask);
        if let Some(climb) = &mut self.climb {
            climb.named.append(&mut self.held);
        }
        self.wanted.retain(|_, mask| *mask & !done != 0);
        let has = self.climb.as_ref().map_or(0, |c| c.done) | done;
        if self.wanted.is_empty() || self.is_close && self.is_enough(has) {
            self.stage = Stage::Verify;
            return;
        }
        let wanted = self.wanted.keys().copied().collect();
        match &mut self.graphs {
            // They were walked before what they keep was reached.
            Some(walk) => walk.go_further(std::mem::take(&mut self.made), wanted),
            None => self.graphs = Some(graph::Walk::new(std::mem::take(&mut self.made), wanted)),
        }
        self.stage = Stage::Graph;
    }

    fn graph(&mut self, w: &World, budget: &Budget) {
        let Some(walk) = &mut self.graphs else { return };
        if !walk.go_on(w, &Pages::default(), budget) {
            return;
        }
        let found = walk.found.iter().filter_map(|kept| self.wanted.get(&kept.what));
        let found = found.chain(self.now.iter().map(|n| &n.mask)).fold(0, |all, mask| all | mask);
        let done = self.climb.as_ref().map_or(0, |c| c.done);
        let is_more = self.is_close && self.reaches < REACHES && walk.has_new_objects();
        if is_more && !is_enough(&self.groups, found | done) {
            self.stage = Stage::Reach;
            return;
        }
        let mut from: HashMap<u64, u64> = HashMap::new();
        for by in walk.found.iter().map(|k| k.by).collect::<HashSet<u64>>() {
            walk.settle_top(by);
        }
        let mut by_others = 0;
        for kept in &walk.found {
            let mask = self.wanted.get(&kept.what).copied().unwrap_or(0);
            let is_gradients = self.with_graphs.contains(&kept.by);
            *if is_gradients { &mut self.by_gradients } else { &mut by_others } |= mask;
            for tensor in [kept.by, walk.top(kept.by)] {
                *from.entry(tensor).or_default() |= mask;
            }
        }
        self.by_gradients &= !by_others;
        self.rise = Some(Climb::new(from.into_iter(), self.groups.clone()));
        self.stage = Stage::Rise;
    }
}

fn is_enough(groups: &[u64], found: u64) -> bool {
    groups.iter().all(|g| (found & g).count_ones() * 4 >= g.count_ones() * 3)
}
