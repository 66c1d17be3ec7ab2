//! Small vocabulary of the replay: what a call of `apply` brought about, and how it counts.

use crate::event::{Phase, named};

/// What one item brought about, for whoever drives the replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// A step ended just before the event: its number (from 1).
    pub step: Option<u32>,
    /// A microbatch ended just before the event: its number (from 1).
    pub microbatch: Option<u32>,
    /// Earlier steps turned out to be one step, and everything was renumbered. `step` is then the merged one.
    pub folded: bool,
}

impl Progress {
    /// More has ended at the same moment.
    pub(super) fn join(&mut self, more: Progress) {
        self.microbatch = more.microbatch.or(self.microbatch);
        if !self.folded {
            self.step = more.step.or(self.step);
        }
        self.folded |= more.folded;
    }
}

/// What marks are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Grain {
    /// Ends of steps (ticks of a second where there are no steps: see
    /// [`crate::event::steps::StepSource::Time`]).
    Step,
    /// Ends of microbatches.
    Microbatch,
}

named! {
    /// What the job was doing, derived from the raw [`Phase`] and from what the recording has shown so far.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum PhaseKind {
        /// Not known: neither a backward nor an optimizer was ever seen.
        #[default]
        Unknown = "unknown",
        /// Outside of backward and optimizer, gradients on.
        Forward = "forward",
        /// Inside `backward`.
        Backward = "backward",
        /// Inside an optimizer's `step`.
        Optimizer = "optimizer",
        /// Gradients off, outside of backward and optimizer.
        Evaluation = "eval",
    }
}

impl PhaseKind {
    /// `trained`: a backward or an optimizer has been seen, so that "neither" means forward.
    pub fn of(p: Phase, trained: bool) -> PhaseKind {
        match p {
            Phase { optimizer: true, .. } => PhaseKind::Optimizer,
            Phase { backward: true, .. } => PhaseKind::Backward,
            Phase { no_grad: true, .. } if trained => PhaseKind::Evaluation,
            _ if trained => PhaseKind::Forward,
            _ => PhaseKind::Unknown,
        }
    }
}

named! {
    /// How much of the process the recording shows.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Coverage {
        /// No memory event at all.
        #[default]
        None = "none",
        /// Segments or runtime calls, but no block of a caching allocator.
        Segments = "segments",
        /// Blocks of the caching allocator.
        Blocks = "blocks",
    }
}

/// Something a recording of a real process cannot contain, with the first example in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistency {
    /// What kind of thing, as a short stable phrase.
    pub what: &'static str,
    /// How often.
    pub count: u64,
    /// The first one: where and when.
    pub first: String,
}
