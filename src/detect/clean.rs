//! What is said where nothing leaks: how small a leak would have been seen, what grew nevertheless, and what was not judged.

use super::after_steps::most_after_steps;
use super::amounts::{plural, size, thousands};
use super::certainty::Certainty;
use super::finding::{Finding, GrainName};
use super::growth::{LEAST_RATE, MIN_MARKS};
use super::oom::rising;
use super::rise::Rise;
use crate::event::steps::StepSource;
use crate::replay::{Device, Grain, Replay};

/// Bytes by which memory must have risen to be worth a word.
const WORTH: u64 = 1 << 20;
/// Windows whose floors must all rise for memory at the ends of steps to be called so, and the rows that are looked at.
const WINDOWS: usize = 8;
const ROWS: usize = 1024;
/// One in so many bytes that were allocated when it began is a rise.
const PART: u64 = 16;

/// Why a process is clean. `detectable`: the bytes of a step above which growth would have been found.
pub(super) fn nothing_leaks(replay: &Replay, all: &[Finding], detectable: Option<f64>) -> String {
    let least = detectable.map_or_else(String::new, |bytes| {
        let per = GrainName::of(replay, Grain::Step).per();
        let less =
            if bytes > LEAST_RATE { "; less could hide among blocks that are too new to judge" } else { "" };
        format!(" (steady growth above {} {per} would have been found{less})", size(bytes as u64))
    });
    let (peaks, has_grown) = (higher_peaks(replay), all.iter().any(stopped));
    let is_told = has_grown || !peaks.is_empty() || all.iter().any(|f| f.is_suppressed() || is_bounded(f));
    let ends = if is_told { String::new() } else { higher_ends(replay) };
    format!(
        "{} kept more and more GPU memory in {}{least}{}{peaks}{ends}",
        no_line(replay, all),
        watched(replay),
        not_judged(replay)
    )
}

/// What has a limit, as far as is known.
pub(super) fn is_bounded(f: &Finding) -> bool {
    f.certainty == Certainty::Bounded && f.withdrawn_step.is_none()
}

/// Growth that was found, and is no more.
fn stopped(f: &Finding) -> bool {
    f.kind.is_leak() && f.withdrawn_step.is_some()
}

/// `no line of code`, but for what other parts of the report tell of.
fn no_line(replay: &Replay, all: &[Finding]) -> String {
    let has_bounded = all.iter().any(is_bounded);
    let other = if has_bounded { "no other line of code" } else { "no line of code" };
    if let Some(f) = all.iter().find(|f| is_bounded(f) && f.room_below_bound(replay).is_some()) {
        let device = f.device.0;
        return format!(
            "but a buffer is still filling, and its limit is larger than the memory of GPU {device} (see its note); {other}"
        );
    }
    if has_bounded {
        return format!("the growth that was found is in a buffer with a limit (see its note); {other}");
    }
    let is_small = |f: &Finding| f.is_small() && f.withdrawn_step.is_none();
    let ended: Vec<&Finding> = all.iter().filter(|f| stopped(f)).collect();
    if let [f] = &ended[..]
        && f.sites.len() == 1
    {
        let (noun, step) = (f.grain.noun(), f.withdrawn_step.unwrap_or(0));
        return format!(
            "the memory that one line allocated had stopped growing by {noun} {}; no other line of code",
            thousands(step.into())
        );
    }
    let said = if !ended.is_empty() {
        "the growth that was found has stopped; no other line of code"
    } else if all.iter().any(Finding::is_suppressed) {
        "apart from suppressed findings, no line of code"
    } else if all.iter().any(is_small) {
        "apart from the small growth in the notes, no line of code"
    } else {
        other
    };
    said.to_owned()
}

/// For how long the job was watched, in the grain that was judged.
pub(super) fn watched(replay: &Replay) -> String {
    let (steps, micro) = (u64::from(replay.steps()), u64::from(replay.microbatches()));
    let word = replay.step_source().noun();
    if replay.steps() >= MIN_MARKS || micro <= steps {
        plural(steps, word)
    } else {
        format!("{} of {}", plural(micro, "microbatch"), plural(steps, word))
    }
}

/// A long end of the job that belongs to no step, where it had the most allocated.
fn not_judged(replay: &Replay) -> String {
    most_after_steps(replay).map_or_else(String::new, |(seconds, device, bytes)| {
        format!(
            ". The time after the last step ({}) was not judged, although GPU {} reached its peak then ({} allocated)",
            plural(seconds, "second"),
            device.0,
            size(bytes.0)
        )
    })
}

/// The devices whose steps can be compared: not those of a clock.
fn in_steps(replay: &Replay) -> impl Iterator<Item = &Device> {
    let is_timed = replay.step_source() == StepSource::Time;
    replay.devices().filter(move |_| !is_timed)
}

/// The last steps needed more and more.
fn higher_peaks(replay: &Replay) -> String {
    let peaks = in_steps(replay).find_map(|d| rising(d).map(|r| (d.id, r)));
    let peaks = peaks.filter(|(_, (first, last, _))| last - first >= WORTH);
    peaks.map_or_else(String::new, |(device, (first, last, steps))| {
        format!(
            ". But the last {} needed more and more memory on GPU {}: {} in the first of these steps, {} in the last one",
            plural(steps as u64, "step"),
            device.0,
            size(first),
            size(last)
        )
    })
}

/// What is allocated at the ends of steps rose in one window after the other.
fn higher_ends(replay: &Replay) -> String {
    let rise = in_steps(replay).find_map(|d| Some((d.id, all_that_rises(d)?)));
    rise.map_or_else(String::new, |(device, r)| {
        format!(
            ". But the memory allocated at the end of each step rose on GPU {}, from {} in step {} to {} in step {}, although no single line grows like a leak",
            device.0,
            size(r.floors[0]),
            thousands(r.steps[0].into()),
            size(r.floors[1]),
            thousands(r.steps[1].into())
        )
    })
}

/// How what is allocated at the ends of steps rises, where it does so in one window after the other.
fn all_that_rises(d: &Device) -> Option<Rise> {
    let rows = d.rows.get(d.rows.len().saturating_sub(ROWS)..)?;
    let rise = Rise::of(rows, WINDOWS, 1, |r| r.allocated.0)?;
    (rise.total() >= WORTH.max(rise.floors[0] / PART)).then_some(rise)
}
