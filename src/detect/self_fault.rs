//! Whether strandline itself may have ended a process: what is known of its death, held against what of strandline its threads were in.
//!
//! Only a signal that a thread brings about itself counts: whoever sends one from outside may meet a thread anywhere, and `abort` is how
//! libraries end a process on purpose. The kernel does not tell which thread it was, so a hook that another thread was in by chance
//! looks the same: it is said as what may be.

use super::verdict::{Outcome, Verdict};
use crate::event::{AtWork, signal_name};

/// What is known of how a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// It has not, or by itself.
    None,
    /// Of this signal.
    Signal(i32),
    /// Not by itself, and its exit status is not known.
    Unseen,
}

/// What of strandline threads were in when their process died of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfFault {
    /// That, in words: `cudaMemGetInfo`.
    pub place: String,
    /// Of which signal.
    pub signal: &'static str,
    /// The option of `run` that may avoid it until it is mended: `--stacks none`.
    pub remedy: Option<&'static str>,
}

/// Signals that a thread's own instruction raises (x86-64).
const FAULTS: [&str; 4] = ["SIGILL", "SIGBUS", "SIGFPE", "SIGSEGV"];

/// Whether a signal is one that a thread's own instruction raises.
pub fn is_fault(signal: i32) -> bool {
    signal_name(signal).is_some_and(|name| FAULTS.contains(&name))
}

/// Judges it.
pub fn self_fault(death: Death, at_work: &[AtWork]) -> Option<SelfFault> {
    let Death::Signal(n) = death else { return None };
    let signal = signal_name(n).filter(|_| is_fault(n))?;
    let place = Some(places(at_work)).filter(|p| !p.is_empty())?;
    let is_hook = |w: &AtWork| matches!(w, AtWork::Hook(_));
    // What a hook does most, and what reads most memory of others, is the walk over a stack.
    let remedy = at_work.iter().any(is_hook).then_some("--stacks none");
    Some(SelfFault { place, signal, remedy })
}

fn places(at_work: &[AtWork]) -> String {
    at_work.iter().map(|w| w.name()).collect::<Vec<_>>().join(" or ")
}

/// The verdict on a process that died: not clean if strandline itself may have caused it. What was found stays.
pub fn verdict_after_fault(verdict: Verdict, death: Death, at_work: &[AtWork]) -> Verdict {
    if matches!(verdict.outcome, Outcome::Leak | Outcome::Growing) {
        return verdict;
    }
    if let Some(fault) = self_fault(death, at_work) {
        return Verdict::new(Outcome::Unknown, fault.to_string());
    }
    if death == Death::Unseen && !at_work.is_empty() && verdict.outcome == Outcome::Clean {
        let reason = format!(
            "the process ended in the middle of strandline's code in {}, and its exit status is not known: if it was not killed, please report it",
            places(at_work)
        );
        return Verdict::new(Outcome::Unknown, reason);
    }
    verdict
}

impl std::fmt::Display for SelfFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SelfFault { place, signal, .. } = self;
        write!(
            f,
            "strandline itself may have failed in {place}: a thread was running strandline's code there when the process died of {signal}; {}",
            self.advice()
        )
    }
}

impl SelfFault {
    /// What a person can do: `please report it; `--stacks none` may avoid it`.
    pub fn advice(&self) -> String {
        let help = self.remedy.map_or_else(String::new, |r| format!("; `{r}` may avoid it"));
        format!("please report it{help}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Room;

    const HOOK: AtWork = AtWork::Hook("cudaMemGetInfo");

    #[test]
    fn only_a_fault_in_our_own_code_is_ours() {
        for signal in [4, 7, 8, 11] {
            assert!(self_fault(Death::Signal(signal), &[HOOK]).is_some());
            assert_eq!(self_fault(Death::Signal(signal), &[]), None, "elsewhere: the job's own");
        }
        // SIGHUP, SIGINT, SIGABRT, SIGKILL, SIGUSR1, SIGTERM: sent, or on purpose.
        for sent in [1, 2, 6, 9, 10, 15] {
            assert_eq!(self_fault(Death::Signal(sent), &[HOOK]), None, "{sent}");
        }
        assert_eq!(self_fault(Death::Unseen, &[HOOK]), None);
        assert_eq!(self_fault(Death::None, &[HOOK]), None);
    }

    #[test]
    fn it_is_said_where_of_what_and_what_may_help() {
        let all = [HOOK, AtWork::Room(Room::Probe)];
        let text = self_fault(Death::Signal(11), &all).unwrap().to_string();
        let begin =
            "strandline itself may have failed in cudaMemGetInfo or searching for the holder of a leak: ";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.ends_with("died of SIGSEGV; please report it; `--stacks none` may avoid it"), "{text}");
        let probe = self_fault(Death::Signal(11), &all[1..]).unwrap();
        assert_eq!(probe.advice(), "please report it", "stacks have no part in it");
    }

    #[test]
    fn nothing_that_we_may_have_cut_short_is_clean() {
        let outcome = |outcome, death, at_work: &[AtWork]| {
            verdict_after_fault(Verdict::new(outcome, ""), death, at_work).outcome
        };
        for told in [Outcome::Clean, Outcome::Oom, Outcome::Unknown] {
            assert_eq!(outcome(told, Death::Signal(11), &[HOOK]), Outcome::Unknown);
            assert_eq!(outcome(told, Death::Signal(9), &[HOOK]), told);
            assert_eq!(outcome(told, Death::Signal(11), &[]), told);
        }
        assert_eq!(outcome(Outcome::Leak, Death::Signal(11), &[HOOK]), Outcome::Leak);
        assert_eq!(outcome(Outcome::Clean, Death::Unseen, &[HOOK]), Outcome::Unknown);
        assert_eq!(outcome(Outcome::Clean, Death::Unseen, &[]), Outcome::Clean);
        let verdict = verdict_after_fault(Verdict::new(Outcome::Clean, ""), Death::Unseen, &[HOOK]);
        assert!(!verdict.reason.contains("failed"), "nobody is blamed: {}", verdict.reason);
    }
}
