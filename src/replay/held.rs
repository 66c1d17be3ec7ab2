//! A block that is in use, and one that was freed a moment ago.

use super::cohort::{CohortId, GRACE, Origin, Size};
use crate::event::{Block, Nanos, SiteId, StreamId, ThreadId};

/// A block that is live or pending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// As its allocation described it. `rounded` is never 0 here for a block of any size: where no report
    /// came it is the requested size rounded up to 512.
    pub block: Block,
    /// When it was allocated.
    pub born: Nanos,
    /// The step it was allocated in (from 1).
    pub step: u32,
    /// The microbatch it was allocated in (from 1).
    pub microbatch: u32,
    /// Its free was requested, but is not complete.
    pub pending: bool,
    /// It was open across a loss: whether it is still there is not known.
    pub unverified: bool,
    /// Its stream.
    pub stream: StreamId,
    /// The line that allocated it.
    pub site: SiteId,
    /// Its cohort.
    pub cohort: CohortId,
    /// For a pending block: the stream it waits for, where that was seen.
    pub waits_for: Option<StreamId>,
    /// The thread that allocated it.
    pub thread: ThreadId,
}

impl Held {
    /// Whether it counts as left behind by earlier steps, if anything does, when step `step` has ended.
    pub fn is_old(&self, step: u32) -> bool {
        step.saturating_sub(self.step) >= GRACE
    }

    pub(super) fn rounded(&self) -> u64 {
        self.block.rounded.0
    }
    pub(super) fn size(&self) -> Size {
        Size { rounded: self.block.rounded.0, requested: self.block.size.0 }
    }
    pub(super) fn birth(&self) -> Origin {
        Origin { step: self.step, microbatch: self.microbatch, thread: self.thread }
    }
}

/// A free that no cohort knows of yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) cohort: CohortId,
    pub(super) size: Size,
    pub(super) birth: Origin,
    pub(super) collected: bool,
}
