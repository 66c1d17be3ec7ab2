//! How soon it hurts: by steps and time until the device is full. It changes nothing in whether something is a leak.

use super::certainty::Certainty;
use super::until_full::{SecondsToOom, StepsToOom};
use crate::event::named;

named! {
    /// Severity, mildest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Severity {
        /// It will not fill the device soon, or nothing can be told so far ahead.
        Info = "info",
        /// The device will be full within 10,000 steps or 7 days.
        Warning = "warning",
        /// The device will be full within 200 steps or 24 hours, and before the job ends where that is known.
        Alert = "alert",
    }
}

/// Steps and seconds until full that are an alert.
pub(super) const ALERT_STEPS: u64 = 200;
const ALERT_SECONDS: u64 = 24 * 3600;
/// The same for a warning.
const WARNING_STEPS: u64 = 10_000;
const WARNING_SECONDS: u64 = 7 * 24 * 3600;
/// How far ahead what is only growing is drawn, in lengths of what was seen of it: a buffer that fills for a dozen steps says
/// little about the thousandth.
const REACH: u64 = 25;
/// Steps until full that need no such trust.
pub(super) const NEAR_STEPS: u64 = 50;
/// The same in seconds: long enough to save a checkpoint.
pub(super) const NEAR_SECONDS: u64 = 600;

/// What urgency is told by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Urgency {
    pub(super) steps: StepsToOom,
    /// `None` where no clock tells.
    pub(super) seconds: Option<SecondsToOom>,
    /// For how many marks growth was seen at its present pace.
    pub(super) seen: u64,
    pub(super) certainty: Certainty,
    /// Too early for an alert.
    pub(super) hasty: bool,
    /// Steps that the job still has to do, where known.
    pub(super) left: Option<u64>,
    /// The size of the device is known, not guessed.
    pub(super) is_known: bool,
}

impl Urgency {
    /// Full so soon that whoever waits to be sure is too late.
    pub(super) fn is_near(&self) -> bool {
        self.is_known && self.steps.mid <= NEAR_STEPS
    }

    pub(super) fn severity(&self) -> Severity {
        let trusted = self.certainty >= Certainty::Leak
            || self.steps.mid <= NEAR_STEPS
            || self.steps.mid <= self.seen.saturating_mul(REACH);
        let grows = self.certainty >= Certainty::Growing && self.steps.mid != u64::MAX;
        if !grows || !trusted || self.left.is_some_and(|l| self.steps.low > l) {
            return Severity::Info;
        }
        let within = |steps: u64, seconds: u64| {
            self.steps.mid <= steps || self.seconds.is_some_and(|s| s.mid <= seconds)
        };
        if within(ALERT_STEPS, ALERT_SECONDS) && !self.hasty {
            Severity::Alert
        } else if within(WARNING_STEPS, WARNING_SECONDS) {
            Severity::Warning
        } else {
            Severity::Info
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urgency(mid: u64, seen: u64, seconds: Option<u64>) -> Urgency {
        Urgency {
            steps: StepsToOom { low: mid / 2, mid, high: mid.saturating_mul(2) },
            seconds: seconds.map(|mid| SecondsToOom { low: mid, mid, high: mid }),
            seen,
            certainty: Certainty::Growing,
            hasty: false,
            left: None,
            is_known: true,
        }
    }

    #[test]
    fn severity_goes_by_steps_and_time_to_full() {
        for (mid, seen, seconds, want) in [
            (200, 8, None, Severity::Alert),
            (200, 7, None, Severity::Info),
            (50, 4, None, Severity::Alert),
            (201, 400, None, Severity::Warning),
            (5_000, 200, Some(24 * 3600), Severity::Alert),
            (5_000, 199, Some(24 * 3600), Severity::Info),
            (22_800, 1_000, Some(41), Severity::Alert),
            (9_000, 400, Some(9_000 * 60), Severity::Warning),
            (20_000, 1_000, Some(7 * 24 * 3600), Severity::Warning),
            (20_000, 1_000, Some(8 * 24 * 3600), Severity::Info),
            (20_000, 1_000, None, Severity::Info),
            (u64::MAX, 1_000, None, Severity::Info),
        ] {
            assert_eq!(urgency(mid, seen, seconds).severity(), want, "{mid} {seen} {seconds:?}");
        }
    }

    #[test]
    fn a_leak_is_drawn_as_far_as_it_reaches_and_no_further_than_the_job() {
        let growing = urgency(5_000, 60, None);
        let leak = Urgency { certainty: Certainty::Leak, ..growing };
        assert_eq!((growing.severity(), leak.severity()), (Severity::Info, Severity::Warning));
        let planned = |left| Urgency { left: Some(left), ..urgency(100, 400, None) };
        assert_eq!((planned(49).severity(), planned(50).severity()), (Severity::Info, Severity::Alert));
        let hasty = Urgency { hasty: true, ..urgency(20, 4, None) };
        assert_eq!(hasty.severity(), Severity::Warning);
        let bounded = Urgency { certainty: Certainty::Bounded, ..urgency(20, 4, None) };
        assert_eq!(bounded.severity(), Severity::Info);
    }
}
