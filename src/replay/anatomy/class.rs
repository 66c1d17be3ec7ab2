//! What a block was used for, from where it was born and how it ended.

use super::super::{Held, PhaseKind, Replay};
use super::twins::Twins;
use crate::event::{Addr, Block, Body, Item, Names, Nanos, StackId, named};
use rustc_hash::FxHashMap;

named! {
    /// What a block was used for: fields of [`super::Anatomy`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Class {
        /// Built before training.
        Weights = "weights",
        /// Born in backward and not freed there.
        Gradients = "gradients",
        /// State of an optimizer.
        Optimizer = "optimizer",
        /// Born in forward, freed in backward.
        Activations = "activations",
        /// Born and dead within one phase.
        Temporaries = "temporaries",
        /// A finding counts it.
        LeftBehind = "left_behind",
        /// A finding counts it, and a larger one replaces it: nothing of that is old.
        Growing = "growing",
        /// A finding that is suppressed counts it.
        Suppressed = "suppressed",
        /// None of these.
        Other = "other",
    }
}

impl Class {
    /// Its place in [`Class::ALL`].
    pub fn number(self) -> usize {
        self as usize
    }

    /// What of a block counts for the class; what the allocator rounded up beyond that is [`Class::Other`].
    pub fn share(self, block: &Block) -> u64 {
        match self {
            // Findings count whole blocks: freeing them gives back all of that.
            Class::LeftBehind | Class::Growing | Class::Suppressed | Class::Other => block.rounded.0,
            _ => block.size.0.min(block.rounded.0),
        }
    }
}

/// Blocks of one size from one stack that are there at once, from which on they are no temporaries.
const PILED: u32 = 4;

/// How a block ended.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// What the thread that freed it did.
    pub phase: PhaseKind,
    /// In which step (from 1).
    pub step: u32,
    /// In which microbatch (from 1).
    pub microbatch: u32,
}

/// What of a job's past and future tells its blocks' classes.
#[derive(Debug, Default)]
pub struct Classifier {
    /// Steps that the whole recording has; blocks freed after the last were freed when the job was over.
    pub last_step: u32,
    /// The step whose failed allocation is looked at: what it had saved was freed as it was given up, not by its backward.
    pub failed_step: Option<u32>,
    /// Stacks of Python, and whether they run through a module's `forward`.
    in_forward: FxHashMap<u32, bool>,
    /// There is a module.
    has_model: bool,
    /// What nobody of Python's allocated before the first backward, and may be freed in it; and the first of that which was: a forward had begun
    /// by then.
    before_backward: FxHashMap<Addr, Nanos>,
    first_activation: Option<Nanos>,
    /// When a backward began first.
    first_backward: Option<Nanos>,
    /// The process had trained before the recording began: weights are from before it.
    trained_before: bool,
}

impl Classifier {
    /// Of a recording of so many steps.
    pub fn new(last_step: u32) -> Classifier {
        Classifier { last_step, ..Classifier::default() }
    }

    /// Takes the next item.
    pub fn see(&mut self, item: &Item, names: &Names) {
        match item {
            // Whether it allocates for a module's forward rather than to build one.
            Item::Stack(id) => {
                let runs = |what: &str| names.frames(*id).any(|f| f.function.ends_with(what));
                let inside = runs("_call_impl");
                if names.frames(*id).next().is_some() {
                    self.in_forward.insert(id.0, inside);
                }
                // A module that is called, or moved to a device.
                self.has_model |= inside || runs("_apply");
            }
            Item::Event(e) => self.event(&e.body, e.time),
            Item::Meta(facts) => self.trained_before |= facts["trained_before"] == true,
            _ => {}
        }
    }

    /// Takes the next event.
    #[inline]
    pub fn event(&mut self, body: &Body, time: Nanos) {
        match (body, self.first_backward) {
            (Body::BackwardBegin { .. }, None) => self.first_backward = Some(time),
            (Body::Alloc(b), None) if !self.in_forward.contains_key(&b.stack.0) => {
                self.before_backward.insert(b.addr, time);
            }
            (Body::FreeRequested(b), _) if !self.before_backward.is_empty() => self.freed(b),
            (Body::BackwardEnd { .. }, Some(_)) => self.before_backward.clear(),
            _ => {}
        }
    }

    /// A block was freed before the first backward has ended.
    fn freed(&mut self, b: &Block) {
        let born = self.before_backward.remove(&b.addr);
        if PhaseKind::of(b.phase, true) == PhaseKind::Backward {
            self.first_activation = [self.first_activation, born].into_iter().flatten().min();
        }
    }

    /// Freed within the step after its own: whatever its line does else, this block was not left behind.
    pub fn died_soon(&self, held: &Held, death: Option<Death>) -> bool {
        death.is_some_and(|d| d.step <= held.step + 1 && (d.step <= self.last_step || self.last_step == 0))
    }

    /// Still there when the step after its own had ended. Gradients that are kept and zeroed are, and so is
    /// what a library keeps for itself from the first time it is used in a backward (cuBLAS a workspace for
    /// each thread and stream): [`Twins`] tells them apart.
    fn outlived_a_step(&self, held: &Held, death: Option<Death>) -> bool {
        held.step < self.last_step && death.is_none_or(|d| d.step > self.last_step)
    }

    /// Whether a block that an optimizer made may be a library's workspace rather than state: it stays for good, and its line
    /// frees nearly all that it allocates (Muon multiplies matrices). [`Twins`] knows states as large as a weight.
    fn may_be_workspace(&self, held: &Held, death: Option<Death>, replay: &Replay) -> bool {
        let frees_all = replay.cohorts().get(held.cohort.0 as usize).is_some_and(|c| {
            let (allocs, frees) = c.at_mark;
            c.in_optimizer * 2 > c.allocs && frees > 4 * allocs.saturating_sub(frees)
        });
        frees_all && self.outlived_a_step(held, death)
    }

    /// The class of a block that no finding counts, which was born in `born_in`.
    pub fn class(&self, held: &Held, born_in: PhaseKind, death: Option<Death>) -> Class {
        let soon = self.died_soon(held, death);
        let ended = death;
        // Freed after the last step: when the job was over.
        let death = death.filter(|d| d.step <= self.last_step || self.last_step == 0);
        let same = death.is_some_and(|d| d.phase == born_in && d.microbatch == held.microbatch);
        match born_in {
            PhaseKind::Optimizer if same => Class::Temporaries,
            PhaseKind::Optimizer => Class::Optimizer,
            PhaseKind::Backward if same => Class::Temporaries,
            PhaseKind::Backward => Class::Gradients,
            _ if death.is_some_and(|d| d.phase == PhaseKind::Backward) && soon => Class::Activations,
            _ if self.failed_step == Some(held.step) && !self.built_before_training(held) => {
                self.of_forward(held)
            }
            _ if same => Class::Temporaries,
            _ if death.is_some() && soon => self.of_forward(held),
            _ if self.built_before_training(held) => Class::Weights,
            // The job ended, or failed, before this step's backward could free it.
            _ if ended.is_none() && held.step > self.last_step => self.of_forward(held),
            _ => Class::Other,
        }
    }

    /// The class of what is no weight and does not live on: no backward needs it where no gradients are recorded, nor in a job that does not
    /// train. Before the first backward, only a module's forward shows that there will be one: a model that is being built is not activations.
    fn of_forward(&self, held: &Held) -> Class {
        let trains = self.first_backward.is_some() || self.trained_before;
        match held.block.phase.no_grad {
            false if trains => Class::Activations,
            false if self.last_step < 2 && self.is_in_forward(held) => Class::Activations,
            false if self.last_step < 2 => Class::Other,
            _ => Class::Temporaries,
        }
    }

    /// Whether a module's forward allocated it.
    fn is_in_forward(&self, held: &Held) -> bool {
        self.in_forward.get(&held.block.stack.0).copied().unwrap_or(false)
    }

    /// The class of each block out of all that live at a moment, where `blocks` says what it would be by itself. What no step frees
    /// and may be a library's own is told by [`Twins`] once all others are known.
    pub fn settle(
        &self,
        replay: &Replay,
        blocks: impl IntoIterator<Item = (Held, Option<Death>, Class)>,
        mut tell: impl FnMut(&Held, Class),
    ) {
        let mut twins = Twins::default();
        let (mut workspaces, mut unsure, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut alike: FxHashMap<_, u32> = FxHashMap::default();
        for (held, death, class) in blocks {
            let size = held.block.size;
            match class {
                Class::Optimizer if self.may_be_workspace(&held, death, replay) => {
                    workspaces.push(held);
                    continue;
                }
                Class::Temporaries if self.may_be_kept(&held) => {
                    *alike.entry((held.block.stack, size)).or_default() += 1;
                    kept.push(held);
                    continue;
                }
                Class::Gradients if self.outlived_a_step(&held, death) => {
                    unsure.push(held);
                    continue;
                }
                Class::Weights => twins.weight(size),
                Class::Optimizer => twins.state(size),
                Class::Gradients => twins.gradient(size),
                _ => {}
            }
            tell(&held, class);
        }
        for held in kept {
            let n = alike.get(&(held.block.stack, held.block.size));
            tell(&held, if n.is_some_and(|n| *n >= PILED) { Class::Other } else { Class::Temporaries });
        }
        for held in workspaces {
            tell(&held, if twins.has(held.block.size) { Class::Optimizer } else { Class::Other });
        }
        for held in unsure {
            tell(&held, if twins.claim(held.block.size) { Class::Gradients } else { Class::Other });
        }
    }

    /// Of a step that failed nothing tells what it would have freed. What a forward frees again, it does not pile up: an evaluation keeps its
    /// outputs.
    fn may_be_kept(&self, held: &Held) -> bool {
        self.failed_step == Some(held.step) && held.block.phase.no_grad && held.block.stack != StackId(0)
    }

    fn built_before_training(&self, held: &Held) -> bool {
        let early =
            !self.trained_before && held.step == 1 && self.first_backward.is_none_or(|t| held.born < t);
        early
            && match self.in_forward.get(&held.block.stack.0) {
                Some(true) => false,
                // Without a backward, a module shows that there is a model; a job that failed may not have come to that.
                Some(false) => self.has_model || self.first_backward.is_some() || self.failed_step.is_some(),
                // Nobody knows who allocated it: a library may have, in the first forward.
                None => self.first_activation.is_none_or(|t| held.born < t),
            }
    }
}
