//! A job without steps that is too short to be judged by seconds: it is read once more, by the iterations of its loop.

use super::analysis::Analysis;
use super::feed::Feed;
use super::given::Given;
use super::judged::Judged;
use crate::error::Error;
use std::path::Path;
use strandline::detect::{Outcome, Verdict, judge};
use strandline::event::StackId;
use strandline::event::steps::Recurring;
use strandline::replay::Replay;

/// What begins each iteration of a job that was judged too short, where that is known, and whether a loop around that may have been too short.
///
/// # Errors
/// The recording cannot be read again.
pub(super) fn of_judged(judged: &Judged) -> Result<Option<(StackId, bool)>, Error> {
    let is_whole = judged.read.summary.restored == 0 && judged.until.is_none();
    if is_short(&judged.verdict, &judged.replay) && is_whole && judged.has_blocks() {
        let (mut feed, mut recurring) = (judged.again()?, Recurring::default());
        count(&mut feed, &mut recurring);
        Ok(recurring.iteration().map(|stack| (stack, recurring.has_few_around())))
    } else {
        Ok(None)
    }
}

/// Counts what a feed gives.
fn count(feed: &mut Feed, recurring: &mut Recurring) {
    while let Some((given, _)) = feed.next() {
        if let Given::Events(events) = given {
            events.iter().for_each(|e| recurring.take(e));
        }
    }
}

/// Too few seconds are what keeps a job without steps from being judged.
fn is_short(verdict: &Verdict, replay: &Replay) -> bool {
    verdict.too_short && !replay.step_source().is_training()
}

/// Whether a job judged by its iterations is told so, that was too short before: for an allocation that failed, only what grew is another reason. With
/// a loop around that was too short nothing is clean.
pub(super) fn tells_more(by_iterations: &Judged, before: &Judged, has_few_around: bool) -> bool {
    match by_iterations.verdict.outcome {
        Outcome::Leak | Outcome::Growing => true,
        Outcome::Clean => before.verdict.outcome == Outcome::Unknown && !has_few_around,
        Outcome::Oom | Outcome::Unknown => false,
    }
}

/// A job that runs, as its iterations show it so far; `None` where it is judged by steps, or was long enough to be judged by seconds.
pub(crate) fn by_iterations(so_far: &Analysis, path: &Path) -> Option<Analysis> {
    if !is_short(&judge(&so_far.replay, &so_far.detector), &so_far.replay) {
        return None;
    }
    let (mut recurring, mut analysis) = (Recurring::default(), Analysis::new());
    read_so_far(path, None, |feed| count(feed, &mut recurring))?;
    let stack = recurring.iteration()?;
    read_so_far(path, Some(stack), |feed| {
        feed.each(|item, names| {
            analysis.take(item, names);
        });
    })?;
    Some(analysis)
}

/// What the recording of a job that runs has by now.
fn read_so_far(path: &Path, iteration: Option<StackId>, mut take: impl FnMut(&mut Feed)) -> Option<()> {
    let mut feed = Feed::follow(path).ok()?.by_iterations(iteration);
    // What was read just now is in order when later events have come, or none.
    for _ in 0..2 {
        feed.poll();
        take(&mut feed);
    }
    Some(())
}
