//! How bad: by time until the device is full, not by bytes.

use super::finding::StepsToOom;
use super::forecast::{self, Headroom, Rate};

/// Severity, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Worth a line: it will not fill the device in any run of ordinary length.
    Info,
    /// The device will be full within 10,000 steps, and within 100 times as many as growth was seen for.
    Warning,
    /// The device will be full within 200 steps; or within a day, 10,000 steps, and 25 times as many as
    /// growth was seen for.
    Alert,
}

/// Steps until full that are an alert whatever their length.
pub(super) const ALERT_STEPS: u64 = 200;
/// Time until full that is an alert, in nanoseconds: a day.
pub(super) const ALERT_NANOS: f64 = 24.0 * 3600.0 * 1e9;
/// Steps until full beyond which it is no warning.
pub(super) const WARNING_STEPS: u64 = 10_000;

/// How far ahead growth is drawn, in lengths of what was seen of it: a queue that fills for a dozen steps
/// says little about the ten-thousandth.
pub(super) const WARNING_REACH: u64 = 100;
/// The same for an alert.
const ALERT_REACH: u64 = 25;
/// How many marks each rise counts for where nothing but a leak looks like it: blocks of a side stream that was left, rising
/// through the whole run. Queues and caches that fill do not come to that; a few buffers that are made one after
/// the other do, so that it is the rises that count.
pub(super) const SURE: u64 = 4;

impl Severity {
    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Alert => "alert",
        }
    }

    /// By what grows into which room, seen for so many `marks`, or for what counts as `seen` of them. Where growth has become
    /// faster, what it is now was not seen for all that time: at the present pace what has grown so far would have taken less.
    pub(super) fn judged(
        room: &Headroom,
        rate: &Rate,
        (marks, seen): (u32, u64),
        nanos: Option<f64>,
        left: Option<u64>,
    ) -> Severity {
        let share = if rate.current > rate.bytes { (rate.bytes / rate.current).max(0.0) } else { 1.0 };
        Severity::of(&forecast::interval(room, rate, marks), (seen as f64 * share) as u64, nanos, left)
    }

    /// By the forecast; `seen` is for how many steps growth was watched (or [`SURE`] for each rise where that is due), `nanos`
    /// how long one takes, `left` how many the job still has to do, where known.
    pub(super) fn of(f: &StepsToOom, seen: u64, nanos: Option<f64>, left: Option<u64>) -> Severity {
        let trust = |reach: u64| f.mid <= ALERT_STEPS || f.mid <= seen.saturating_mul(reach);
        if f.mid > WARNING_STEPS || left.is_some_and(|l| f.low > l) || !trust(WARNING_REACH) {
            return Severity::Info;
        }
        let soon = nanos.is_some_and(|n| n * f.mid as f64 <= ALERT_NANOS);
        if trust(ALERT_REACH) && (f.mid <= ALERT_STEPS || soon) { Severity::Alert } else { Severity::Warning }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of what grew did so at the present pace: it is drawn half as far ahead as if it always had.
    #[test]
    fn a_pace_is_drawn_as_far_ahead_as_it_was_seen_for() {
        let room = Headroom { bytes: 6_000, most: 6_000, known: true };
        let of = |bytes, current, seen| {
            let rate = Rate { bytes, current, highest: current, blocks: 1.0, ratio: 1.0 };
            Severity::judged(&room, &rate, (seen, seen.into()), None, None)
        };
        assert_eq!(
            [of(1.0, 1.0, 61), of(0.5, 1.0, 61), of(0.5, 1.0, 121)].map(Severity::name),
            ["warning", "info", "warning"]
        );
        assert_eq!(
            of(4.0, 1.0, 61),
            Severity::Warning,
            "what has become slower was seen at its present pace at least"
        );
        assert_eq!(of(1.0, 40.0, 4), Severity::Alert, "what is full soon is told however short it was seen");
    }

    #[test]
    fn severity_goes_by_time_to_full() {
        let f = |mid| StepsToOom { low: mid / 2, mid, high: mid * 2 };
        for (mid, seen, nanos, left, want) in [
            (200, 4, None, None, Severity::Alert),
            (201, 400, None, None, Severity::Warning),
            (5_000, 400, Some(1e9), None, Severity::Alert),
            (5_000, 60, Some(1e9), None, Severity::Warning),
            (5_000, 40, Some(1e9), None, Severity::Info),
            (9_000, 400, Some(60e9), None, Severity::Warning),
            (10_001, 400, Some(1e3), None, Severity::Info),
            (100, 400, None, Some(40), Severity::Info),
            (100, 400, None, Some(60), Severity::Alert),
        ] {
            assert_eq!(Severity::of(&f(mid), seen, nanos, left), want, "{mid} {seen} {nanos:?} {left:?}");
        }
    }
}
