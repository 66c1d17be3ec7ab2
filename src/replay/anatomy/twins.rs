//! Which of the blocks that backward left and no step frees are gradients: those with a twin.
//!
//! A gradient is as large as its weight, and so is each state that Adam keeps of it (which tells where the
//! weight itself is a part of a larger block, or older than the recording). A library's workspace is not.

use crate::event::Bytes;
use rustc_hash::FxHashMap;

/// How many gradients of each size (as asked for) the weights and the optimizer's state allow.
#[derive(Debug, Default)]
pub(super) struct Twins {
    sizes: FxHashMap<u64, Count>,
    /// States of a weight, once it was asked for.
    each: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    weights: u64,
    states: u64,
    claimed: u64,
}

impl Twins {
    /// A weight lives.
    pub(super) fn weight(&mut self, size: Bytes) {
        self.sizes.entry(size.0).or_default().weights += 1;
    }

    /// A block of an optimizer's state lives.
    pub(super) fn state(&mut self, size: Bytes) {
        self.sizes.entry(size.0).or_default().states += 1;
    }

    /// A gradient that its step frees lives: its weight has one.
    pub(super) fn gradient(&mut self, size: Bytes) {
        self.sizes.entry(size.0).or_default().claimed += 1;
    }

    /// Whether a weight, or a state that is known to be one, has this size.
    pub(super) fn has(&self, size: Bytes) -> bool {
        self.sizes.get(&size.0).is_some_and(|c| c.weights + c.states > 0)
    }

    /// Whether a block of this size is the gradient of a weight that has none yet; the weight has one then.
    /// Shared weights are one block and have one gradient; frozen ones have no state, where there is any.
    pub(super) fn claim(&mut self, size: Bytes) -> bool {
        let each = *self.each.get_or_insert_with(|| states_each(&self.sizes));
        let Some(c) = self.sizes.get_mut(&size.0) else { return false };
        let trained = c.states.div_ceil(each);
        let free = c.claimed
            < match (c.weights, c.states) {
                (0, _) => trained,
                (weights, 0) => weights,
                (weights, _) => weights.min(trained),
            };
        c.claimed += u64::from(free);
        free
    }
}

/// How many states the optimizer keeps of a weight (Adam two), at least: by the sizes whose gradients are known, since their step
/// frees them. 1 where there are none.
fn states_each(sizes: &FxHashMap<u64, Count>) -> u64 {
    let known = sizes.values().filter(|c| c.claimed > 0 && c.states > 0);
    let (states, gradients) = known.fold((0, 0), |(s, g), c| (s + c.states, g + c.claimed));
    states.checked_div(gradients).map_or(1, |each: u64| each.max(1))
}
