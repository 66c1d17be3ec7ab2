//! The first line of every report: one word and its reason.

use super::amounts::{plural, size, size_f, thousands};
use super::certainty::Certainty;
use super::clean::{is_bounded, nothing_leaks, watched};
use super::detector::Detector;
use super::finding::Finding;
use super::framework_pool;
use super::growth::MIN_MARKS;
use super::oom::{final_oom, post_mortem};
use crate::event::named;
use crate::replay::{Coverage, Replay};

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
        let is_that = |f: &Finding| is_bounded(f) && f.suppressed_by.is_none() && enough(f);
        if let Some(i) = find(&enough).or_else(|| all.iter().position(is_that)) {
            return about(Outcome::Growing, i, sum(&all[i]));
        }
        // What is suppressed is no accusation, but nothing else is the cause.
        if let Some(i) = all.iter().position(|f| f.is_suppressed() && enough(f)) {
            let by = all[i].suppressed_by.as_deref().unwrap_or_default();
            let why = format!("growth that is suppressed by {by} filled the GPU; {}", sum(&all[i]));
            return about(Outcome::Oom, i, why);
        }
        let why = post_mortem(replay, device).map_or_else(String::new, |m| m.in_words());
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
            let reason = nothing_leaks(replay, all, detectable);
            Verdict { detectable, ..Verdict::new(Outcome::Clean, reason) }
        }
    }
}

fn sum(f: &Finding) -> String {
    let (rate, grain) = (size(f.bytes_per_step.max(0.0) as u64), f.grain.noun());
    let average = if f.is_rare() { " on average" } else { "" };
    let now = f.current_rate().map(|now| format!(" (now {})", size_f(now))).unwrap_or_default();
    format!(
        "memory grows by {rate} every {grain}{average}{now} since {grain} {} on GPU {}",
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
        let ended = watched(replay);
        (marks < MIN_MARKS)
            .then(|| (format!("{ended}; at least {MIN_MARKS} are needed to say NO LEAK"), true))
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
        Some(format!(
            "the recording has only {}, not the blocks of PyTorch's allocator",
            replay.coverage().name()
        ))
    } else if replay.lost() > 0 {
        Some(format!("{} were lost", plural(replay.lost(), "event")))
    } else if drift > 0 {
        Some(format!("the recorded sizes differ from PyTorch's own counters by up to {}", size(drift)))
    } else if impossible > 0 {
        let first = &replay.inconsistencies()[0];
        Some(format!("the recording contradicts itself: {} ({})", first.what, first.first))
    } else {
        None
    }
}
