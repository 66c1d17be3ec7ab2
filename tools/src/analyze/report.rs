//! What is printed about judged recordings, and what is worth typing next.

use super::judged::Judged;
use crate::say::shown;
use crate::{recording, words};
use std::path::Path;
use strandline::detect::Outcome;
use strandline::event::steps::StepSource;
use strandline::report::{Exit, Process, Report};

/// What can be printed about them.
pub(crate) fn report(judged: &[Judged], exit: Option<Exit>) -> Report<'_> {
    let processes: Vec<Process<'_>> = judged.iter().map(Judged::process).collect();
    Report { processes, exit, ..Report::default() }
}

/// What is worth typing next. `place` is what was judged: a recording, or the folder of a run.
pub(crate) fn next(judged: &[Judged], place: &Path) -> Vec<(String, String)> {
    // The newest run needs no name.
    let newest = recording::find(None).unwrap_or_default();
    let is_newest = recording::has_same(&newest, judged.iter().map(|j| j.path.as_path()));
    let named = |path: &Path| match is_newest {
        true => String::new(),
        false => format!(" {}", words::quoted(&[shown(path).trim_end_matches('/').into()])),
    };
    if any_running(judged) {
        let again = format!("strandline report{}", named(place));
        return vec![(again, "run this again when the job has ended".to_string())];
    }
    // A snapshot is of one process: the one that matters.
    let order = report(judged, None).job().order;
    let Some(worst) = order.iter().filter_map(|i| judged.get(*i)).find(|j| j.has_blocks()) else {
        return match judged.iter().any(|j| !j.read.damage.is_empty()) {
            // What the job did cannot be the reason.
            true => vec![("strandline run …".to_string(), "to record it again".to_string())],
            false => vec![(
                "strandline doctor".to_string(),
                "to see what could not be recorded, and why".to_string(),
            )],
        };
    };
    let one = match judged.len() {
        1 => named(place),
        _ => format!(" {}", words::quoted(&[shown(&worst.path).into()])),
    };
    let is_oom = worst.verdict.outcome == Outcome::Oom;
    // Of what is loaded before the first step, the report says all that helps.
    let advise = (is_oom && worst.replay.steps() > 0)
        .then(|| (format!("strandline advise{one}"), "looks for changes that lower the peak".to_string()));
    let has_no_steps = matches!(worst.replay.step_source(), StepSource::None | StepSource::Time);
    let is_short = worst.verdict.outcome == Outcome::Unknown && worst.verdict.too_short;
    let is_whole = !worst.read.is_snapshot && worst.read.damage.is_empty();
    let manual = (is_short && has_no_steps && is_whole).then(|| {
        let why = "if the job has a loop: call strandline.step() at the end of each iteration, so that iterations count as steps";
        ("strandline run --steps manual …".to_string(), why.to_string())
    });
    // A snapshot is one already.
    let snapshot = (!worst.read.is_snapshot)
        .then(|| (format!("strandline snapshot{one}"), "for pytorch.org/memory_viz".to_string()));
    let mut next: Vec<_> = advise.into_iter().chain(manual).chain(snapshot).collect();
    next.push((format!("strandline report{} --format json", named(place)), "for scripts".to_string()));
    next
}

/// Whether a recorded process has not ended.
pub(crate) fn any_running(judged: &[Judged]) -> bool {
    judged.iter().any(Judged::is_running)
}
