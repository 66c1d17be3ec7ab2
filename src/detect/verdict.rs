//! The first line of every report: one word and its reason.

use super::after_steps::most_after_steps;
use super::certainty::Certainty;
use super::detector::Detector;
use super::explain::{plural, size, thousands};
use super::finding::Finding;
use super::framework_pool;
use super::growth::MIN_MARKS;
use super::oom::{final_oom, post_mortem, rising};
use super::rise::Rise;
use crate::event::named;
use crate::event::steps::StepSource;
use crate::replay::{Coverage, Device, Replay};

named! {
    /// The word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Outcome {
        /// Something is kept for good, and there is evidence that nothing bounds it.
        Leak = "leak",
        /// Something is kept and becomes more; it is not yet told from a buffer that fills.
        Growing = "growing",
        /// An allocation failed, and no leak is the cause.
        Oom = "oom",
        /// Nothing grows, and enough was seen to say so.
        Clean = "clean",
        /// Not enough was seen.
        Unknown = "unknown",
    }
}

impl Outcome {
    /// Of several processes the one with the most of it is what their job is called after. Blind is not clean: one that was not
    /// judged outweighs a clean one; but for one that had nothing to be judged (`is_idle`).
    pub fn gravity(self, is_idle: bool) -> u8 {
        match self {
            Outcome::Leak => 5,
            Outcome::Oom => 4,
            Outcome::Growing => 3,
            Outcome::Unknown if is_idle => 0,
            Outcome::Unknown => 2,
            Outcome::Clean => 1,
        }
    }
}

/// The word and its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The word.
    pub outcome: Outcome,
    /// Why, as a clause.
    pub reason: String,
    /// Which of the findings that were judged it is about, where it is about one.
    pub finding: Option<usize>,
    /// Of `Clean`: growth of more than so many bytes a step would have been seen.
    pub detectable: Option<f64>,
    /// Fewer steps ended than are needed to judge; of `Unknown`, nothing else is amiss.
    pub too_short: bool,
}

impl Verdict {
    /// A word and its reason, about no finding.
    pub fn new(outcome: Outcome, reason: impl Into<String>) -> Verdict {
        Verdict { outcome, reason: reason.into(), finding: None, detectable: None, too_short: false }
    }
}

/// Bytes by which the peaks of steps must have risen to be worth a word.
const WORTH: u64 = 1 << 20;

/// The verdict on one process, as of its last step. Call [`Detector::at_step`] before, at the end of a
/// recording also [`Replay::finish`]; and [`Detector::hear`] where something is known of keepers. Losses that only a reader
/// sees (damaged pages) are the caller's to add: a `Clean` is `Unknown` then.
/// What is suppressed (see [`Detector::suppress`]) makes no verdict.
pub fn judge(replay: &Replay, detector: &Detector) -> Verdict {
    let all = detector.findings();
    let find = |is: &dyn Fn(&Finding) -> bool| (0..all.len()).find(|&i| all[i].grows() && is(&all[i]));
    let about = |outcome: Outcome, i: usize, reason: String| Verdict {
        finding: Some(i),
        ..Verdict::new(outcome, reason)
    };
    let of = |c: Certainty| find(&|f| f.certainty == c);
    if let Some(i) = of(Certainty::Leak) {
        return about(Outcome::Leak, i, sum(&all[i]));
    }
    if let Some((device, o)) = final_oom(replay) {
        // Growth that is not known to be a leak, without which there had been room. A bound that was not reached did not help.
        let free = o.free.map_or(0, |f| f.0);
        let enough = |f: &Finding| f.device == device && free.saturating_add(f.bytes_now) >= o.requested.0;
        let is_bounded = |f: &Finding| is_bounded(f) && f.suppressed_by.is_none() && enough(f);
        if let Some(i) = find(&enough).or_else(|| all.iter().position(is_bounded)) {
            return about(Outcome::Growing, i, sum(&all[i]));
        }
        let why =
            post_mortem(replay, device).map_or_else(String::new, |m| format!("{}: {}", m.short, m.explain));
        let too_short = marks(replay) < MIN_MARKS;
        return Verdict { too_short, ..Verdict::new(Outcome::Oom, why) };
    }
    if let Some(i) = of(Certainty::Growing) {
        return about(Outcome::Growing, i, sum(&all[i]));
    }
    match blind(replay) {
        Some((why, too_short)) => Verdict { too_short, ..Verdict::new(Outcome::Unknown, why) },
        None => {
            let detectable = detector.detectable(replay);
            let least = detectable.map_or_else(String::new, |bytes| {
                format!(
                    " (growth above {} a {} would have been found)",
                    size(bytes as u64),
                    replay.step_source().noun()
                )
            });
            let is_small = |f: &Finding| {
                f.certainty == Certainty::Note && f.kind.is_leak() && f.withdrawn_step.is_none()
            };
            let other = match (all.iter().any(is_bounded), all.iter().any(Finding::is_suppressed)) {
                (true, _) => "no other line of code",
                (false, true) => "apart from what is suppressed, no line of code",
                (false, false) if all.iter().any(is_small) => "apart from what a note tells, no line of code",
                (false, false) => "no line of code",
            };
            let grew = all.iter().any(|f| f.kind.is_leak() && f.withdrawn_step.is_some());
            let too_large = all.iter().find(|f| is_bounded(f) && f.room_below_bound(replay).is_some());
            let other = match (too_large, all.iter().any(is_bounded), grew) {
                (Some(f), ..) => {
                    format!(
                        "but a buffer is filling whose limit is larger than GPU {} (see its note); {other}",
                        f.device.0
                    )
                }
                (None, true, _) => {
                    format!("what grows is a buffer with a limit (see its note); {other}")
                }
                (None, false, true) => "growth that was seen has stopped; no other line of code".to_owned(),
                (None, false, false) => other.to_owned(),
            };
            let after = most_after_steps(replay).map_or_else(String::new, |(seconds, device, bytes)| {
                format!(
                    ". Not judged: the {} after the last step, in which GPU {} had the most allocated ({})",
                    plural(seconds, "second"),
                    device.0,
                    size(bytes.0)
                )
            });
            let is_timed = replay.step_source() == StepSource::Time;
            let peaks = replay.devices().filter(|_| !is_timed).find_map(|d| rising(d).map(|r| (d.id, r)));
            let peaks = peaks.filter(|(_, (first, last, _))| last - first >= WORTH);
            let peaks = peaks.map_or_else(String::new, |(device, (first, last, steps))| {
                format!(
                    ". But the last {} needed more and more on GPU {}: the first of them {} at its peak, the last {}",
                    plural(steps as u64, "step"),
                    device.0,
                    size(first),
                    size(last)
                )
            });
            let rise = replay.devices().filter(|_| !is_timed).find_map(|d| Some((d.id, all_that_rises(d)?)));
            let is_told = grew || !peaks.is_empty() || all.iter().any(|f| f.is_suppressed() || is_bounded(f));
            let rise = rise.filter(|_| !is_told).map_or_else(String::new, |(device, r)| {
                format!(
                    ". But what is allocated at the ends of steps rose on GPU {}, from {} in step {} to {} in step {}, though no single line grows as a leak does",
                    device.0,
                    size(r.floors[0]),
                    thousands(r.steps[0].into()),
                    size(r.floors[1]),
                    thousands(r.steps[1].into())
                )
            });
            let reason = format!(
                "{other} kept more and more GPU memory in {}{least}{after}{peaks}{rise}",
                watched(replay)
            );
            Verdict { detectable, ..Verdict::new(Outcome::Clean, reason) }
        }
    }
}

/// Windows whose floors must all rise for memory at the ends of steps to be called so, and the rows that are looked at.
const WINDOWS: usize = 8;
const ROWS: usize = 1024;
/// One in so many bytes that were allocated when it began is a rise.
const PART: u64 = 16;

/// How what is allocated at the ends of steps rises, where it does so in one window after the other.
fn all_that_rises(d: &Device) -> Option<Rise> {
    let rows = d.rows.get(d.rows.len().saturating_sub(ROWS)..)?;
    let rise = Rise::of(rows, WINDOWS, 1, |r| r.allocated.0)?;
    (rise.total() >= WORTH.max(rise.floors[0] / PART)).then_some(rise)
}

fn is_bounded(f: &Finding) -> bool {
    f.certainty == Certainty::Bounded && f.withdrawn_step.is_none()
}

/// For how long the job was watched, in the grain that was judged.
fn watched(replay: &Replay) -> String {
    let (steps, micro) = (u64::from(replay.steps()), u64::from(replay.microbatches()));
    let word = replay.step_source().noun();
    if replay.steps() >= MIN_MARKS {
        plural(steps, word)
    } else {
        format!("{} of {}", plural(micro, "microbatch"), plural(steps, word))
    }
}

fn sum(f: &Finding) -> String {
    let (rate, grain) = (size(f.bytes_per_step.max(0.0) as u64), f.grain.noun());
    format!(
        "{rate} more every {grain} since {grain} {} on GPU {}",
        thousands(f.first_step.into()),
        f.device.0
    )
}

/// Steps, or the microbatches that are judged where those are more.
fn marks(replay: &Replay) -> u32 {
    replay.steps().max(replay.microbatches())
}

/// Why "clean" cannot be said, and whether too few steps are all that is wrong.
fn blind(replay: &Replay) -> Option<(String, bool)> {
    let marks = marks(replay);
    let unseen = unseen(replay).map(|why| (why, false));
    unseen.or_else(|| {
        let ended = plural(u64::from(marks), replay.step_source().noun());
        (marks < MIN_MARKS).then(|| (format!("{ended}, {MIN_MARKS} needed to say NO LEAK"), true))
    })
}

/// What of the process was not seen.
fn unseen(replay: &Replay) -> Option<String> {
    let drift = replay.accounting_drift().0;
    let impossible: u64 = replay.inconsistencies().iter().map(|i| i.count).sum();
    if let Some(why) = framework_pool::blinds(replay) {
        Some(why)
    } else if replay.coverage() == Coverage::None {
        Some("no use of GPU memory was seen".to_owned())
    } else if replay.coverage() != Coverage::Blocks {
        Some(format!("the recording shows {}, not blocks of PyTorch's allocator", replay.coverage().name()))
    } else if replay.lost() > 0 {
        Some(format!("{} were lost", plural(replay.lost(), "record")))
    } else if drift > 0 {
        Some(format!("the recording's totals differ from PyTorch's by up to {}", size(drift)))
    } else if impossible > 0 {
        let first = &replay.inconsistencies()[0];
        Some(format!("the recording contradicts itself: {} ({})", first.what, first.first))
    } else {
        None
    }
}
