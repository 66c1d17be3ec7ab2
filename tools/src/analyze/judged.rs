//! One recording, judged.

use super::feed::{Feed, Given};
use super::{known_of, moments};
use crate::error::Error;
use crate::run;
use std::path::{Path, PathBuf};
use strandline::detect::{Detector, Finding, Outcome, Policy, Verdict, judge};
use strandline::event::{Bytes, Item, Names};
use strandline::reader::TailState;
use strandline::replay::{Coverage, Held, Replay};
use strandline::report::{Cost, Ended, Known, Moment, Process, snapshot};

/// How often progress is told.
const TELL: u64 = 1 << 16;

/// A recording with everything that can be said of it.
pub(crate) struct Judged {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Its steps, for snapshots.
    pub(crate) steps: snapshot::Steps,
    feed: Feed,
    replay: Replay,
    detector: Detector,
    verdict: Verdict,
    known: Vec<Known>,
    moments: Vec<Moment>,
    ended: Ended,
    killed_by_host: bool,
}

impl Judged {
    /// Reads and judges a recording. `tell` is told now and then how many events have been read.
    ///
    /// # Errors
    /// It cannot be read. Damage is no error: it is part of what is said.
    pub(crate) fn read(
        path: &Path,
        outcome: Option<&run::Outcome>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Judged, Error> {
        let mut feed = Feed::open(path)?;
        let mut replay = Replay::new();
        let mut detector = Detector::new(Policy::default());
        let mut steps = snapshot::Steps::default();
        let mut told = 0;
        while let Some((given, names)) = feed.next() {
            match given {
                Given::Events(events) => {
                    for event in events {
                        if !detector.findings().is_empty() {
                            steps.leaving(event, &replay);
                        }
                        let progress = replay.apply_event(event);
                        detector.after(progress, &replay);
                        steps.see(&Item::Event(*event), progress);
                    }
                }
                Given::Item(item) => {
                    let progress = replay.apply(&item, names);
                    detector.after(progress, &replay);
                    steps.see(&item, progress);
                }
            }
            if replay.events() - told > TELL {
                told = replay.events();
                tell(told);
            }
        }
        let (ended, killed_by_host) = ended(&feed, outcome);
        if ended != Ended::Running {
            feed.keep_tail(path);
        }
        if replay.ended().is_none() && ended != Ended::Running {
            // A killed process says no end: its last step is over all the same.
            let progress = replay.finish();
            detector.after(progress, &replay);
        }
        detector.at_step(&replay);
        let verdict = seen_whole(judge(&replay, &detector), &feed, ended);
        let mut judged = Judged {
            path: path.into(),
            feed,
            replay,
            detector,
            verdict,
            known: Vec::new(),
            moments: Vec::new(),
            steps,
            ended,
            killed_by_host,
        };
        judged.known = known_of(&judged);
        judged.moments = moments::of(&judged, tell)?;
        Ok(judged)
    }

    /// As a report prints it.
    pub(crate) fn process(&self) -> Process<'_> {
        let mut process = Process::new(&self.replay, self.names(), &self.verdict, self.detector.findings());
        process.known = self.known.clone();
        process.anatomies = self.moments.clone();
        process.damage = self.feed.damage();
        process.ended = self.ended;
        process.killed_by_host = self.killed_by_host;
        let disk = std::fs::metadata(&self.path).ok().map(|m| Bytes(m.len()));
        process.cost = Cost { disk, ..Cost::default() };
        process
    }

    /// The word on it.
    pub(crate) fn outcome(&self) -> Outcome {
        self.verdict.outcome
    }

    /// What was found.
    pub(crate) fn findings(&self) -> &[Finding] {
        self.detector.findings()
    }

    /// Its state at the end.
    pub(crate) fn replay(&self) -> &Replay {
        &self.replay
    }

    /// Its stacks.
    pub(crate) fn names(&self) -> &Names {
        self.feed.reader().names()
    }

    /// Unix time in microseconds at which its clock was 0.
    pub(crate) fn epoch_us(&self) -> u64 {
        self.feed.reader().summary().unix_ns / 1000
    }

    /// Its process has not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.ended == Ended::Running
    }

    /// Blocks were seen.
    pub(crate) fn has_blocks(&self) -> bool {
        self.replay.coverage() == Coverage::Blocks
    }

    /// Whether a finding that stands counts this block among those left behind.
    pub(crate) fn is_left_behind(&self, held: &Held, replay: &Replay) -> bool {
        left_behind(self.findings(), held, replay)
    }
}

/// Marks a block must have lived through before a finding counts it (`strandline::replay`, "old").
const OLD: u32 = 2;

fn left_behind(findings: &[Finding], held: &Held, replay: &Replay) -> bool {
    let old = replay.steps().saturating_sub(held.step) >= OLD
        || replay.microbatches().saturating_sub(held.microbatch) >= OLD && replay.steps() == 0;
    old && !held.pending
        && findings.iter().filter(|f| f.is_active_leak()).any(|f| {
            f.device == held.block.device
                && f.stream.is_none_or(|s| s.id == held.stream)
                && f.sites.iter().any(|s| s.site == held.site)
        })
}

/// What is missing in a recording may be what leaks: nothing that was not seen to its end is clean.
fn seen_whole(verdict: Verdict, feed: &Feed, ended: Ended) -> Verdict {
    if verdict.outcome != Outcome::Clean {
        return verdict;
    }
    let summary = feed.reader().summary();
    let missing = if summary.stopped {
        "the recording stopped before the job ended".to_string()
    } else if let Some(first) = feed.damage().first() {
        format!("part of the recording is missing: {first}")
    } else if !summary.complete && ended != Ended::Running && !matches!(summary.tail, TailState::Read(_)) {
        "the end of the recording is missing".to_string()
    } else {
        return verdict;
    };
    Verdict { outcome: Outcome::Unknown, reason: missing }
}

/// How the process of a recording ended, and whether the host's out-of-memory killer did it.
fn ended(feed: &Feed, outcome: Option<&run::Outcome>) -> (Ended, bool) {
    let summary = feed.reader().summary();
    let told = summary.ended();
    if told == Some("exit") {
        return (Ended::Exit, false);
    }
    if let Some(n) = told.and_then(|t| t.strip_prefix("signal ")?.parse().ok()) {
        return (Ended::Signal(n), false);
    }
    if started(summary.who.pid).is_some_and(|start| start == summary.who.start) {
        return (Ended::Running, false);
    }
    let Some(outcome) = outcome else { return (Ended::Unknown, false) };
    let ended = match outcome.ended {
        run::Ended::Signal(n) if outcome.pid == summary.who.pid => Ended::Signal(n),
        run::Ended::Exit(_) if outcome.pid == summary.who.pid => Ended::Exit,
        _ => Ended::Unknown,
    };
    (ended, outcome.killed_by_host && ended != Ended::Exit)
}

/// When a process was started, in clock ticks since boot (field 22 of its `stat`); `None` where it has ended.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    // A zombie has ended, though its entry is still there.
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_is_told_from_one_that_had_its_pid() {
        let me = std::process::id();
        let start = started(me).unwrap();
        assert!(start > 0);
        assert_eq!(started(me), Some(start));
        assert_eq!(started(0), None);
    }
}
