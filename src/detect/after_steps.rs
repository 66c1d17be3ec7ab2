//! What a job does after its last step: it serves, or evaluates. No step ends there, so that nothing of it is judged.

use crate::event::{Bytes, DeviceId, Nanos};
use crate::replay::Replay;

/// Nanoseconds after the last step, and times the mean step, from which on it is no part of the next step.
const LEAST: u64 = 10_000_000_000;
const STEPS: u64 = 20;

/// For how many seconds a job went on without a step until a moment, where that is longer than any step of it would have been.
pub(super) fn seconds_without(replay: &Replay, until: Nanos) -> Option<u64> {
    let (last, steps) = (replay.last_step_time().0, u64::from(replay.steps()));
    let has_steps = replay.step_source().is_training() && steps > 0;
    // Before the first step ends a job begins: that tells nothing of a step.
    let first = replay.devices().filter_map(|d| d.rows.first()).map(|r| r.time.0).min().unwrap_or(last);
    let mean = last.saturating_sub(first) / steps.saturating_sub(1).max(1);
    let since = until.0.saturating_sub(last);
    let is_long = since >= LEAST.max(mean.saturating_mul(STEPS));
    (has_steps && is_long).then_some(since / 1_000_000_000)
}

/// The seconds after the last step, and the most that was allocated on a device then, where that is more than in any step. In a job that has
/// ended one second is no part of a step either.
pub(super) fn most_after_steps(replay: &Replay) -> Option<(u64, DeviceId, Bytes)> {
    let since = replay.time().0.saturating_sub(replay.last_step_time().0) / 1_000_000_000;
    let is_over = replay.step_source().is_training() && replay.steps() > 0 && replay.ended().is_some();
    let ended = (is_over && since > 0).then_some(since);
    let seconds = ended.or_else(|| seconds_without(replay, replay.time()))?;
    let peak = |d: &crate::replay::Device| {
        let in_steps = d.rows.iter().map(|r| r.peak).max()?;
        let is_after =
            d.peak_allocated.step > replay.steps() && d.peak_allocated.bytes.0 > in_steps.0 / 20 * 21;
        is_after.then_some((seconds, d.id, d.peak_allocated.bytes))
    };
    replay.devices().filter_map(peak).max_by_key(|(_, _, bytes)| *bytes)
}
