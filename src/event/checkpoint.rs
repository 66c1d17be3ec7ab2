//! The state of a recorded process at one moment, complete enough to go on from.

use super::{Addr, Block, Body, Bytes, DeviceId, Nanos, PoolId, RuntimeOp, SegmentOp, StackId, StreamHandle};

/// State at a moment. Older pages may be dropped once a checkpoint follows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// When.
    pub time: Nanos,
    /// Steps that had ended.
    pub steps: u32,
    /// Microbatches that had ended.
    pub microbatches: u32,
    /// Events up to here, and how many of them were lost.
    pub events: u64,
    /// Records lost up to here.
    pub lost: u64,
    /// State of the step machine (opaque; see [`super::steps::StepMachine::save`]).
    pub step_machine: Vec<u8>,
    /// Blocks that were allocated, or requested free and not yet complete.
    pub blocks: Vec<LiveBlock>,
    /// Segments that were mapped.
    pub segments: Vec<OpenSegment>,
    /// Totals per device.
    pub devices: Vec<DeviceTotals>,
    /// Series per step and device, thinned to a bounded number of rows.
    pub rows: Vec<(DeviceId, StepRow)>,
    /// Streams in order of first appearance: their numbers must survive.
    pub streams: Vec<(DeviceId, StreamHandle)>,
    /// What CUDA had handed out beside blocks; `None` where the recording is too old to tell.
    pub calls: Option<Vec<HeldCall>>,
}

/// Memory that a call of CUDA's handed out, and that is no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldCall {
    /// The call.
    pub op: RuntimeOp,
    /// The current device of the caller.
    pub device: DeviceId,
    /// Where.
    pub addr: Addr,
    /// How much.
    pub size: Bytes,
    /// Who called.
    pub stack: StackId,
}

/// A block that is live or pending.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveBlock {
    /// As its allocation described it.
    pub block: Block,
    /// When it was allocated.
    pub born: Nanos,
    /// The step it was allocated in (steps count from 1).
    pub step: u32,
    /// The microbatch it was allocated in (from 1).
    pub microbatch: u32,
    /// Its free was requested but is not complete.
    pub pending: bool,
    /// It was open across a gap: whether it is still live is not known.
    pub unverified: bool,
}

/// A segment (or a mapped range of an expandable one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenSegment {
    /// Device.
    pub device: DeviceId,
    /// Start.
    pub addr: Addr,
    /// Length.
    pub size: Bytes,
    /// Stream whose pool it serves.
    pub stream: StreamHandle,
    /// Pool.
    pub pool: PoolId,
    /// Mapped range of an expandable segment.
    pub expandable: bool,
}

impl OpenSegment {
    /// What an event says of a segment, and what happened to it; `None` where it is about something else.
    pub fn of(body: &Body) -> Option<(SegmentOp, OpenSegment)> {
        let Body::Segment { op, device, addr, size, stream, pool } = *body else { return None };
        let expandable = matches!(op, SegmentOp::Map | SegmentOp::Unmap);
        Some((op, OpenSegment { device, addr, size, stream, pool, expandable }))
    }
}

/// Totals of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTotals {
    /// Device.
    pub device: DeviceId,
    /// Allocated now, as summed from events.
    pub allocated: Bytes,
    /// Reserved now, as summed from events.
    pub reserved: Bytes,
    /// Pending (freed, not reusable) now.
    pub pending: Bytes,
    /// Highest `allocated` so far and when.
    pub peak_allocated: Bytes,
    /// When that was.
    pub peak_time: Nanos,
    /// In which step that was.
    pub peak_step: u32,
    /// Highest `reserved` so far.
    pub peak_reserved: Bytes,
    /// Largest difference to torch's own totals so far.
    pub drift: Bytes,
}

/// One step on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRow {
    /// Which step (from 1).
    pub step: u32,
    /// When it ended.
    pub time: Nanos,
    /// Allocated at its end.
    pub allocated: Bytes,
    /// Reserved at its end.
    pub reserved: Bytes,
    /// Freed but not reusable at its end.
    pub pending: Bytes,
    /// Highest `allocated` within it.
    pub peak: Bytes,
    /// Live blocks at its end.
    pub blocks: u32,
}

/// Rows of the newest steps, which [`StepRow::thin`] leaves as they are.
const RECENT_ROWS: usize = 1024;

impl StepRow {
    /// Joins neighbours in pairs, but for the last [`RECENT_ROWS`]: of each pair the later one stays, with the higher peak. In place, so that
    /// rows which are thinned again and again take the same memory.
    pub fn thin(rows: &mut Vec<StepRow>) {
        let old = rows.len().saturating_sub(RECENT_ROWS);
        let mut joined = 0;
        for first in (0..old).step_by(2) {
            let last = (first + 1).min(old - 1);
            rows[joined] = StepRow { peak: rows[first].peak.max(rows[last].peak), ..rows[last] };
            joined += 1;
        }
        rows.drain(joined..old);
    }
}
