//! One recording, judged.

use super::feed::Feed;
use super::given::{Given, unreadable};
use super::share::Share;
use super::{Suppressions, known_of, moments, suppress::Within};
use crate::error::Error;
use crate::known;
use crate::run;
use crate::snapshot::Moment as When;
use crate::symbols::Symbols;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strandline::detect::{
    Death, Detector, Finding, Outcome, Policy, SelfFault, Verdict, cut_short, judge, self_fault,
};
use strandline::event::{Bytes, Item, Names, NativeFrame, StackId};
use strandline::reader::{Frozen, TailState};
use strandline::replay::{Coverage, Device, Held, Replay, reached};
use strandline::report::html;
use strandline::report::{Cost, Ended, Known, Moment, Native, Process, snapshot};

/// How often progress is told.
const TELL: u64 = 1 << 16;

/// A recording with everything that can be said of it.
pub(crate) struct Judged {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Its steps, for snapshots.
    pub(crate) steps: snapshot::Steps,
    /// Of a process that goes on: what of its recording was judged.
    frozen: Option<Frozen>,
    /// What is private is folded.
    share: Option<Share>,
    feed: Feed,
    replay: Replay,
    detector: Detector,
    verdict: Verdict,
    known: Vec<Known>,
    moments: Vec<Moment>,
    native: BTreeMap<StackId, Native>,
    ended: Ended,
    killed_by_host: bool,
    self_fault: Option<SelfFault>,
    /// Where it was left off, of a recording that goes on.
    until: Option<Until>,
}

/// A past moment that is judged as if it were now: the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    /// So many events are before it.
    pub(crate) events: u64,
    /// The step.
    pub(crate) step: u32,
    /// It ended with the process: no event announces it.
    pub(crate) last: bool,
}

impl Judged {
    /// Whether memory was allocated already when the recording began.
    pub(crate) fn began_later(&self) -> bool {
        let then = self.moments.iter().map(|m| m.anatomy.before_recording);
        then.chain(self.replay.devices().map(|d| d.before_recording)).any(|b| b.0 > 0)
    }

    /// Reads and judges a recording, but for what is suppressed. `tell` is told now and then how many events have been read.
    ///
    /// # Errors
    /// It cannot be read. Damage is no error: it is part of what is said.
    pub(crate) fn read(
        path: &Path,
        suppressions: &Suppressions,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Judged, Error> {
        Judged::read_shared(path, None, suppressions, None, None, tell)
    }

    /// The same with what is private folded, where `share` is given, and as of a past moment, where `until` is.
    ///
    /// # Errors
    /// As [`Judged::read`].
    pub(super) fn read_shared(
        path: &Path,
        outcome: Option<&run::Outcome>,
        suppressions: &Suppressions,
        share: Option<&Share>,
        until: Option<Until>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Judged, Error> {
        let mut feed = Feed::open(path)?;
        let frozen = match is_alive(&feed) {
            true => Some(Frozen::of(path).map_err(unreadable)?),
            false => None,
        };
        if let Some(frozen) = &frozen {
            feed = Feed::frozen(frozen, path)?;
        }
        let mut feed = feed.shared(share);
        let mut replay = Replay::new();
        let mut detector = Detector::new(Policy::default());
        let mut steps = snapshot::Steps::default();
        let mut told = 0;
        // The end of a step is announced by the event that follows it, where one does.
        let over =
            |r: &Replay| until.is_some_and(|u| r.events() >= u.events && (u.last || r.steps() >= u.step));
        while let Some((given, names)) = feed.next().filter(|_| !over(&replay)) {
            match given {
                Given::Events(events) => {
                    for event in events {
                        if over(&replay) {
                            break;
                        }
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
        let (ended, killed_by_host) = match until {
            Some(_) => (Ended::Unknown, false),
            None => ended(&feed, outcome),
        };
        if until.is_none() && ended != Ended::Running {
            feed.keep_tail(path);
        }
        let whole = until.is_none_or(|u| u.last || replay.steps() < u.step);
        if replay.ended().is_none() && ended != Ended::Running && whole {
            // What a process was refused, that was ended from outside, was not what ended it.
            match (ended, outcome.map(|o| o.ended)) {
                (Ended::Signal(n), _) if n != libc::SIGABRT && n != libc::SIGSEGV => {}
                (Ended::Exit, Some(run::Ended::Exit(0))) => {}
                _ => replay.died(true),
            }
            // A killed process says no end: its last step is over all the same.
            let progress = replay.finish();
            detector.after(progress, &replay);
            steps.finish(progress);
        }
        detector.at_step(&replay);
        detector.hear(|f| known::testimony(f, &replay, share));
        if !suppressions.is_empty() {
            let (mut symbols, names) = (Symbols::default(), feed.names());
            let within = Within { replay: &replay, names, share };
            detector.suppress(|f| {
                let known = known::of(f, &replay, names, feed.summary().unix_ns, share);
                let frames = |stack| symbolized(names.native(stack), share, &mut symbols).frames;
                suppressions.of(f, &known, &within, frames)
            });
        }
        let verdict = judge(&replay, &detector);
        let verdict = if until.is_some() { verdict } else { seen_whole(verdict, &feed, ended) };
        let at_work = &feed.summary().at_work;
        let self_fault = if until.is_some() { None } else { self_fault(death(ended), at_work) };
        let mut judged = Judged {
            path: path.into(),
            frozen,
            share: share.cloned(),
            feed,
            replay,
            detector,
            verdict,
            known: Vec::new(),
            moments: Vec::new(),
            native: BTreeMap::new(),
            steps,
            ended,
            killed_by_host,
            self_fault,
            until,
        };
        judged.known = known_of(&judged);
        judged.native = judged.native();
        judged.moments = moments::of(&judged, tell)?;
        Ok(judged)
    }

    /// The same items again.
    ///
    /// # Errors
    /// The recording cannot be read any more.
    pub(crate) fn again(&self) -> Result<Feed, Error> {
        let feed = match &self.frozen {
            Some(frozen) => Feed::frozen(frozen, &self.path),
            None => Feed::open(&self.path),
        }?;
        Ok(feed.shared(self.share.as_ref()))
    }

    /// As a report prints it.
    pub(crate) fn process(&self) -> Process<'_> {
        let mut process = Process::new(&self.replay, self.names(), &self.verdict, self.detector.findings());
        process.known = self.known.clone();
        process.anatomies = self.moments.clone();
        process.damage = self.feed.damage();
        process.ended = self.ended;
        process.at_step = self.until.map(|u| u.step);
        process.killed_by_host = self.killed_by_host;
        process.self_fault.clone_from(&self.self_fault);
        let disk = std::fs::metadata(&self.path).ok().map(|m| Bytes(m.len()));
        process.native = self.native.clone();
        process.contexts = crate::context::of_recording(&self.path);
        process.cost = Cost::of(&self.replay, disk);
        process
    }

    /// The recording read once more, for a page: what was held from step to step.
    ///
    /// # Errors
    /// It cannot be read again.
    pub(crate) fn page(&self) -> Result<html::Pass, Error> {
        let mut feed = Feed::open(&self.path)?.shared(self.share.as_ref());
        let mut pass = html::Pass::new(&self.replay, self.findings());
        while let Some((given, names)) = feed.next() {
            match given {
                Given::Events(events) => events.iter().for_each(|e| pass.apply_event(e, names)),
                Given::Item(item) => pass.apply(&item, names),
            }
        }
        Ok(pass)
    }

    /// Looks up the native frames that lead to what was found.
    fn native(&self) -> BTreeMap<StackId, Native> {
        let mut symbols = Symbols::default();
        let sites = self.findings().iter().flat_map(|f| &f.sites).map(|s| s.site);
        let sites = sites.chain(self.replay.failed().map(|f| f.site));
        let last = |d: &'_ Device| d.ooms.last().map(|o| o.site);
        let held =
            |d: &'_ Device| d.scene.iter().flat_map(|s| &s.holders).map(|h| h.site).collect::<Vec<_>>();
        let sites = sites.chain(self.replay.devices().flat_map(|d| last(d).into_iter().chain(held(d))));
        let stacks = sites.filter_map(|s| self.replay.site(s)).map(|s| s.stack);
        let mut all = BTreeMap::new();
        for stack in stacks {
            let native = self.names().native(stack);
            if native.is_empty() || all.contains_key(&stack) {
                continue;
            }
            let known = symbolized(native, self.share.as_ref(), &mut symbols);
            all.insert(stack, known);
        }
        all
    }

    /// The past moment that was judged, where one was.
    pub(super) fn until(&self) -> Option<Until> {
        self.until
    }

    /// The same recording as it stood at the end of `step`.
    ///
    /// # Errors
    /// There is no such step, or the recording cannot be read again.
    pub(super) fn at(
        &self,
        step: u32,
        suppressions: &Suppressions,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Judged, Error> {
        let events = When::Step(step).find(self)?.events;
        let until = Until { events, step, last: self.steps.end_of(step).is_none() };
        Judged::read_shared(&self.path, None, suppressions, self.share.as_ref(), Some(until), tell)
    }

    /// What is private in it was folded, by this.
    pub(super) fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    /// What of strandline its process may have died of.
    pub(super) fn self_fault(&self) -> Option<&SelfFault> {
        self.self_fault.as_ref()
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
        self.feed.names()
    }

    /// Unix time in nanoseconds at which its clock was 0.
    pub(crate) fn epoch_ns(&self) -> u64 {
        self.feed.summary().unix_ns
    }

    /// Unix time in microseconds at which its clock was 0.
    pub(crate) fn epoch_us(&self) -> u64 {
        self.feed.summary().unix_ns / 1000
    }

    /// It is no recording but a snapshot that PyTorch wrote.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.feed.is_snapshot()
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

/// The native frames of a stack, looked up.
pub(crate) fn symbolized(native: &[NativeFrame], share: Option<&Share>, symbols: &mut Symbols) -> Native {
    let mut known = Native::default();
    for (i, f) in native.iter().enumerate() {
        known.frames.extend(match share {
            Some(share) => share.native(f, |real| symbols.frames(real)),
            None => symbols.frames(f),
        });
        if reached(native) == Some(i) {
            // The function that the place is in, not what was inlined into it.
            known.reached = known.frames.len() - 1;
        }
    }
    known
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
    let verdict = cut_short(verdict, death(ended), &feed.summary().at_work);
    if verdict.outcome != Outcome::Clean {
        return verdict;
    }
    let summary = feed.summary();
    let missing = if summary.stopped {
        "the recording stopped before the job ended".to_string()
    } else if let Some(first) = feed.damage().first() {
        format!("part of the recording is missing: {first}")
    } else if !summary.complete && ended != Ended::Running && !matches!(summary.tail, TailState::Read(_)) {
        "the end of the recording is missing".to_string()
    } else {
        return verdict;
    };
    Verdict::new(Outcome::Unknown, missing)
}

/// What is known of a death. How a process ended that nobody saw is unknown, also of one that ended by itself: such a one is in none of
/// our code any more.
fn death(ended: Ended) -> Death {
    match ended {
        Ended::Exit | Ended::Running => Death::None,
        Ended::Signal(n) => Death::Signal(n),
        Ended::Unknown => Death::Unseen,
    }
}

/// How the process of a recording ended, and whether the host's out-of-memory killer did it.
fn ended(feed: &Feed, outcome: Option<&run::Outcome>) -> (Ended, bool) {
    let summary = feed.summary();
    let told = summary.ended();
    if told == Some("exit") {
        return (Ended::Exit, false);
    }
    if let Some(n) = told.and_then(|t| t.strip_prefix("signal ")?.parse().ok()) {
        return (Ended::Signal(n), false);
    }
    if is_alive(feed) {
        return (Ended::Running, false);
    }
    let seen = match summary.died {
        Some(status) if libc::WIFSIGNALED(status) => Ended::Signal(libc::WTERMSIG(status)),
        Some(_) => Ended::Exit,
        None => Ended::Unknown,
    };
    let Some(outcome) = outcome else { return (seen, false) };
    let ended = match outcome.ended {
        run::Ended::Signal(n) if outcome.pid == summary.who.pid => Ended::Signal(n),
        run::Ended::Exit(_) if outcome.pid == summary.who.pid => Ended::Exit,
        _ => seen,
    };
    (ended, outcome.killed_by_host && ended != Ended::Exit)
}

/// The recorded process has not ended.
fn is_alive(feed: &Feed) -> bool {
    let who = feed.summary().who;
    started(who.pid).is_some_and(|start| start == who.start)
}

/// When a process was started, in clock ticks since boot (field 22 of its `stat`); `None` where it has ended.
pub(crate) fn started(pid: u32) -> Option<u64> {
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
