//! Changes that were tried: what the job needs with each, by running it.

use crate::cli;
use crate::error::Error;
use crate::job::Job;
use crate::trial::{Attempt, Card, Made, Needs, RunsFolder, Tried, Try, aside};
use serde_json::{Value, json};
use std::path::Path;
use strandline::event::printable;
use strandline::report::{Style, size};

/// A change, and what came of it.
pub(super) struct Change {
    /// As it was given.
    given: String,
    /// What of the command was changed.
    made: Made,
    /// What the job needs with it, or its status and last lines where it fails.
    result: Result<Needs, (u8, Vec<String>)>,
}

/// Runs the job once with each change.
///
/// # Errors
/// A change has no place in the command, with the status of bad usage; a run could not be started, or somebody ended it.
pub(super) fn all(options: &cli::Predict, simulated: &Path, cards: &[Card]) -> Result<Vec<Change>, Error> {
    if options.tries.is_empty() {
        return Ok(Vec::new());
    }
    let name = Job::new(&options.command, Some(simulated)).name();
    let folder = RunsFolder::make(None, &name)?;
    let one = |(number, change): (u32, &Try)| {
        let (mut command, mut variables) = (options.command.clone(), Vec::new());
        let made = change.make(&mut command, &mut variables)?;
        let attempt = Attempt {
            command: &command,
            variables,
            folder: folder.path.join(format!("try-{number}")),
            devices: options.devices,
            steps: options.steps,
            cards,
            ..Attempt::default()
        };
        let result = match aside(simulated, attempt, false)? {
            (Tried::Needs(needs), _) => Ok(needs),
            (Tried::Failed { status, .. }, lines) => Err((status, lines)),
            (Tried::Unused, _) => Err((0, vec!["it used no GPU memory".to_owned()])),
        };
        Ok(Change { given: change.given.clone(), made, result })
    };
    (1..).zip(&options.tries).map(one).collect()
}

impl Change {
    /// Lines for people; `before`: what the job needs without it.
    pub(super) fn text(&self, before: &Needs, style: Style) -> Vec<String> {
        let told = match &self.result {
            Ok(needs) => {
                let (now, then) = (needs.bytes(), before.bytes());
                let than = match (now.cmp(&then), size(now.abs_diff(then))) {
                    (std::cmp::Ordering::Less, by) => format!("{by} less"),
                    (std::cmp::Ordering::Equal, _) => "as much as without this change".to_owned(),
                    (std::cmp::Ordering::Greater, by) => format!("{by} more"),
                };
                format!("needs {}, {than} ({})", size(now), self.made.instead())
            }
            Err((status, lines)) => {
                let last = lines.last().map(|l| format!(": {}", printable(l))).unwrap_or_default();
                format!("the job fails with this change, status {status}{last} ({})", self.made.place())
            }
        };
        style.wrap("  try      ", &format!("{}: {told}", printable(&self.given)))
    }

    /// For programs.
    pub(super) fn json(&self, before: &Needs) -> Value {
        let needs = self.result.as_ref().ok();
        let peaks = needs.map(Needs::most);
        let saved = needs.map(|n| (i128::from(before.bytes()) - i128::from(n.bytes())) as i64);
        let failed =
            self.result.as_ref().err().map(|(status, lines)| json!({ "status": status, "output": lines }));
        json!({
            "change": self.given, "replaced": self.made.place(), "needed_bytes": needs.map(Needs::bytes), "saved_bytes": saved,
            "peak_allocated_bytes": peaks.map(|p| p.0), "peak_reserved_bytes": peaks.map(|p| p.1), "failed": failed,
        })
    }
}
