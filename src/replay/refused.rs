//! An allocation that was refused, before it is known what came of it.

use super::device::OomEvent;
use super::scene::Scene;
use crate::event::{Bytes, DeviceId, RuntimeOp, StackId, StreamHandle, ThreadId};

/// A refusal of which it is not known what came.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) failure: OomEvent,
    pub(super) thread: ThreadId,
    pub(super) device: usize,
    pub(super) scene: Option<Scene>,
    /// Other threads were given memory since.
    pub(super) others: bool,
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) device: DeviceId,
    pub(super) requested: Bytes,
    pub(super) free: Option<Bytes>,
    pub(super) stream: StreamHandle,
    pub(super) stack: StackId,
    pub(super) call: Option<RuntimeOp>,
}
