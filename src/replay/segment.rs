//! A segment comes from the driver, or goes back to it.

use super::device::Peak;
use super::progress::{Coverage, PhaseKind};
use super::state::Replay;
use crate::event::{Event, OpenSegment, SegmentOp};

impl Replay {
    /// What an event says of one.
    pub(super) fn segment(&mut self, op: SegmentOp, s: OpenSegment, e: &Event) {
        self.coverage = self.coverage.max(Coverage::Segments);
        let d = self.touch(s.device);
        let dev = &mut self.devices[d];
        let ok = match op {
            SegmentOp::Alloc | SegmentOp::Map => {
                dev.takes(s.size, self.coverage == Coverage::Blocks);
                dev.private_pools.grows(&s, self.now.step);
                dev.segments.put(s)
            }
            SegmentOp::Free | SegmentOp::Unmap => {
                dev.step_given_back = dev.step_given_back.saturating_add(s.size.0);
                dev.reserved.0 = dev.reserved.0.saturating_sub(s.size.0);
                dev.private_pools.shrinks(&s);
                let found = match op {
                    SegmentOp::Free => dev.segments.take(s.addr).map_or(0, |found| found.size.0),
                    _ => dev.segments.unmap(s.addr, s.size),
                };
                found == s.size.0 || dev.segment_outside(s.size.0.saturating_sub(found))
            }
        };
        let grown = dev.reserved > dev.peak_reserved.bytes;
        if grown {
            let phase = self.threads.get(e.thread.0 as usize).map_or(PhaseKind::Unknown, |t| t.phase);
            let (bytes, time) = (dev.reserved, e.time);
            dev.peak_reserved = Peak { bytes, time, step: self.now.step, phase, event: self.events };
        }
        // Before a loss there were segments that we know only as a sum.
        if !ok && self.gaps == 0 && dev.compared > 0 {
            let (addr, size) = (s.addr.0, s.size.0);
            self.inconsistent("a segment came or went twice", || {
                format!("{op:?} of {size} bytes at {addr:#x} on device {d}")
            });
        }
    }
}
