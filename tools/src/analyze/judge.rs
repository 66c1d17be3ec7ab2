//! Judges recordings, several at once, and tells where it is when that takes time.

use super::judged::{Judged, Until};
use super::moment::Moment;
use super::suppress::Suppressions;
use crate::background::in_order;
use crate::error::Error;
use crate::job::Seen;
use crate::say::{self, Progress, shown};
use crate::share::Share;
use std::path::PathBuf;
use std::sync::Mutex;
use strandline::detect;

/// Judges recordings, several at once, but for what is suppressed, telling on stderr where it is when that takes time. What is
/// private is folded, where `share` is given: then one after the other, so that numbers are given in the order of the recordings.
///
/// # Errors
/// None of them can be read; where some can, the others are told and left out.
pub(crate) fn judge(
    recordings: &[PathBuf],
    outcome: Option<&Seen>,
    suppressions: &Suppressions,
    share: Option<&Share>,
) -> Result<Vec<Judged>, Error> {
    all(recordings, outcome, suppressions, share, true)
}

/// The same without what filled their devices, which takes a pass of its own.
///
/// # Errors
/// As [`judge`].
pub(crate) fn judge_only(
    recordings: &[PathBuf],
    suppressions: &Suppressions,
    share: Option<&Share>,
) -> Result<Vec<Judged>, Error> {
    all(recordings, None, suppressions, share, false)
}

fn all(
    recordings: &[PathBuf],
    outcome: Option<&Seen>,
    suppressions: &Suppressions,
    share: Option<&Share>,
    is_measured: bool,
) -> Result<Vec<Judged>, Error> {
    let progress = Mutex::new(Progress::new());
    let many = recordings.len();
    let one = |at: usize| {
        let path = &recordings[at];
        let mut tell = |events: u64| {
            let who = || match many {
                1 => shown(path),
                n => format!("{} ({} of {n})", shown(path), at + 1),
            };
            // Whoever finds another at it has nothing newer to show.
            if let Ok(mut progress) = progress.try_lock() {
                progress.show(|| format!("reading {}: {:.1} million events", who(), events as f64 / 1e6));
            }
        };
        let judged = Judged::read_shared(path, outcome, suppressions, share, &mut tell)?;
        if is_measured { judged.measured(&mut tell) } else { Ok(judged) }
    };
    let workers = if share.is_some() { 1 } else { workers(many) };
    let read = in_order(many, workers, &one);
    drop(progress);
    let (mut all, mut refused) = (Vec::with_capacity(many), Vec::new());
    for judged in read {
        match judged {
            Ok(judged) => all.push(judged),
            Err(e) => refused.push(e),
        }
    }
    match refused.pop() {
        Some(e) if all.is_empty() => Err(e),
        Some(last) => {
            refused.into_iter().chain([last]).for_each(|e| say::line(e.to_string()));
            Ok(all)
        }
        None => Ok(all),
    }
}

/// Threads for so many recordings.
fn workers(recordings: usize) -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(recordings)
}

/// The same recordings as they stood at the end of `step`. Of several, those that have no such step, as that of a launcher, are left out, which is
/// said on stderr.
///
/// # Errors
/// None of them has such a step, or one cannot be read again.
pub(crate) fn judge_at_step(
    judged: Vec<Judged>,
    step: u32,
    suppressions: &Suppressions,
) -> Result<Vec<Judged>, Error> {
    let mut progress = Progress::new();
    let mut tell =
        |events| progress.show(|| format!("reading again: {:.1} million events", events as f64 / 1e6));
    let (mut all, mut refused) = (Vec::new(), Vec::new());
    for j in judged {
        match Moment::Step(step).find(&j) {
            Ok(place) => {
                let then = until_then(&j, step, place.events, suppressions, &mut tell)?;
                all.push(Judged { whole: Some(Box::new(j)), ..then });
            }
            Err(why) => refused.push((j, why)),
        }
    }
    refused.sort_by_key(|(j, _)| j.replay.steps());
    if all.is_empty()
        && let Some((_, why)) = refused.pop()
    {
        return Err(why);
    }
    refused.iter().for_each(|(j, why)| say::line(format!("{} is left out: {why}", shown(&j.path))));
    Ok(all)
}

/// The same recording as it stood after so many events, at the end of `step`.
///
/// # Errors
/// The recording cannot be read again.
fn until_then(
    judged: &Judged,
    step: u32,
    events: u64,
    suppressions: &Suppressions,
    tell: &mut dyn FnMut(u64),
) -> Result<Judged, Error> {
    let until = Until { events, step, last: judged.steps.end_of(step).is_none() };
    let (share, by) = (judged.share.as_ref(), (Some(until), judged.replay.iterations()));
    let mut then = Judged::read_by(&judged.path, None, suppressions, share, by, tell)?;
    then.detector.take_bounds(judged.findings());
    then.verdict = detect::judge(&then.replay, &then.detector);
    then.measured(tell)
}
