//! The call that first heard that a device's context is broken.

use super::progress::PhaseKind;
use super::state::Replay;
use crate::event::{Event, Fault, Nanos, SiteId, StreamId};

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

impl Replay {
    /// Only the first counts: from then on all calls fail.
    #[cold]
    pub(super) fn fails(&mut self, e: &Event, fault: Fault) {
        if self.failed.is_some() {
            return;
        }
        let stream = (fault.stream.0 != 0).then(|| self.streams.id(fault.device, fault.stream, e.time));
        self.failed = Some(Failed {
            fault,
            time: e.time,
            step: self.now.step,
            phase: self.phase(e.thread),
            stream,
            site: self.sites.of(fault.stack, false, super::site::UNKNOWN),
        });
    }
}
