//! Reads a recording and judges it.

use super::analysis::{Analysis, TELL};
use super::anatomies;
use super::end::{self, End};
use super::feed::Feed;
use super::given::{Given, unreadable};
use super::iterations;
use super::judged::{Judged, Until};
use super::suppress::Suppressions;
use crate::error::Error;
use crate::job::Seen;
use crate::known;
use crate::share::Share;
use crate::symbols::Symbols;
use std::collections::BTreeMap;
use std::path::Path;
use strandline::detect::{Death, Outcome, Verdict, judge, self_fault, verdict_after_fault};
use strandline::event::steps::Iterations;
use strandline::reader::{Frozen, TailState};
use strandline::replay::{Coverage, Replay};
use strandline::report::{self as print, Ended, HeldBy, snapshot};

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
        Judged::read_shared(path, None, suppressions, None, tell)
    }

    /// The same with what is private folded, where `share` is given. A job without steps that is too short to be judged by seconds is judged by
    /// the iterations of its loop, where it has one; so is what a job does after its training, if that took longer and grows.
    ///
    /// # Errors
    /// As [`Judged::read`].
    pub(super) fn read_shared(
        path: &Path,
        outcome: Option<&Seen>,
        suppressions: &Suppressions,
        share: Option<&Share>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Judged, Error> {
        let first = Judged::read_by(path, outcome, suppressions, share, (None, None), tell)?;
        let Some((of, few)) = iterations::of_judged(&first)? else { return Ok(first) };
        let again = Judged::read_by(path, outcome, suppressions, share, (None, Some(of)), tell)?;
        Ok(if iterations::tells_more(&again, &first, few)? { again } else { first })
    }

    /// The same as of a past moment, where one is given, and by iterations, where these are to be counted.
    ///
    /// # Errors
    /// As [`Judged::read`].
    pub(super) fn read_by(
        path: &Path,
        outcome: Option<&Seen>,
        suppressions: &Suppressions,
        share: Option<&Share>,
        (until, iterations): (Option<Until>, Option<Iterations>),
        tell: &mut dyn FnMut(u64),
    ) -> Result<Judged, Error> {
        let mut feed = Feed::open(path)?;
        let frozen = if end::is_alive(&feed) { Some(Frozen::of(path).map_err(unreadable)?) } else { None };
        if let Some(frozen) = &frozen {
            feed = Feed::frozen(frozen, path)?;
        }
        let mut feed = feed.shared(share).by_iterations(iterations);
        let (mut analysis, mut steps) = take_all(&mut feed, until, tell);
        let end = until.map_or_else(|| End::of(&feed, outcome), |_| End::default());
        let ended = end.ended;
        if until.is_none() && ended != Ended::Running {
            feed.keep_tail(path);
        }
        let whole = until.is_none_or(|u| u.last || analysis.replay.steps() < u.step);
        if analysis.replay.ended().is_none() && ended != Ended::Running && whole {
            end.tell(&mut analysis.replay, feed.names());
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
            killer: end.killer,
            self_fault,
            until,
            whole: None,
        };
        judged.known = known_of(&judged);
        if let Some(share) = share {
            let open = Judged::read_by(path, outcome, suppressions, None, (until, iterations), tell)?;
            judged.learn(&open, share);
        }
        judged.native = judged.native();
        Ok(judged)
    }

    /// Takes over the statements that keep what was found, folded, from the same recording as it is: the user's source has the real names.
    fn learn(&mut self, open: &Judged, share: &Share) {
        let cwd = open.replay.meta()["cwd"].as_str().unwrap_or_default();
        for (f, known) in self.detector.findings().iter().zip(&mut self.known).filter(|(f, _)| f.id > 0) {
            let real =
                open.findings().iter().zip(&open.known).find(|(g, _)| (g.id, g.kind) == (f.id, f.kind));
            if let Some((_, real)) = real {
                let mut kept = share.kept(real, cwd);
                // The advice at the statement would name what it names: that which fits the holder stands for it.
                let info = f.kind.info();
                let of_holder = match &real.held_by {
                    HeldBy::Found(all) if all.iter().any(|h| h.graph) => info.remedy_with_graph,
                    HeldBy::Found(_) => info.remedy_without_graph,
                    _ => None,
                };
                let remedy = of_holder.or(info.remedy);
                kept.kept_at.iter_mut().for_each(|k| k.remedy = remedy.map(str::to_owned));
                (known.kept_at, known.kept_too, known.modified) =
                    (kept.kept_at, kept.kept_too, kept.modified);
            }
        }
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

/// Takes what a feed gives, up to a past moment where one is given. `tell` is told now and then how many events have been read.
fn take_all(feed: &mut Feed, until: Option<Until>, tell: &mut dyn FnMut(u64)) -> (Analysis, snapshot::Steps) {
    let (mut analysis, mut steps, mut told) = (Analysis::new(), snapshot::Steps::default(), 0);
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
    (analysis, steps)
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
