//! The gate of `--fail-on-leak`: from what was found to an exit status, and why. No card is in it: the status follows certainty.

use super::Judged;
use crate::alert::Threshold;
use crate::error::status;
use strandline::detect::{Certainty, Outcome, Verdict};
use strandline::event::printable;

/// A gate that a job must pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    /// What could not be judged is no failure.
    pub(crate) allow_inconclusive: bool,
    /// What is only growing, and not faster, is no failure.
    pub(crate) allow_growth: Option<Threshold>,
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
    /// The gravest of what the processes of a job come to. None at all could not be judged.
    pub(crate) fn decide(&self, judged: &[Judged]) -> Decision {
        // One that had nothing to be judged says nothing beside others.
        let grave = |(outcome, idle, _): &(Outcome, bool, String)| (!idle, order(*outcome));
        match judged.iter().rev().map(|j| self.one(j)).max_by_key(grave) {
            Some((outcome, _, why)) => self.decision(outcome, &why),
            None => self.nothing(),
        }
    }

    /// No process could be judged.
    pub(crate) fn nothing(&self) -> Decision {
        self.decision(Outcome::Unknown, "no process of it has a recording that can be read")
    }

    fn decision(&self, outcome: Outcome, why: &str) -> Decision {
        let (status, what) = match outcome {
            Outcome::Leak => (status::LEAK, "a leak"),
            // Not known to be a leak, and no clean bill either.
            Outcome::Growing => (status::GROWING, "growing"),
            Outcome::Unknown if !self.allow_inconclusive => (status::NOT_JUDGED, "could not be judged"),
            _ => return Decision { status: 0, why: String::new() },
        };
        // Whoever named a file may mean the terminal by it.
        let why = printable(why);
        Decision { status, why: format!("exit status {status}, for --fail-on-leak: {what}: {why}") }
    }

    /// What a process comes to, whether it had nothing to be judged, and why.
    fn one(&self, judged: &Judged) -> (Outcome, bool, String) {
        let verdict = judged.verdict_without(|f, known| {
            let allowed = self.allow_growth.filter(|_| f.certainty == Certainty::Growing);
            known.suppressed_by.is_some() || allowed.is_some_and(|rate| rate.covers(f, judged.replay()))
        });
        let idle = verdict.outcome == Outcome::Unknown && judged.is_idle();
        (verdict.outcome, idle, why(judged, &verdict))
    }
}

/// What decides among processes. That one ran out of memory hides nothing of another.
fn order(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Leak => 3,
        Outcome::Growing => 2,
        Outcome::Unknown => 1,
        Outcome::Clean | Outcome::Oom => 0,
    }
}

/// The reason and, where it is about a finding, its line.
fn why(judged: &Judged, verdict: &Verdict) -> String {
    let finding = verdict.finding.and_then(|i| Some((judged.findings().get(i)?, judged.known().get(i)?)));
    let Some((f, known)) = finding else { return verdict.reason.clone() };
    let at = match &known.kept_at {
        Some(kept) => Some((kept.file.clone(), kept.line)),
        None => {
            let site = f.sites.first().and_then(|s| judged.replay().site(s.site));
            site.map(|s| s.your_line.as_ref().unwrap_or(&s.frame)).map(|l| (l.file.clone(), l.line))
        }
    };
    let at = at.filter(|(file, _)| !file.is_empty());
    let at = at.map(|(file, line)| format!(", {file}:{line}")).unwrap_or_default();
    format!("{}{at}", verdict.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_fails_for_a_leak_for_growth_and_for_what_could_not_be_judged() {
        let status = |outcome, allow_inconclusive| {
            let decision = Gate { allow_inconclusive, allow_growth: None }.decision(outcome, "this");
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
