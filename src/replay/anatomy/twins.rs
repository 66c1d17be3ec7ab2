//! Which of the blocks that backward left and no step frees are gradients: those with a twin.
//!
//! A gradient is as large as its weight, and so is each state that Adam keeps of it (which tells where the
//! weight itself is a part of a larger block, or older than the recording). A library's workspace is not.

use crate::event::Bytes;
use rustc_hash::FxHashMap;

/// How many gradients of each size (as asked for) the weights and the optimizer's state allow.
#[derive(Debug, Default)]
pub struct Twins {
    sizes: FxHashMap<u64, Count>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    weights: u64,
    states: u64,
    claimed: u64,
}

impl Twins {
    /// A weight lives.
    pub fn weight(&mut self, size: Bytes) {
        self.sizes.entry(size.0).or_default().weights += 1;
    }

    /// A block of an optimizer's state lives.
    pub fn state(&mut self, size: Bytes) {
        self.sizes.entry(size.0).or_default().states += 1;
    }

    /// A gradient that its step frees lives: its weight has one.
    pub fn gradient(&mut self, size: Bytes) {
        self.sizes.entry(size.0).or_default().claimed += 1;
    }

    /// Whether a weight, or a state that is known to be one, has this size.
    pub fn has(&self, size: Bytes) -> bool {
        self.sizes.get(&size.0).is_some_and(|c| c.weights + c.states > 0)
    }

    /// Whether a block of this size is the gradient of a weight that has none yet; the weight has one then.
    /// Shared weights are one block and have one gradient; frozen ones are never claimed.
    pub fn claim(&mut self, size: Bytes) -> bool {
        let Some(c) = self.sizes.get_mut(&size.0) else { return false };
        // Adam keeps two states of each weight: they only count where no weight is known.
        let free = c.claimed < if c.weights > 0 { c.weights } else { c.states };
        c.claimed += u64::from(free);
        free
    }
}
