//! What filled a device at one moment, in classes that sum to the driver's total.
//!
//! The class of a block follows from where it was born and how it died, so this is a second pass over the items, once
//! the moment is known: [`Pass::new`], [`Pass::apply`] for every item, [`Pass::finish`].

use super::{Held, Replay};
use crate::event::{Bytes, DeviceId, Item, Names, Nanos};

/// Which moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The peak of `allocated`.
    Peak,
    /// An allocation that failed.
    Oom,
    /// Any other event.
    Event,
}

/// The moment right after event number `event` (from 0) of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Device.
    pub device: DeviceId,
    /// Number of the event: see [`super::Peak::event`] and [`super::OomEvent::event`].
    pub event: u64,
    /// What the moment is.
    pub at: At,
}

/// The bytes of a device, by what they were used for. All but the last three sum to `reserved`; with the last three,
/// where the driver told, to the device's total.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Anatomy {
    /// When.
    pub time: Nanos,
    /// In which step (from 1).
    pub step: u32,
    /// Allocated before the first step outside of all phases, and never freed.
    pub weights: Bytes,
    /// Allocated in backward, freed by or around the optimizer.
    pub gradients: Bytes,
    /// Allocated in an optimizer and living on.
    pub optimizer: Bytes,
    /// Allocated in forward, freed in backward.
    pub activations: Bytes,
    /// Born and dead within one phase.
    pub temporaries: Bytes,
    /// Blocks that a finding calls left behind.
    pub left_behind: Bytes,
    /// Blocks of none of these classes, blocks from before the recording, unverified blocks.
    pub other: Bytes,
    /// Freed by the job, but not reusable yet.
    pub pending: Bytes,
    /// Reserved, neither allocated nor pending.
    pub cached: Bytes,
    /// Sum of the classes up to `other`.
    pub allocated: Bytes,
    /// `allocated` + `pending` + `cached`.
    pub reserved: Bytes,
    /// Context and libraries of this process; `None` where the driver was not asked.
    pub libraries: Option<Bytes>,
    /// Other processes; `None` where the driver does not tell.
    pub other_processes: Option<Bytes>,
    /// Free.
    pub free: Option<Bytes>,
}

/// The second pass.
#[derive(Debug)]
pub struct Pass {
    moment: Moment,
    replay: Replay,
}

impl Pass {
    /// A pass that will tell the anatomy of `moment`.
    pub fn new(moment: Moment) -> Pass {
        Pass { moment, replay: Replay::new() }
    }

    /// Takes the next item, the same ones in the same order as the first pass.
    pub fn apply(&mut self, item: &Item, names: &Names) {
        self.replay.apply(item, names);
    }

    /// The anatomy; `None` where the moment was not reached. `left_behind` says of a block (as it was at the moment) whether
    /// a leak finding counts it.
    pub fn finish(self, left_behind: &dyn Fn(&Replay, &Held) -> bool) -> Option<Anatomy> {
        let _ = (left_behind, self.moment);
        None
    }
}
