//! One device: what is allocated, reserved, pending; peaks; one row per step.

use super::progress::PhaseKind;
use crate::event::{Bytes, DeviceId, DriverMemory, Nanos, StackId, StepRow, StreamId};

/// The moment at which a device held most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// How much.
    pub bytes: Bytes,
    /// When.
    pub time: Nanos,
    /// In which step (from 1: the one that ran).
    pub step: u32,
    /// Doing what.
    pub phase: PhaseKind,
    /// Number of the event (from 0, over all events of the recording) that reached it.
    pub event: u64,
}

/// An allocation that failed for good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OomEvent {
    /// When.
    pub time: Nanos,
    /// Number of the event (from 0).
    pub event: u64,
    /// In which step (the one that ran, from 1).
    pub step: u32,
    /// Doing what (from the last allocator event of the thread).
    pub phase: PhaseKind,
    /// What was asked for.
    pub requested: Bytes,
    /// What the driver called free.
    pub free: Bytes,
    /// Which stream asked.
    pub stream: StreamId,
    /// Who asked.
    pub stack: StackId,
    /// Allocated then.
    pub allocated: Bytes,
    /// Reserved then.
    pub reserved: Bytes,
    /// Pending then.
    pub pending: Bytes,
}

/// Freed blocks that wait for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingWait {
    /// The stream they wait for; `None` where it was not seen.
    pub stream: Option<StreamId>,
    /// How many.
    pub blocks: u64,
    /// Rounded sizes.
    pub bytes: Bytes,
}

/// How large the device is and what of it others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Total bytes as the driver counts them.
    pub total: Bytes,
    /// Total less free less what this process had reserved, when it was read: context, libraries, other processes.
    pub others: Bytes,
    /// Who said it: `driver` (a reading of the watcher), `program` (its own query), `oom` (the failing allocation).
    pub source: &'static str,
}

/// A device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// CUDA ordinal.
    pub id: DeviceId,
    /// Allocated now (rounded sizes, as torch's `allocated_bytes.all.current`).
    pub allocated: Bytes,
    /// Reserved now.
    pub reserved: Bytes,
    /// Freed, but not reusable yet.
    pub pending: Bytes,
    /// Live blocks now.
    pub blocks: u64,
    /// Allocated before the recording began and not freed since (known from torch's totals).
    pub before_recording: Bytes,
    /// Blocks that were open across a loss, and may be gone.
    pub unverified_blocks: u64,
    /// Their rounded sizes.
    pub unverified: Bytes,
    /// Largest difference ever between our own totals and torch's.
    pub accounting_drift: Bytes,
    /// Events at which torch's totals were known and compared.
    pub compared: u64,
    /// Highest `allocated`.
    pub peak_allocated: Peak,
    /// Highest `reserved`.
    pub peak_reserved: Peak,
    /// One row per step that has ended (thinned in recordings whose oldest pages were dropped).
    pub rows: Vec<StepRow>,
    /// Out of memory, in order.
    pub ooms: Vec<OomEvent>,
    /// Size of the device, where something told.
    pub capacity: Option<Capacity>,
    /// The last reading of the watcher.
    pub driver: Option<DriverMemory>,
    /// Highest `allocated` since the last step ended.
    pub(super) step_peak: u64,
}
