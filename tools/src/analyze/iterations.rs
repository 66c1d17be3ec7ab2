//! A job without steps that is too short to be judged by seconds, and what a job does after its training: it is read once more, by the
//! iterations of its loop.

use super::analysis::Analysis;
use super::feed::Feed;
use super::given::Given;
use super::judged::Judged;
use crate::error::Error;
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::Path;
use strandline::detect::{Finding, Outcome, Verdict, after_training, judge};
use strandline::event::steps::{Iterations, Recurring};
use strandline::event::{Event, Item, Nanos};
use strandline::replay::Replay;
use strandline::report::Ended;

/// By what the iterations of a job are counted that was judged too short, or that did something else after its training, where that is known;
/// and whether a loop around that may have been too short.
///
/// # Errors
/// The recording cannot be read again.
pub(super) fn of_judged(judged: &Judged) -> Result<Option<(Iterations, bool)>, Error> {
    let is_whole = judged.read.summary.restored == 0 && judged.until.is_none();
    let after = match after(&judged.verdict, &judged.replay) {
        Some(after) if is_whole && judged.has_blocks() => after,
        _ => return Ok(None),
    };
    let (mut feed, mut recurring) = (judged.again()?, Recurring::default());
    count(&mut feed, after, &mut recurring);
    Ok(recurring.iteration().map(|stack| (Iterations { stack, after }, recurring.has_few_around())))
}

/// Counts what a feed gives, from a moment on.
fn count(feed: &mut Feed, after: Option<Nanos>, recurring: &mut Recurring) {
    let is_counted = |e: &&Event| after.is_none_or(|last| e.time >= last);
    while let Some((given, _)) = feed.next() {
        if let Given::Events(events) = given {
            events.iter().filter(is_counted).for_each(|e| recurring.take(e));
        }
    }
}

/// From when on iterations may tell more of a job than its steps or seconds, which have found nothing. `Some(None)`: from its beginning, where too few
/// seconds are what keeps a job without steps from being judged. Else from the end of its training, where that was shorter than what followed.
fn after(verdict: &Verdict, replay: &Replay) -> Option<Option<Nanos>> {
    if verdict.too_short && !replay.step_source().is_training() {
        return Some(None);
    }
    let is_open = matches!(verdict.outcome, Outcome::Clean | Outcome::Oom) || verdict.too_short;
    after_training(replay).filter(|_| is_open).map(Some)
}

/// Whether a job judged by its iterations is told so, that was too short before: for an allocation that failed, only what grew is another reason. With
/// a loop around that was too short nothing is clean. Of a training only its steps could say that.
///
/// # Errors
/// The recording cannot be read again.
pub(super) fn tells_more(
    by_iterations: &Judged,
    before: &Judged,
    has_few_around: bool,
) -> Result<bool, Error> {
    let has_trained = before.replay.step_source().is_training();
    match by_iterations.verdict.outcome {
        Outcome::Leak | Outcome::Growing if has_trained => is_kept_to_the_end(by_iterations),
        Outcome::Leak | Outcome::Growing => Ok(true),
        Outcome::Clean => Ok(before.verdict.outcome == Outcome::Unknown && !has_few_around && !has_trained),
        Outcome::Oom | Outcome::Unknown => Ok(false),
    }
}

/// Whether what grew after a training was kept until Python began to end, or the job was ended. What an evaluation collects is freed as it returns,
/// and what it makes anew and larger is no leak of a job that goes on.
fn is_kept_to_the_end(judged: &Judged) -> Result<bool, Error> {
    let grows = |f: &&Finding| f.is_active_leak() && !f.is_remade();
    let mut found = judged.findings().iter().filter(grows).peekable();
    let Some(ending) = judged.replay.meta().get("ending").and_then(Value::as_u64) else {
        return Ok(found.peek().is_some() && judged.ended != Ended::Exit);
    };
    let mut replay = Replay::new();
    judged.again()?.until(|item, names| {
        if matches!(item, Item::Event(e) if e.time.0 >= ending) {
            return ControlFlow::Break(());
        }
        replay.apply(item, names);
        ControlFlow::Continue(())
    });
    let live = |f: &Finding| replay.blocks(f.device).filter(|h| f.counts(h) && !h.pending).count() as u64;
    Ok(found.any(|f| live(f) * 2 >= f.blocks_now))
}

/// A job that runs, as its iterations show it so far; `None` where its steps, or its seconds, are what tells.
pub(crate) fn by_iterations(so_far: &Analysis, path: &Path) -> Option<Analysis> {
    let after = after(&judge(&so_far.replay, &so_far.detector), &so_far.replay)?;
    let (mut recurring, mut analysis) = (Recurring::default(), Analysis::new());
    read_so_far(path, None, |feed| count(feed, after, &mut recurring))?;
    let of = Iterations { stack: recurring.iteration()?, after };
    read_so_far(path, Some(of), |feed| {
        feed.each(|item, names| {
            analysis.take(item, names);
        });
    })?;
    Some(analysis)
}

/// What the recording of a job that runs has by now.
fn read_so_far(path: &Path, iterations: Option<Iterations>, mut take: impl FnMut(&mut Feed)) -> Option<()> {
    let mut feed = Feed::follow(path).ok()?.by_iterations(iterations);
    // What was read just now is in order when later events have come, or none.
    for _ in 0..2 {
        feed.poll();
        take(&mut feed);
    }
    Some(())
}
