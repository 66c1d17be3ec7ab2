//! What a run came to, as the command that ran it says it.

use super::gate::{Decision, Gate};
use super::judge::judge;
use super::report::{next, report};
use super::suppress::Suppressions;
use crate::error::Error;
use crate::job::Seen;
use std::path::PathBuf;
use strandline::detect::{Outcome, SelfFault};
use strandline::report::{self as print, Exit};

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
    /// Whether it is printed although the user asked for quiet (`-q`).
    pub(crate) fn prints_when_quiet(&self) -> bool {
        self.failed.is_some() || !matches!(self.outcome, Outcome::Clean | Outcome::Unknown)
    }
}

/// Judges what a run has recorded and words it. `exit` gives the status that the command will end with, from what the gate
/// says, and whether it is the job's own.
///
/// # Errors
/// No recording can be read.
pub(crate) fn conclude(
    recordings: &[PathBuf],
    outcome: &Seen,
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
    written.map_err(|e| Error::new(format!("cannot write the report: {e}")))?;
    let says_killed = report.processes.iter().any(|p| p.killer.killed());
    Ok(Conclusion {
        text: String::from_utf8_lossy(&text).into_owned(),
        outcome: report.job().outcome,
        gate,
        says_killed,
        failed: judged.iter().find_map(|j| Some((j.self_fault.clone()?, j.path.clone()))),
    })
}
