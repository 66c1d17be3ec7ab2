//! The gate of `--fail-on-leak`: from what was found to an exit status, and why. No card is in it: the status follows certainty.

use super::judged::Judged;
use super::report::report;
use crate::error::status;
use strandline::detect::Outcome;
use strandline::event::printable;

/// A gate that a job must pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    /// What could not be judged is no failure.
    pub(crate) allow_inconclusive: bool,
}

/// What a gate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// 81 for a leak, 84 for what grows, 83 for what could not be judged, else 0.
    pub(crate) status: u8,
    /// Why, in one line, where it is not 0.
    pub(crate) why: String,
}

impl Gate {
    /// What the word on the job comes to: the same that its report begins with. None at all could not be judged.
    pub(crate) fn decide(&self, judged: &[Judged]) -> Decision {
        if judged.is_empty() {
            return self.nothing();
        }
        let report = report(judged, None);
        let gated = report.job().gated.and_then(|i| report.processes.get(i));
        let (outcome, why) = report.gated();
        self.decision(outcome, gated.is_some_and(|p| p.verdict.too_short), &why)
    }

    /// No process could be judged.
    pub(crate) fn nothing(&self) -> Decision {
        self.decision(Outcome::Unknown, false, "none of its processes has a readable recording")
    }

    /// In the words that a report begins with.
    fn decision(&self, outcome: Outcome, too_short: bool, why: &str) -> Decision {
        let (status, what) = match outcome {
            Outcome::Leak => (status::LEAK, "LEAK"),
            // Not known to be a leak, and no clean bill either.
            Outcome::Growing => (status::GROWING, "GROWING"),
            Outcome::Unknown if self.allow_inconclusive => return Decision { status: 0, why: String::new() },
            Outcome::Unknown if too_short => (status::NOT_JUDGED, "TOO SHORT"),
            Outcome::Unknown => (status::NOT_JUDGED, "NOT JUDGED"),
            _ => return Decision { status: 0, why: String::new() },
        };
        // Whoever named a file may mean the terminal by it.
        let why = printable(why);
        Decision { status, why: format!("exit status {status} (--fail-on-leak): {what}: {why}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_fails_for_a_leak_for_growth_and_for_what_could_not_be_judged() {
        let status = |outcome, allow_inconclusive| {
            let decision = Gate { allow_inconclusive }.decision(outcome, false, "this");
            assert_eq!(decision.why.is_empty(), decision.status == 0);
            decision.status
        };
        assert_eq!(status(Outcome::Leak, true), 81);
        assert_eq!(status(Outcome::Unknown, false), 83);
        assert_eq!(status(Outcome::Growing, true), 84);
        assert_eq!(status(Outcome::Unknown, true), 0);
        assert_eq!(status(Outcome::Clean, false), 0);
        assert_eq!(status(Outcome::Oom, false), 0, "an out-of-memory without a leak is no leak");
    }
}
