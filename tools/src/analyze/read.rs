//! Reads a recording and judges it.

use super::analysis::{Analysis, TELL};
use super::anatomies;
use super::feed::Feed;
use super::given::{Given, unreadable};
use super::judged::{Judged, Until};
use super::suppress::Suppressions;
use crate::error::Error;
use crate::job::{self, Seen};
use crate::known;
use crate::process::Target;
use crate::share::Share;
use crate::symbols::Symbols;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use strandline::detect::{Death, Outcome, Verdict, judge, self_fault, verdict_after_fault};
use strandline::event::{HostKiller, Item};
use strandline::reader::{Frozen, TailState};
use strandline::replay::{Coverage, Replay};
use strandline::report::{self as print, Ended, snapshot};

impl Judged {
    /// Reads and judges a recording, but for what is suppressed; what filled its devices is not known then ([`Judged::measured`]).
    /// `tell` is told now and then how many events have been read.
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
        outcome: Option<&Seen>,
        suppressions: &Suppressions,
        share: Option<&Share>,
        until: Option<Until>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Judged, Error> {
        let mut feed = Feed::open(path)?;
        let frozen = if is_alive(&feed) { Some(Frozen::of(path).map_err(unreadable)?) } else { None };
        if let Some(frozen) = &frozen {
            feed = Feed::frozen(frozen, path)?;
        }
        let mut feed = feed.shared(share);
        let mut analysis = Analysis::new();
        let mut steps = snapshot::Steps::default();
        let mut told = 0;
        // The end of a step is announced by the event that follows it, where one does.
        let over = |replay: &Replay| {
            until.is_some_and(|u| replay.events() >= u.events && (u.last || replay.steps() >= u.step))
        };
        'items: while let Some((given, names)) = feed.next() {
            match given {
                Given::Events(events) => {
                    for event in events {
                        if over(&analysis.replay) {
                            break 'items;
                        }
                        if !analysis.detector.findings().is_empty() {
                            steps.leaving(event, &analysis.replay);
                        }
                        let progress = analysis.take_event(event);
                        steps.see_event(event, progress);
                    }
                }
                Given::Item(_) if over(&analysis.replay) => break,
                Given::Item(item) => {
                    let progress = analysis.take(&item, names);
                    steps.see(&item, progress);
                }
            }
            if analysis.replay.events() - told > TELL {
                told = analysis.replay.events();
                tell(told);
            }
        }
        let (ended, killer) = match until {
            Some(_) => (Ended::Unknown, HostKiller::Uncounted),
            None => ended(&feed, outcome),
        };
        let status = waited(&feed, outcome).filter(|_| ended == Ended::Exit);
        if until.is_none() && ended != Ended::Running {
            feed.keep_tail(path);
        }
        let replay = &mut analysis.replay;
        let whole = until.is_none_or(|u| u.last || replay.steps() < u.step);
        if replay.ended().is_none() && ended != Ended::Running && whole {
            // What a process was refused, that was ended from outside, was not what ended it.
            match (ended, status) {
                (Ended::Signal(n), _) if n != libc::SIGABRT && n != libc::SIGSEGV => {}
                (Ended::Exit, Some(0)) => {}
                _ => replay.died(true),
            }
            // One that ended without Python's own end (`os._exit`) could not tell.
            if let Some(status) = status {
                replay.apply(&Item::Meta(json!({ "exit_status": status })), feed.names());
            }
            steps.finish(analysis.finish());
        }
        analysis.detector.at_step(&analysis.replay);
        let began = feed.summary().unix_ns;
        analysis.refine(feed.names(), began, share, suppressions, &mut Symbols::default());
        let Analysis { replay, detector } = analysis;
        let verdict = judge(&replay, &detector);
        let is_empty = replay.coverage() == Coverage::None;
        let verdict = if until.is_some() { verdict } else { seen_whole(verdict, &feed, ended, is_empty) };
        let at_work = &feed.summary().at_work;
        let self_fault = if until.is_some() { None } else { self_fault(death(ended), at_work) };
        let mut judged = Judged {
            path: path.into(),
            frozen,
            share: share.cloned(),
            read: feed.into_read(),
            replay,
            detector,
            verdict,
            known: Vec::new(),
            moments: Vec::new(),
            native: BTreeMap::new(),
            steps,
            ended,
            killer,
            self_fault,
            until,
        };
        judged.known = known_of(&judged);
        judged.native = judged.native();
        Ok(judged)
    }

    /// The same with what filled its devices, which takes a second pass.
    ///
    /// # Errors
    /// The recording cannot be read again.
    pub(crate) fn measured(mut self, tell: &mut dyn FnMut(u64)) -> Result<Judged, Error> {
        self.moments = anatomies::measure(&self, tell)?;
        Ok(self)
    }
}

/// What is known of each finding of a process.
fn known_of(judged: &Judged) -> Vec<print::Known> {
    let (replay, names, began) = (&judged.replay, &judged.read.names, judged.epoch_ns());
    judged.findings().iter().map(|f| known::about(f, replay, names, began, judged.share.as_ref())).collect()
}

/// What is missing in a recording may be what leaks: nothing that was not seen to its end is clean. `is_empty`: no use of memory was seen, which
/// may be what is missing.
fn seen_whole(verdict: Verdict, feed: &Feed, ended: Ended, is_empty: bool) -> Verdict {
    let verdict = verdict_after_fault(verdict, death(ended), &feed.summary().at_work);
    if verdict.outcome != Outcome::Clean && !(is_empty && verdict.outcome == Outcome::Unknown) {
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
        Ended::Exit | Ended::Running | Ended::Stopped => Death::None,
        Ended::Signal(n) => Death::Signal(n),
        Ended::Unknown => Death::Unseen,
    }
}

/// How the process of a recording ended, and whether the host's out-of-memory killer did it, where that is known.
fn ended(feed: &Feed, outcome: Option<&Seen>) -> (Ended, HostKiller) {
    let unknown = HostKiller::Uncounted;
    let summary = feed.summary();
    let told = summary.ended();
    match told {
        Some("exit") => return (Ended::Exit, unknown),
        Some("stopped") => return (Ended::Stopped, unknown),
        _ => {}
    }
    if let Some(n) = told.and_then(|t| t.strip_prefix("signal ")?.parse().ok()) {
        return (Ended::Signal(n), unknown);
    }
    if is_alive(feed) {
        return (Ended::Running, unknown);
    }
    let ended = match (seen(feed, outcome), summary.died) {
        (Some(job::Ended::Signal(n)), _) => Ended::Signal(n),
        (Some(job::Ended::Exit(_)), _) => Ended::Exit,
        (None, Some(w)) if libc::WIFSIGNALED(w.status) => Ended::Signal(libc::WTERMSIG(w.status)),
        (None, Some(_)) => Ended::Exit,
        (None, None) => Ended::Unknown,
    };
    // The host's killer sends SIGKILL and nothing else.
    let may_be = matches!(ended, Ended::Signal(libc::SIGKILL) | Ended::Unknown);
    let killer = summary.died.map(|w| w.killer).or(outcome.map(|o| o.killer)).filter(|_| may_be);
    (ended, killer.unwrap_or_default())
}

/// How the command saw the process of a recording end, where that is the job's own.
fn seen(feed: &Feed, outcome: Option<&Seen>) -> Option<job::Ended> {
    outcome.filter(|o| o.pid == feed.summary().who.pid).map(|o| o.ended)
}

/// The status that the process of a recording exited with, as whoever waited for it saw.
fn waited(feed: &Feed, outcome: Option<&Seen>) -> Option<i32> {
    match (seen(feed, outcome), feed.summary().died) {
        (Some(job::Ended::Exit(status)), _) => Some(status.into()),
        (None, Some(w)) if libc::WIFEXITED(w.status) => Some(libc::WEXITSTATUS(w.status)),
        _ => None,
    }
}

/// The recorded process has not ended.
fn is_alive(feed: &Feed) -> bool {
    Target::recorded(&feed.summary().who).is_alive()
}
