//! When a device will be full of what grows by so much with every step, and is no block of PyTorch's.

use super::certainty::{Certainty, Evidence};
use super::finding::Finding;
use super::forecast::{Headroom, Rate, interval, pace};
use super::severity::{Severity, Urgency};
use super::until_full::SecondsToOom;
use crate::replay::Replay;

/// A note as growth: by `note.bytes_per_step` since `note.first_step`, into `room`. It may end by itself, and is no alert.
pub(super) fn growing(replay: &Replay, note: Finding, room: &Headroom, evidence: Evidence) -> Finding {
    let (rate, seen) = (note.bytes_per_step, replay.steps().saturating_sub(note.first_step));
    let steady = Rate { bytes: rate, current: rate, highest: rate, ratio: 1.0, ..Rate::default() };
    let steps = interval(room, &steady, seen);
    let seconds = pace(replay).map(|pace| SecondsToOom::of(&steps, pace));
    let (certainty, is_known) = (Certainty::Growing, room.known);
    let urgency =
        Urgency { steps, seconds, seen: seen.into(), certainty, hasty: false, left: None, is_known };
    let severity = urgency.severity().min(Severity::Warning);
    let known = (is_known && steps.mid != u64::MAX).then_some(steps);
    Finding {
        certainty,
        evidence: vec![evidence],
        severity,
        urgency: severity,
        steps_to_oom: known,
        seconds_to_oom: known.and(seconds),
        ..note
    }
}
