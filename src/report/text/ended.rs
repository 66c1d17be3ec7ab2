//! How a job ended, and what it went on after, in words of the first line.

use super::super::model::{Ended, Process, Report};
use super::super::units::{plural, size, thousands};
use crate::detect::caught;
use crate::event::steps::StepSource;
use crate::event::{HostKiller, SIGKILL, signal_name};

/// A process, and what it is called in a sentence: `the job`, or `rank 1`.
pub(super) struct HowEnded<'p> {
    pub(super) process: &'p Process<'p>,
    pub(super) job: String,
    /// An alert of strandline's ended it.
    pub(super) by_alert: bool,
}

impl HowEnded<'_> {
    /// How it ended, where it did not end well: `the job failed after step 31 (exit status 1)`.
    pub(super) fn how(&self) -> Option<String> {
        let p = self.process;
        let (steps, noun) = (p.replay.steps(), p.replay.step_source().noun());
        let when = match steps {
            0 => format!("before the first {noun} ended"),
            n if p.replay.step_source() == StepSource::Time => format!("after {}", plural(n.into(), noun)),
            n => format!("after {noun} {}", thousands(n.into())),
        };
        match (p.ended, p.replay.exit_status()) {
            // At an earlier step it had not ended.
            _ if p.at_step.is_some() => None,
            (Ended::Signal(_), _) if self.by_alert => {
                Some(format!("strandline ended {} {when} (--on-alert abort)", self.job))
            }
            (Ended::Signal(n), _) => Some(format!("{} ended {} {when}", signal(n), self.job)),
            (Ended::Exit, Some(status)) if status != 0 => {
                Some(format!("{} failed {when} (exit status {status})", self.job))
            }
            _ => None,
        }
    }

    /// The same, and what failed before, as sentences that follow another one.
    pub(super) fn after(&self) -> String {
        let how = self.how().map(|how| format!(" {}.", super::phrase::clause(&how)));
        format!("{}{}", self.caught(), how.unwrap_or_default())
    }

    /// An allocation that failed, and did not end the job.
    pub(super) fn caught(&self) -> String {
        let Some((_, o, n)) = caught(self.process.replay) else { return String::new() };
        let step = format!("{} {}", self.process.replay.step_source().noun(), thousands(o.step.into()));
        match n {
            1 => format!(
                " An allocation of {} failed in {step} (out of memory), and {} went on.",
                size(o.requested.0),
                self.job
            ),
            n => format!(
                " {} failed (out of memory), the last in {step}, and {} went on.",
                plural(n, "allocation"),
                self.job
            ),
        }
    }
}

/// Whether an alert ended the job; docs/verdicts.md, "Exit statuses".
pub(super) fn by_alert(r: &Report<'_>) -> bool {
    r.exit.is_some_and(|e| !e.own && e.status == 82)
}

/// Who may have sent SIGKILL, where it ended a process and nobody saw who did.
pub(in crate::report) fn killed(r: &Report<'_>) -> Option<String> {
    // An alert that ends the job does so itself.
    let is_alert = r.exit.is_some_and(|e| !e.own);
    let is_it = |p: &&Process<'_>| {
        p.ended == Ended::Signal(SIGKILL) && p.at_step.is_none() && !p.killer.killed() && !is_alert
    };
    let p = r.processes.iter().find(is_it)?;
    let host = if p.killer == HostKiller::Spared {
        "; it was not Linux's out-of-memory killer"
    } else {
        "; it may also come from Linux's out-of-memory killer, which writes to the kernel log (see dmesg)"
    };
    Some(format!(
        "SIGKILL usually comes from outside the job: from a scheduler that enforces a time or memory limit, a container that is being stopped, a launcher after another rank failed, or a person (kill -9, timeout -s KILL){host}"
    ))
}

/// `signal 15 (SIGTERM)`.
pub(super) fn signal(number: i32) -> String {
    let name = signal_name(number).map(|name| format!(" ({name})"));
    format!("signal {number}{}", name.unwrap_or_default())
}
