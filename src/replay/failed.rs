//! The call that first heard that a device's context is broken.

use super::progress::PhaseKind;
use crate::event::{Fault, Nanos, SiteId, StreamId};

/// It, and what the process was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The call.
    pub fault: Fault,
    /// When.
    pub time: Nanos,
    /// In which step (from 1).
    pub step: u32,
    /// What the thread was doing.
    pub phase: PhaseKind,
    /// The stream that the call was about, where it was about one.
    pub stream: Option<StreamId>,
    /// The line that called.
    pub site: SiteId,
}
