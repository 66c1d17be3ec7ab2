//! Judges recordings one after the other, and tells where it is when that takes time.

use super::judged::{Judged, Until};
use super::moment::Moment;
use super::suppress::Suppressions;
use crate::error::Error;
use crate::job::Seen;
use crate::say::{self, Progress, shown};
use crate::share::Share;
use std::path::PathBuf;

/// Judges recordings, one after the other, but for what is suppressed, telling on stderr where it is when that takes time. What is
/// private is folded, where `share` is given.
///
/// # Errors
/// None of them can be read; where some can, the others are told and left out.
pub(crate) fn judge(
    recordings: &[PathBuf],
    outcome: Option<&Seen>,
    suppressions: &Suppressions,
    share: Option<&Share>,
) -> Result<Vec<Judged>, Error> {
    let mut progress = Progress::new();
    let mut all = Vec::new();
    let mut refused = None;
    for (at, path) in recordings.iter().enumerate() {
        let who = match recordings.len() {
            1 => shown(path),
            n => format!("{} ({} of {n})", shown(path), at + 1),
        };
        match Judged::read_shared(path, outcome, suppressions, share, None, &mut |events| {
            progress.show(|| format!("reading {who}: {:.1} million events", events as f64 / 1e6));
        }) {
            Ok(judged) => all.push(judged),
            Err(e) => refused = Some(e),
        }
    }
    drop(progress);
    match refused {
        Some(e) if all.is_empty() => Err(e),
        Some(e) => {
            say::line(e.to_string());
            Ok(all)
        }
        None => Ok(all),
    }
}

/// The same recordings as they stood at the end of `step`.
///
/// # Errors
/// One of them has no such step.
pub(crate) fn at(judged: &[Judged], step: u32, suppressions: &Suppressions) -> Result<Vec<Judged>, Error> {
    let mut progress = Progress::new();
    let mut tell = |events| progress.show(|| format!("again: {:.1} million events", events as f64 / 1e6));
    judged.iter().map(|j| at_end_of(j, step, suppressions, &mut tell)).collect()
}

/// The same recording as it stood at the end of `step`.
///
/// # Errors
/// There is no such step, or the recording cannot be read again.
fn at_end_of(
    judged: &Judged,
    step: u32,
    suppressions: &Suppressions,
    tell: &mut dyn FnMut(u64),
) -> Result<Judged, Error> {
    let events = Moment::Step(step).find(judged)?.events;
    let until = Until { events, step, last: judged.steps.end_of(step).is_none() };
    Judged::read_shared(&judged.path, None, suppressions, judged.share(), Some(until), tell)
}
