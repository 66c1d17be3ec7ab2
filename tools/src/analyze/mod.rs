//! A recording → what is true of it: reader, replay and detectors put together, twice over the items.
//!
//! The first pass judges and finds the moments that matter; the second asks what filled the device at those.

mod feed;
mod foreign;
mod gate;
mod given;
mod judged;
mod moments;
mod recorded;
mod share;
mod suppress;

pub(crate) use feed::Feed;
pub(crate) use gate::{Decision, Gate};
pub(crate) use given::Given;
pub(crate) use judged::{Judged, started, symbolized};
pub(crate) use share::Share;
pub(crate) use suppress::{Suppressions, Within};

use crate::error::{Error, status};
use crate::run::{self, shown};
use crate::say::Progress;
use crate::{known, recording, words};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use strandline::detect::{Outcome, SelfFault};
use strandline::event::{Item, Names};
use strandline::report::{self as print, Exit, Process, Report};

/// What a run came to: its report as text, and the worst of its verdicts.
pub(crate) struct Conclusion {
    /// The report.
    pub(crate) text: String,
    /// The worst verdict of all processes.
    pub(crate) outcome: Outcome,
    /// What the gate says, where there is one.
    pub(crate) gate: Option<Decision>,
    /// The report says that the host killed a recorded process.
    pub(crate) says_killed: bool,
    /// What of strandline a process may have died of, and its recording.
    pub(crate) failed: Option<(SelfFault, PathBuf)>,
}

impl Conclusion {
    /// Worth saying even where the user wants quiet.
    pub(crate) fn is_news(&self) -> bool {
        self.failed.is_some() || !matches!(self.outcome, Outcome::Clean | Outcome::Unknown)
    }
}

/// Judges recordings, one after the other, but for what is suppressed, telling on stderr where it is when that takes time. What is
/// private is folded, where `share` is given.
///
/// # Errors
/// None of them can be read; where some can, the others are told and left out.
pub(crate) fn judge(
    recordings: &[PathBuf],
    outcome: Option<&run::Outcome>,
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
            crate::say::line(e.to_string());
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
    judged.iter().map(|j| j.at(step, suppressions, &mut tell)).collect()
}

/// What can be printed about them.
pub(crate) fn report(judged: &[Judged], exit: Option<Exit>) -> Report<'_> {
    let processes: Vec<Process<'_>> = judged.iter().map(Judged::process).collect();
    Report { processes, exit, next: Vec::new() }
}

/// Judges what a run has recorded and words it. `exit` gives the status that the command will end with, from what the gate
/// says, and whether it is the job's own.
///
/// # Errors
/// No recording can be read.
pub(crate) fn conclude(
    recordings: &[PathBuf],
    outcome: &run::Outcome,
    suppressions: &Suppressions,
    gate: Option<Gate>,
    exit: impl Fn(Option<&Decision>) -> Exit,
) -> Result<Conclusion, Error> {
    let judged = judge(recordings, Some(outcome), suppressions, None)?;
    let gate = gate.map(|g| g.decide(&judged));
    let mut report = report(&judged, Some(exit(gate.as_ref())));
    if let Some(folder) = recordings.first().and_then(|r| r.parent()) {
        report.next = next(&judged, folder);
    }
    let mut text = Vec::new();
    let written = print::text::write(&mut text, &report, crate::terminal::style_of_stderr());
    written.map_err(|e| Error::new(format!("cannot word the report: {e}")))?;
    let says_killed = report.processes.iter().any(|p| p.killed_by_host);
    Ok(Conclusion {
        text: String::from_utf8_lossy(&text).into_owned(),
        outcome: report.job().outcome,
        gate,
        says_killed,
        failed: judged.iter().find_map(|j| Some((j.self_fault()?.clone(), j.path.clone()))),
    })
}

/// What is worth typing next. `place` is what was judged: a recording, or the folder of a run.
pub(crate) fn next(judged: &[Judged], place: &Path) -> Vec<(String, String)> {
    // The newest run needs no name.
    let newest = recording::find(None).unwrap_or_default();
    let is_newest = newest.iter().any(|path| judged.iter().any(|j| recording::is_same(path, &j.path)));
    let named = |path: &Path| match is_newest {
        true => String::new(),
        false => format!(" {}", words::quoted(&[shown(path).trim_end_matches('/').into()])),
    };
    if any_running(judged) {
        let again = format!("strandline report{}", named(place));
        return vec![(again, "again, once what is still running has ended".to_string())];
    }
    // A snapshot is of one process: the one that matters.
    let order = report(judged, None).job().order;
    let Some(worst) = order.iter().filter_map(|i| judged.get(*i)).find(|j| j.has_blocks()) else {
        return vec![("strandline doctor".to_string(), "what was not seen, and why".to_string())];
    };
    let one = match judged.len() {
        1 => named(place),
        _ => format!(" {}", words::quoted(&[shown(&worst.path).into()])),
    };
    vec![
        (format!("strandline snapshot{one}"), "for pytorch.org/memory_viz".to_string()),
        (format!("strandline report{} --format json", named(place)), "for a program".to_string()),
    ]
}

/// Whether a recorded process has not ended.
pub(crate) fn any_running(judged: &[Judged]) -> bool {
    judged.iter().any(Judged::is_running)
}

/// Hands every item of a recording to `each`, with the stacks and texts known by then; the damage that was met.
///
/// # Errors
/// The recording cannot be read.
pub(crate) fn items(
    path: &Path,
    mut each: impl FnMut(&Item, &Names) -> ControlFlow<()>,
) -> Result<Vec<String>, Error> {
    let mut feed = Feed::open(path)?;
    while let Some((given, names)) = feed.next() {
        let flow = match given {
            Given::Events(events) => events.iter().try_for_each(|e| each(&Item::Event(*e), names)),
            Given::Item(item) => each(&item, names),
        };
        if flow.is_break() {
            break;
        }
    }
    Ok(feed.damage())
}

/// The one recording that a command works on.
///
/// # Errors
/// There are several.
pub(crate) fn only(found: &[PathBuf]) -> Result<&Path, Error> {
    match found {
        [one] => Ok(one),
        [] => Err(Error::new("there is no recording").status(status::USAGE)),
        [first, ..] => {
            let what =
                format!("there are {} recordings, one for each process; this command takes one", found.len());
            Err(Error::new(what).hint(format!("such as {}", shown(first))).status(status::USAGE))
        }
    }
}

/// What is known of each finding of a process.
fn known_of(judged: &Judged) -> Vec<print::Known> {
    let (replay, names, began) = (judged.replay(), judged.names(), judged.epoch_ns());
    judged.findings().iter().map(|f| known::of(f, replay, names, began, judged.share())).collect()
}
