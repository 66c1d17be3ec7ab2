//! The first line of every report: one word and its reason.

use super::detector::Detector;
use super::explain::{number, plural, size};
use super::finding::Finding;
use super::growth::MIN_MARKS;
use super::oom::post_mortem;
use super::opaque_pool;
use super::severity::{Severity, WARNING_REACH, WARNING_STEPS};
use crate::event::DeviceId;
use crate::replay::{Coverage, OomEvent, Replay};

/// The word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A leak that fills the device in a run of ordinary length.
    Leak,
    /// Growth that would, but has not stood the test of time yet.
    Warning,
    /// An allocation failed, and no leak is the cause.
    Oom,
    /// Nothing leaks, and enough was seen to say so.
    Clean,
    /// Not enough was seen.
    Unknown,
}

impl Outcome {
    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Leak => "leak",
            Outcome::Warning => "warning",
            Outcome::Oom => "oom",
            Outcome::Clean => "clean",
            Outcome::Unknown => "unknown",
        }
    }

    /// Of several processes the one with the most of it is what their job is called after. Blind is not clean: one that was not
    /// judged outweighs a clean one; but for one that had nothing to be judged (`is_idle`).
    pub fn gravity(self, is_idle: bool) -> u8 {
        match self {
            Outcome::Leak => 5,
            Outcome::Oom => 4,
            Outcome::Warning => 3,
            Outcome::Unknown if is_idle => 0,
            Outcome::Unknown => 2,
            Outcome::Clean => 1,
        }
    }
}

/// The word and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The word.
    pub outcome: Outcome,
    /// Why, as a clause.
    pub reason: String,
}

impl Verdict {
    fn new(outcome: Outcome, reason: impl Into<String>) -> Verdict {
        Verdict { outcome, reason: reason.into() }
    }
}

/// The verdict on one process, as of its last step. Call [`Detector::at_step`] before, at the end of a
/// recording also [`Replay::finish`]. Losses that only a reader sees (damaged pages) are the caller's to add:
/// a `Clean` is `Unknown` then.
pub fn judge(replay: &Replay, detector: &Detector) -> Verdict {
    let standing =
        || detector.findings().iter().filter(|f| f.withdrawn_step.is_none() && f.severity > Severity::Info);
    let leaks = || standing().filter(|f| f.kind.is_leak());
    if let Some(f) = leaks().find(|f| f.established || f.severity == Severity::Alert) {
        return Verdict::new(Outcome::Leak, sum(f));
    }
    if let Some((device, o)) = final_oom(replay) {
        // Growth too brief to be judged, without which there had been room.
        let free = o.free.map_or(0, |f| f.0);
        let enough = |f: &&Finding| free.saturating_add(f.bytes_now) >= o.requested.0;
        let brief =
            detector.findings().iter().filter(|f| f.is_active_leak() && f.device == device).find(enough);
        if let Some(f) = brief {
            return Verdict::new(
                Outcome::Warning,
                format!(
                    "{}, and without it there had been room in {} {}",
                    sum(f),
                    replay.step_source().noun(),
                    number(o.step.into())
                ),
            );
        }
        let why = post_mortem(replay, device);
        return Verdict::new(
            Outcome::Oom,
            why.map_or_else(String::new, |m| format!("{}: {}", m.short, m.explain)),
        );
    }
    if let Some(f) = standing().find(|f| !f.kind.is_leak()) {
        return Verdict::new(Outcome::Warning, f.explain.clone());
    }
    if let Some(f) = leaks().next() {
        return Verdict::new(
            Outcome::Warning,
            format!("{}, seen for too few {}s yet", sum(f), f.grain.noun()),
        );
    }
    match blind(replay).or_else(|| early(replay, detector)) {
        Some(why) => Verdict::new(Outcome::Unknown, why),
        None => Verdict::new(
            Outcome::Clean,
            slow(detector).map_or_else(
                || format!("no line left more and more memory behind in {}", watched(replay)),
                |slow| format!("in {} {slow}", watched(replay)),
            ),
        ),
    }
}

/// Growth that a note tells of: the first line must not deny it.
fn slow(detector: &Detector) -> Option<String> {
    let active = detector.findings().iter().filter(|f| f.is_active_leak());
    let f = active.max_by(|a, b| a.bytes_per_step.total_cmp(&b.bytes_per_step))?;
    let rate = size(f.bytes_per_step.max(0.0) as u64);
    Some(match f.steps_to_oom {
        Some(s) => format!(
            "nothing grew fast enough to matter: the most, {rate} every {}, would fill the device in about {} {0}s",
            f.grain.noun(),
            number(s.mid)
        ),
        None => format!("nothing grew fast enough to matter: the most was {rate} every {}", f.grain.noun()),
    })
}

/// Growth that would fill the device soon if it went on, seen for too short a time to say that it does.
fn early(replay: &Replay, detector: &Detector) -> Option<String> {
    let f = detector.findings().iter().find(|f| {
        let seen = u64::from(replay.steps().saturating_sub(f.first_step));
        let within = if f.established { WARNING_STEPS } else { WARNING_STEPS.min(WARNING_REACH * seen) };
        f.is_active_leak() && f.steps_to_oom.is_some_and(|s| s.mid <= within)
    })?;
    let full = number(f.steps_to_oom?.mid);
    Some(format!(
        "too early to tell: {}; if that goes on the device is full in about {full} {}s",
        sum(f),
        f.grain.noun()
    ))
}

/// For how long the job was watched, in the grain that was judged.
fn watched(replay: &Replay) -> String {
    let (steps, micro) = (u64::from(replay.steps()), u64::from(replay.microbatches()));
    let word = replay.step_source().noun();
    if replay.steps() >= MIN_MARKS {
        plural(steps, word)
    } else {
        let micro =
            if micro == 1 { "1 microbatch".to_string() } else { format!("{} microbatches", number(micro)) };
        format!("{micro} of {}", plural(steps, word))
    }
}

fn sum(f: &Finding) -> String {
    format!("{}: {} more every {}", f.kind.name(), size(f.bytes_per_step.max(0.0) as u64), f.grain.noun())
}

/// An out-of-memory that the job did not live on from: at most one more step ended. What CUDA refused is one only where it
/// is known that the process ended of it.
fn final_oom(replay: &Replay) -> Option<(DeviceId, &OomEvent)> {
    replay
        .devices()
        .filter_map(|d| Some((d.id, d.ooms.last()?)))
        .find(|(_, o)| o.call.is_some() || o.step.saturating_add(1) > replay.steps())
}

/// Why "clean" cannot be said.
fn blind(replay: &Replay) -> Option<String> {
    let drift = replay.accounting_drift().0;
    let impossible: u64 = replay.inconsistencies().iter().map(|i| i.count).sum();
    let marks = replay.steps().max(replay.microbatches());
    if let Some(why) = opaque_pool::blinds(replay) {
        Some(why)
    } else if replay.coverage() == Coverage::None {
        Some("nothing that was done with GPU memory was seen".to_owned())
    } else if replay.coverage() != Coverage::Blocks {
        Some(format!("the recording shows {}, not blocks of PyTorch's allocator", replay.coverage().name()))
    } else if replay.lost() > 0 {
        Some(format!("{} were lost", plural(replay.lost(), "record")))
    } else if drift > 0 {
        Some(format!("own totals differ from PyTorch's by up to {}", size(drift)))
    } else if impossible > 0 {
        let first = &replay.inconsistencies()[0];
        Some(format!("the recording contradicts itself: {} ({})", first.what, first.first))
    } else if marks < MIN_MARKS {
        Some(format!(
            "{} ended, and {MIN_MARKS} are needed",
            plural(u64::from(marks), replay.step_source().noun())
        ))
    } else {
        None
    }
}
