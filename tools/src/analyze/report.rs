//! What is printed about judged recordings, and what is worth typing next.

use super::judged::Judged;
use crate::say::shown;
use crate::{recording, words};
use std::path::Path;
use strandline::detect::Outcome;
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
    let advise = is_oom
        .then(|| (format!("strandline advise{one}"), "looks for changes that lower the peak".to_string()));
    let mut next = Vec::from_iter(advise);
    next.extend([
        (format!("strandline snapshot{one}"), "for pytorch.org/memory_viz".to_string()),
        (format!("strandline report{} --format json", named(place)), "for scripts".to_string()),
    ]);
    next
}

/// Whether a recorded process has not ended.
pub(crate) fn any_running(judged: &[Judged]) -> bool {
    judged.iter().any(Judged::is_running)
}
