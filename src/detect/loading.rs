//! What fills a device before the first step: a model, or data. It only ever becomes more, as a leak does, and is none.

use crate::event::{DeviceId, total};
use crate::replay::{Holder, OomEvent, PhaseKind, Replay};

/// Of so many blocks that were allocated, one may have been freed.
const FREED: u64 = 4;

/// Whether a job that has seen no step, backward or optimizer had freed next to nothing on a device when an allocation failed there:
/// what it had allocated by then it needs for all steps, and is no growth of them. One that computes frees most of what it allocates.
pub(super) fn has_only_filled(replay: &Replay, device: DeviceId, o: &OomEvent) -> bool {
    if has_steps(replay) || o.phase != PhaseKind::Unknown || o.call.is_some() {
        return false;
    }
    let live = total(holders(replay, device, o).iter().map(|h| h.blocks));
    live > 0 && o.allocs.saturating_sub(live) <= o.allocs / FREED
}

/// Whether a job that runs may still be loading what it needs for all steps: it has seen none, and freed next to nothing on a device.
pub fn may_be_loading(replay: &Replay, device: DeviceId) -> bool {
    let on = || replay.cohorts().iter().filter(|c| c.key.device == device);
    !has_steps(replay) && total(on().map(|c| c.frees)) <= total(on().map(|c| c.allocs)) / FREED
}

fn has_steps(replay: &Replay) -> bool {
    replay.step_source().is_training()
}

/// Whether it was still loading: it asked at the line that had filled the device, and not within a call of a module, as in a forward.
pub(super) fn is_loading(replay: &Replay, device: DeviceId, o: &OomEvent) -> bool {
    let all = holders(replay, device, o);
    let same = total(all.iter().filter(|h| h.site == o.site).map(|h| h.bytes.0));
    !o.in_module && same.saturating_mul(2) >= o.allocated.0 && has_only_filled(replay, device, o)
}

/// What was live at a failure, where that was copied.
fn holders<'r>(replay: &'r Replay, device: DeviceId, o: &OomEvent) -> &'r [Holder] {
    let scene = replay.device(device).and_then(|d| d.scene.as_ref()).filter(|s| s.event == o.event);
    scene.map_or(&[], |s| &s.holders)
}
