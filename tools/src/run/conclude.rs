//! What came of a job: its report, what is said of it, and the exit status.

use super::nothing;
use super::plan::{Outcome, Plan};
use crate::analyze::{self, Conclusion, Decision, Gate, Suppressions};
use crate::error::status;
use crate::job::Ended;
use crate::say;
use strandline::report::Exit;

/// Says what came of it; `None` where there is nothing to judge. In a quiet run only news are said, and why a gate fails.
pub(crate) fn conclude(
    plan: &Plan,
    outcome: &Outcome,
    quiet: bool,
    gate: Option<Gate>,
    suppressions: &Suppressions,
) -> Option<Conclusion> {
    let gate_fails = |decision: Option<&Decision>| {
        outcome.aborted || outcome.seen.ended.status() == 0 && exit_status(outcome, decision) != 0
    };
    let killed_by_host = outcome.seen.killer.killed();
    if outcome.recordings.is_empty() {
        if killed_by_host {
            say_killed(outcome.seen.ended);
        }
        let deleted = if plan.folder.exists() { outcome.tails.deleted() } else { Some(&*plan.folder) };
        if !quiet || gate_fails(gate.map(|g| g.nothing()).as_ref()) || deleted.is_some() {
            nothing::say(plan, outcome, deleted);
        }
        let _ = std::fs::remove_dir(&plan.folder);
        return None;
    }
    let exit = |decision: Option<&Decision>| {
        let status = exit_status(outcome, decision);
        Exit { status: i32::from(status), own: !gate_fails(decision) }
    };
    match analyze::conclude(&outcome.recordings, &outcome.seen, suppressions, gate, exit) {
        Ok(conclusion) => {
            if killed_by_host && !conclusion.says_killed {
                say_killed(outcome.seen.ended);
            }
            if !quiet || conclusion.prints_when_quiet() || gate_fails(conclusion.gate.as_ref()) {
                say::raw(&conclusion.text);
            }
            Some(conclusion)
        }
        Err(e) => {
            say::line(e.to_string());
            None
        }
    }
}

fn say_killed(ended: Ended) {
    words_of_a_kill(ended).iter().for_each(|line| say::line(*line));
}

/// People take it for a GPU's out-of-memory, or for nothing at all: a DataLoader worker that is just gone. The kernel counts by control
/// group, which a job may share with others' programs: only where the job itself ended by SIGKILL is it said to be the one.
fn words_of_a_kill(ended: Ended) -> &'static [&'static str] {
    const HOST_MEMORY: &str =
        "that is host memory (RAM), not GPU memory: use fewer DataLoader workers, or raise the memory limit";
    match ended.status() {
        0 => &[
            "while the job ran, Linux's out-of-memory killer ended a process in the same control group (host memory, not GPU memory)",
        ],
        137 => &[
            "KILLED BY THE HOST: Linux's out-of-memory killer ended the job, or a process beside it",
            HOST_MEMORY,
        ],
        _ => &[
            "while the job ran, Linux's out-of-memory killer ended a process in its control group: perhaps one of the job's, such as a DataLoader worker",
            HOST_MEMORY,
        ],
    }
}

/// 82 where an alert ended the job; else its own status if it is not 0; otherwise the gate's, where there is one.
pub(super) fn exit_status(outcome: &Outcome, gate: Option<&Decision>) -> u8 {
    match (outcome.seen.ended.status(), gate) {
        _ if outcome.aborted => status::ABORTED,
        (0, Some(gate)) => gate.status,
        (own, _) => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Seen;
    use crate::run::tails;
    use strandline::event::HostKiller;

    #[test]
    fn only_a_job_that_was_killed_is_called_so() {
        assert!(words_of_a_kill(Ended::Signal(9))[0].starts_with("KILLED BY THE HOST"));
        for status in [0, 1] {
            assert!(!words_of_a_kill(Ended::Exit(status)).concat().contains("KILLED"), "{status}");
        }
    }

    #[test]
    fn the_jobs_own_status_always_wins() {
        let leak = Some(&Decision { status: 81, why: String::new() });
        let came = |ended, aborted| Outcome {
            seen: Seen { pid: 1, ended, killer: HostKiller::Uncounted },
            recordings: Vec::new(),
            aborted,
            tails: tails::Kept::default(),
        };
        let exit_status = |ended, gate| super::exit_status(&came(ended, false), gate);
        assert_eq!(super::exit_status(&came(Ended::Signal(15), true), leak), 82);
        assert_eq!(exit_status(Ended::Exit(3), leak), 3);
        assert_eq!(exit_status(Ended::Signal(9), leak), 137);
        assert_eq!(exit_status(Ended::Exit(0), leak), 81);
        assert_eq!(exit_status(Ended::Exit(0), None), 0);
    }
}
