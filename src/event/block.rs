//! A block of the caching allocator, as one event describes it.

use super::{Addr, Bytes, DeviceId, PoolId, StackId, StreamHandle};

/// What the thread that caused an event was doing, as far as the shim can see it at that moment.
///
/// Raw facts, not judgement: the replay derives forward, evaluation and "unknown" from them and from what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Phase {
    /// Inside `torch::autograd::Engine::execute` on this thread, or on an autograd worker thread.
    pub backward: bool,
    /// Between an optimizer's pre-hook and its post-hook on this thread, but for the closure that it calls.
    pub optimizer: bool,
    /// Gradient mode was off or inference mode on; `false` where that could not be read.
    pub no_grad: bool,
    /// This thread is capturing a graph.
    pub capture: bool,
    /// Of frees: Python's collector was at work. `false` where it cannot be seen (other Pythons than CPython 3.11 to 3.14).
    ///
    /// Of allocations: a full collection has ended since the one before that says so; the first that says so says only that
    /// from here on this is seen.
    pub collector: bool,
}

impl Phase {
    /// The phase as one byte of a record.
    pub const fn to_bits(self) -> u8 {
        self.backward as u8
            | (self.optimizer as u8) << 1
            | (self.no_grad as u8) << 2
            | (self.capture as u8) << 3
            | (self.collector as u8) << 4
    }

    /// What the thread was doing, in words joined by `+`, such as `backward+no_grad`; empty in an ordinary forward.
    pub fn words(self) -> String {
        let all = [
            (self.backward, "backward"),
            (self.optimizer, "optimizer"),
            (self.no_grad, "no_grad"),
            (self.collector, "collector"),
            (self.capture, "capture"),
        ];
        all.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect::<Vec<_>>().join("+")
    }

    /// The phase a byte of a record stands for; unknown bits are ignored.
    #[inline]
    pub const fn from_bits(b: u8) -> Phase {
        Phase {
            backward: b & 1 != 0,
            optimizer: b & 2 != 0,
            no_grad: b & 4 != 0,
            capture: b & 8 != 0,
            collector: b & 16 != 0,
        }
    }
}

/// The allocator's own totals on a device right after an event, from `reportMemoryUsageToProfiler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Totals {
    /// Sum of rounded sizes of blocks that are allocated (torch's `allocated_bytes.all.current`).
    pub allocated: Bytes,
    /// Sum of segment sizes (torch's `reserved_bytes.all.current`).
    pub reserved: Bytes,
}

/// One allocator event about one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Block {
    /// The device it lies on.
    pub device: DeviceId,
    /// Its address.
    pub addr: Addr,
    /// The size that was asked for, in every event of the block.
    pub size: Bytes,
    /// The size it was rounded to; 0 where the report that tells it did not come.
    pub rounded: Bytes,
    /// The stream it was allocated on, also in the events of its free.
    pub stream: StreamHandle,
    /// The pool it was allocated from (PyTorch 2.8 and newer; the default pool before).
    pub pool: PoolId,
    /// The stack of the thread that caused the event; only allocations have one.
    pub stack: StackId,
    /// What that thread was doing.
    pub phase: Phase,
    /// torch's totals after the event; absent for a completion that came alone.
    pub totals: Option<Totals>,
}

/// What happened to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentOp {
    /// `cudaMalloc` of a segment.
    Alloc,
    /// `cudaFree` of a segment.
    Free,
    /// A range of an expandable segment was mapped.
    Map,
    /// A range of an expandable segment was unmapped.
    Unmap,
}
