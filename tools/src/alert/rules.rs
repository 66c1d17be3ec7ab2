//! Which findings are announced.

use crate::rate::Threshold;
use strandline::detect::{Finding, GrainName, Severity};
use strandline::replay::Replay;

/// The rules. Without any: what the detectors themselves call an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rules {
    /// A leak that grows as fast as this.
    pub(crate) growth: Option<Threshold>,
    /// A leak that fills its device within so many steps.
    pub(crate) within: Option<u64>,
    /// Nothing before this step.
    pub(crate) after: u32,
}

impl Rules {
    /// Whether a finding that was announced ends the job: what may end by itself waits until the device is nearly full, unless the user's own
    /// rules announced it.
    pub(crate) fn ends(&self, finding: &Finding) -> bool {
        self.growth.is_some() || self.within.is_some() || finding.is_imminent()
    }

    /// Whether this finding is to be announced as it stands.
    pub(crate) fn want(&self, finding: &Finding, replay: &Replay) -> bool {
        // Growth seen for a few steps may be a cache that fills: by a threshold of the user's it is not announced either.
        let hasty = !finding.established && finding.kind.may_be_buffer();
        if !finding.is_active_leak() || hasty || replay.steps() < self.after {
            return false;
        }
        if self.growth.is_none() && self.within.is_none() {
            return finding.severity == Severity::Alert;
        }
        let soon = |n: u64| steps_to_full(finding, replay).is_some_and(|left| left <= n);
        self.growth.is_some_and(|g| g.is_reached(finding, replay)) || self.within.is_some_and(soon)
    }
}

/// Steps of the optimizer until the device is full; `None` where nothing tells.
fn steps_to_full(finding: &Finding, replay: &Replay) -> Option<u64> {
    let marks = finding.steps_to_oom.map(|s| s.mid).filter(|n| *n != u64::MAX)?;
    match finding.grain {
        GrainName::Microbatch if replay.steps() > 0 => {
            let each = f64::from(replay.microbatches()) / f64::from(replay.steps());
            Some((marks as f64 / each.max(1.0)).ceil() as u64)
        }
        _ => Some(marks),
    }
}
