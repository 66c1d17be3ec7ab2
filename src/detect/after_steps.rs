//! What a job does after its last step: it serves, or evaluates. No step ends there, so that nothing of it is judged.

use crate::event::{Bytes, DeviceId, Nanos};
use crate::replay::{Device, Replay};

/// Nanoseconds after the last step, and times the mean step, from which on it is no part of the next step.
const LEAST: u64 = 10_000_000_000;
const STEPS: u64 = 20;

/// When the training last did something. A step that has ended is over with the next allocation of its thread, but perhaps only another one allocates.
fn end(replay: &Replay) -> Nanos {
    let trained = replay.trained_until();
    if trained.0 == 0 { replay.last_step_time() } else { trained.min(replay.last_step_time()) }
}

/// For how many seconds a job went on without a step until a moment, where that is longer than any step of it would have been.
pub(super) fn seconds_without(replay: &Replay, until: Nanos) -> Option<u64> {
    let last = end(replay);
    let has_steps = replay.step_source().is_training() && replay.steps() > 0;
    let since = until.0.saturating_sub(last.0);
    let is_long = since >= LEAST.max(of_many_steps(replay, last));
    (has_steps && is_long).then_some(since / 1_000_000_000)
}

/// Nanoseconds that so many mean steps take, of a job that trained until `last`.
fn of_many_steps(replay: &Replay, last: Nanos) -> u64 {
    // Before the first step ends a job begins: that tells nothing of a step.
    let first = replay.devices().filter_map(|d| d.rows.first()).map(|r| r.time.0).min().unwrap_or(last.0);
    let steps = u64::from(replay.steps()).saturating_sub(1).max(1);
    (last.0.saturating_sub(first) / steps).saturating_mul(STEPS)
}

/// When the last training step ended, of a job that has done something else since, for longer than it trained, and had more allocated then than in
/// any step.
pub fn after_training(replay: &Replay) -> Option<Nanos> {
    let last = end(replay);
    let has_trained = replay.step_source().is_training() && replay.steps() > 0;
    let is_longer = replay.time().0.saturating_sub(last.0) > last.0;
    (has_trained && is_longer && replay.devices().any(|d| is_after_steps(d, replay))).then_some(last)
}

/// Whether a device had clearly more allocated after the last step than in any.
fn is_after_steps(d: &Device, replay: &Replay) -> bool {
    let (last, until) = (end(replay), replay.time());
    // The last step may have lasted for most of that time, and much longer than a step.
    let many = of_many_steps(replay, last);
    let is_of_steps = |time: Nanos| time.0.saturating_sub(last.0) <= many.max(until.0.saturating_sub(time.0));
    let in_steps = d.rows.iter().filter(|r| is_of_steps(r.time));
    let most = in_steps.clone().map(|r| r.peak.0).max();
    let has_long_last_step = d.rows.last().is_some_and(|r| !is_of_steps(r.time));
    d.peak_allocated.step > replay.steps().saturating_sub(has_long_last_step.into())
        && most.is_some_and(|most| d.peak_allocated.bytes.0 > most / 20 * 21)
}

/// The seconds after the last step, and the most that was allocated on a device then, where that is more than in any step. In a job that has
/// ended one second is no part of a step either.
pub(super) fn most_after_steps(replay: &Replay) -> Option<(u64, DeviceId, Bytes)> {
    let since = replay.time().0.saturating_sub(end(replay).0) / 1_000_000_000;
    let is_over = replay.step_source().is_training() && replay.steps() > 0 && replay.ended().is_some();
    let ended = (is_over && since > 0).then_some(since);
    let seconds = ended.or_else(|| seconds_without(replay, replay.time()))?;
    let all = replay.devices().filter(|d| is_after_steps(d, replay));
    all.map(|d| (seconds, d.id, d.peak_allocated.bytes)).max_by_key(|(_, _, bytes)| *bytes)
}
