//! What the files of the pluggable allocator share.

use super::driver::Status;
use cudarc::driver::sys::CUstream;
use strandline_core::event::HookId;

/// What the shared memory calls what is recorded here.
pub(super) const DOOR: HookId = HookId::of("pluggable");

/// What the door is to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// All memory comes through it: blocks are recorded.
    Whole,
    /// PyTorch's own allocator takes segments for one pool from it, and our tracker sees them there: nothing is recorded here.
    Silent,
    /// The same without our tracker: the segments of that pool are all that is seen.
    Region,
}

/// Why there is no memory.
#[derive(Debug)]
pub(super) enum Failure {
    /// The device, or the share of it that this process may use, is full. What the driver calls free, the device's size,
    /// what is handed out, and the share in bytes.
    Full { free: u64, total: u64, allocated: u64, limit: Option<u64> },
    /// The driver said so.
    Driver(Status),
    /// There is no driver, or it lacks this function.
    Absent(String),
    /// No such device.
    Device,
}

/// A stream's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(pub(super) CUstream);
// SAFETY: a handle may be used from any thread.
unsafe impl Send for Handle {}
