//! What a snapshot leaves out, so that its file stays of a size that a browser can draw.

use rustc_hash::FxHashSet;

use super::layout::Block;
use crate::event::{Addr, Bytes, DeviceId, Names, Nanos, StackId, StreamHandle};

/// Blocks that are wanted; all of them by default. What is left out has no entry in the history and is free memory in the
/// final state.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only blocks of these streams.
    pub streams: Option<Vec<(DeviceId, StreamHandle)>>,
    /// Only blocks that were allocated from one of these stacks.
    pub stacks: Option<FxHashSet<StackId>>,
    /// Only blocks of which at least so much was asked for.
    pub min_size: Bytes,
    /// Only these blocks, by birth.
    pub born: Option<FxHashSet<(DeviceId, Addr, Nanos)>>,
}

impl Filter {
    /// The stacks with a frame that contains `pattern`, as `file:line function`.
    pub fn stacks_with(names: &Names, pattern: &str) -> FxHashSet<StackId> {
        let found = |id: &StackId| {
            names.frames(*id).any(|f| format!("{}:{} {}", f.file, f.line, f.function).contains(pattern))
        };
        names.stacks().filter(found).collect()
    }

    /// Nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.streams.is_none() && self.stacks.is_none() && self.min_size.0 == 0 && self.born.is_none()
    }

    pub(super) fn hides(&self, device: DeviceId, addr: u64, b: &Block) -> bool {
        !self.is_empty()
            && (b.requested < self.min_size.0
                || self.streams.as_ref().is_some_and(|s| !s.contains(&(device, b.stream)))
                || self.stacks.as_ref().is_some_and(|s| !s.contains(&b.stack))
                || self.born.as_ref().is_some_and(|s| !s.contains(&(device, Addr(addr), b.born))))
    }
}
