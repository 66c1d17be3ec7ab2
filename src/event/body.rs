//! An event: when, on which thread, what.

use super::{
    Addr, Block, Bytes, DeviceId, EventHandle, Fault, Nanos, PoolId, SegmentOp, StackId, StreamHandle,
    ThreadId, named,
};

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When, on the recording's clock.
    pub time: Nanos,
    /// Which thread caused it.
    pub thread: ThreadId,
    /// What.
    pub body: Body,
}

/// What happened. Grouped by the layer that saw it: allocator, streams, steps, runtime, the recording itself.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Body {
    /// The allocator handed out a block.
    Alloc(Block),
    /// The owner gave the block back. It is reusable at the completion, which may come much later.
    FreeRequested(Block),
    /// The block is reusable. `totals` only where it was reported with the request.
    FreeCompleted(Block),
    /// The allocator obtained or returned memory of the device.
    Segment {
        /// What happened.
        op: SegmentOp,
        /// On which device.
        device: DeviceId,
        /// Where.
        addr: Addr,
        /// How much.
        size: Bytes,
        /// The stream whose pool it serves.
        stream: StreamHandle,
        /// The pool it belongs to.
        pool: PoolId,
    },
    /// The report of an event that was recorded on the overflow ring: rounded size and totals come on their own.
    Report {
        /// On which device.
        device: DeviceId,
        /// The block.
        addr: Addr,
        /// Its rounded size.
        rounded: Bytes,
        /// It was handed out (else: given back).
        allocated: bool,
        /// torch's totals.
        totals: super::Totals,
    },
    /// An allocation failed for good (torch raises after this).
    Oom {
        /// On which device.
        device: DeviceId,
        /// The rounded size that was asked for.
        requested: Bytes,
        /// What `cudaMemGetInfo` called free then.
        free: Bytes,
        /// The stream that asked.
        stream: StreamHandle,
        /// Who asked.
        stack: StackId,
    },
    /// torch's own snapshot was taken. Recorded for one-for-one comparison with torch's history.
    Snapshot {
        /// Sum of active bytes that torch wrote into it.
        active: Bytes,
    },

    /// This thread's current stream on `device` changed: it left the scope of `from` and entered that of `to`.
    Scope {
        /// On which device.
        device: DeviceId,
        /// The stream that was current.
        from: StreamHandle,
        /// The stream that is current now.
        to: StreamHandle,
    },
    /// A stream came to be.
    StreamCreate {
        /// On which device (the current one of the caller).
        device: DeviceId,
        /// The new handle.
        stream: StreamHandle,
    },
    /// A stream was destroyed; the handle may be reused.
    StreamDestroy(StreamHandle),
    /// An event was recorded on a stream: it completes when all work queued there before has.
    EventRecord {
        /// The event.
        event: EventHandle,
        /// The stream it was recorded on.
        stream: StreamHandle,
    },
    /// The event was destroyed; the handle may be reused.
    EventDestroy(EventHandle),
    /// Work queued on `stream` from now on waits for `event`.
    StreamWait {
        /// The waiting stream.
        stream: StreamHandle,
        /// What it waits for.
        event: EventHandle,
    },
    /// The host learnt that everything queued on the stream is done (synchronize, or a query that said so).
    StreamDone(StreamHandle),
    /// The host learnt that the event has completed (synchronize, or a query that said so).
    EventDone(EventHandle),
    /// The host learnt that everything on the device is done.
    DeviceDone(DeviceId),
    /// A freed block waits for `stream`: an event was recorded for it between its request and its report.
    FreeWaits {
        /// On which device.
        device: DeviceId,
        /// The block.
        addr: Addr,
        /// The stream it waits for.
        stream: StreamHandle,
    },
    /// `Tensor.record_stream`: the block at (or around) `addr` is used on `stream`.
    RecordStream {
        /// The tensor's data pointer.
        addr: Addr,
        /// The stream that uses it.
        stream: StreamHandle,
    },
    /// Capture began on the stream.
    CaptureBegin(StreamHandle),
    /// Capture ended on the stream.
    CaptureEnd(StreamHandle),

    /// An optimizer's `step` begins. The number tells optimizers apart within the process.
    OptimizerBegin(u64),
    /// An optimizer's `step` has ended.
    OptimizerEnd(u64),
    /// `Engine::execute` was entered, from this stack. `nested`: on an autograd worker thread, or within another backward.
    BackwardBegin {
        /// Who called backward.
        stack: StackId,
        /// Within another backward (reentrant checkpointing).
        nested: bool,
    },
    /// `Engine::execute` was left (also by an exception).
    BackwardEnd {
        /// Within another backward.
        nested: bool,
    },
    /// A gradient scaler updated its scale: a step is over even where the optimizer was skipped.
    ScalerUpdate,
    /// `strandline_step(n)`: the user's step n has ended.
    ManualStep(u64),
    /// `strandline_phase` or `strandline_mark` with the name's number in the recording's string table.
    Mark {
        /// The number under which an [`super::Item::Name`] gave the text.
        name: u32,
        /// `true`: a phase begins; `false`: a mark.
        phase: bool,
    },

    /// Memory went through the CUDA runtime, whoever called it.
    Runtime {
        /// What was called.
        op: RuntimeOp,
        /// The current device of the caller.
        device: DeviceId,
        /// What it returned or was given; 0: a `cudaMalloc` that was refused for want of memory.
        addr: Addr,
        /// How much; 0 for a free.
        size: Bytes,
        /// The stream of a stream-ordered call.
        stream: StreamHandle,
        /// Who called, of an allocation: Python frames, and one native frame that tells the library.
        stack: StackId,
    },
    /// The program itself asked the driver (`cudaMemGetInfo`), and this is what it was told.
    MemInfo {
        /// On which device.
        device: DeviceId,
        /// Free bytes.
        free: Bytes,
        /// Total bytes.
        total: Bytes,
    },

    /// A call failed in a way that lasts: the device's context is broken. The first one of the process alone.
    Failed(Fault),

    /// Events of this thread were lost here (its ring was full). Blocks open across this are unverified.
    Gap {
        /// How many records.
        lost: u64,
    },
}

named! {
    /// A call of the CUDA runtime that changes how much memory is in use. Its number is written into recordings: new ones go to the end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum RuntimeOp {
        /// `cudaMalloc`.
        Malloc = "cudaMalloc",
        /// `cudaFree`.
        Free = "cudaFree",
        /// `cudaMallocAsync`, `cudaMallocFromPoolAsync`.
        MallocAsync = "cudaMallocAsync",
        /// `cudaFreeAsync`.
        FreeAsync = "cudaFreeAsync",
        /// `cudaHostAlloc`, `cudaMallocHost`.
        HostAlloc = "cudaHostAlloc",
        /// `cudaFreeHost`.
        HostFree = "cudaFreeHost",
        /// `cudaMallocManaged`.
        MallocManaged = "cudaMallocManaged",
    }
}

impl RuntimeOp {
    /// The number that stands for it in a recording.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The one with this number, if this version knows it.
    pub fn from_number(n: u32) -> Option<RuntimeOp> {
        RuntimeOp::ALL.into_iter().find(|op| op.number() == n)
    }
}

impl Body {
    /// What happened, as dumps and tables call it: such as `alloc`, `free_requested`, `cudaMalloc`.
    pub fn name(&self) -> &'static str {
        match self {
            Body::Alloc(_) => "alloc",
            Body::FreeRequested(_) => "free_requested",
            Body::FreeCompleted(_) => "free_completed",
            Body::Segment { op: SegmentOp::Alloc, .. } => "segment_alloc",
            Body::Segment { op: SegmentOp::Free, .. } => "segment_free",
            Body::Segment { op: SegmentOp::Map, .. } => "segment_map",
            Body::Segment { op: SegmentOp::Unmap, .. } => "segment_unmap",
            Body::Report { .. } => "report",
            Body::Oom { .. } => "oom",
            Body::Snapshot { .. } => "snapshot",
            Body::Runtime { op, .. } => op.name(),
            Body::MemInfo { .. } => "mem_info",
            Body::Failed(_) => "failed",
            Body::Gap { .. } => "gap",
            Body::Scope { .. } => "scope",
            Body::StreamCreate { .. } => "stream_create",
            Body::StreamDestroy(_) => "stream_destroy",
            Body::EventRecord { .. } => "event_record",
            Body::EventDestroy(_) => "event_destroy",
            Body::StreamWait { .. } => "stream_wait",
            Body::StreamDone(_) => "stream_done",
            Body::EventDone(_) => "event_done",
            Body::DeviceDone(_) => "device_done",
            Body::FreeWaits { .. } => "free_waits",
            Body::RecordStream { .. } => "record_stream",
            Body::CaptureBegin(_) => "capture_begin",
            Body::CaptureEnd(_) => "capture_end",
            Body::OptimizerBegin(_) => "optimizer_begin",
            Body::OptimizerEnd(_) => "optimizer_end",
            Body::BackwardBegin { .. } => "backward_begin",
            Body::BackwardEnd { .. } => "backward_end",
            Body::ScalerUpdate => "scaler_update",
            Body::ManualStep(_) => "step",
            Body::Mark { phase: true, .. } => "phase",
            Body::Mark { phase: false, .. } => "mark",
        }
    }

    /// The device of an allocator event, which is what orders it against the others of that device.
    pub fn allocator_device(&self) -> Option<DeviceId> {
        match self {
            Body::Alloc(b) | Body::FreeRequested(b) | Body::FreeCompleted(b) => Some(b.device),
            Body::Segment { device, .. } | Body::Oom { device, .. } => Some(*device),
            _ => None,
        }
    }
}
