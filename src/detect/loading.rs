//! What fills a device before the first step: a model, or data. It only ever becomes more, as a leak does, and is none.

use crate::event::DeviceId;
use crate::event::steps::StepSource;
use crate::replay::{OomEvent, PhaseKind, Replay};

/// Of so many blocks that were allocated, one may have been freed.
const FREED: u64 = 4;

/// Whether a job that has seen no step, backward or optimizer ran out of memory at the line that had filled the device, and had freed
/// next to nothing there. One that computes frees most of what it allocates, and a model's first forward calls its modules.
pub(super) fn is_loading(replay: &Replay, device: DeviceId, o: &OomEvent) -> bool {
    let has_steps = !matches!(replay.step_source(), StepSource::None | StepSource::Time);
    if has_steps || o.phase != PhaseKind::Unknown || o.call.is_some() || o.in_module {
        return false;
    }
    let scene = replay.device(device).and_then(|d| d.scene.as_ref()).filter(|s| s.event == o.event);
    let holders = scene.map_or(&[][..], |s| &s.holders);
    let live: u64 = holders.iter().map(|h| h.blocks).sum();
    let same: u64 = holders.iter().filter(|h| h.site == o.site).map(|h| h.bytes.0).sum();
    let is_of_it = same.saturating_mul(2) >= o.allocated.0;
    live > 0 && is_of_it && o.allocs.saturating_sub(live) <= o.allocs / FREED
}
