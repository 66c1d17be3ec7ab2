//! The detectors together: asked at every mark, they remember what they said.

use super::finding::Finding;
use crate::replay::{Progress, Replay};

/// What the user set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The step after which the job will end by itself, where known: a leak that fills the device later is no alert.
    pub planned_steps: Option<u32>,
}

/// All judgements over one replay.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    policy: Policy,
    findings: Vec<Finding>,
}

impl Detector {
    /// A detector that has seen nothing.
    pub fn new(policy: Policy) -> Detector {
        Detector { policy, findings: Vec::new() }
    }

    /// Judges anew where `progress` says that a mark has passed. Call it after every [`Replay::apply`]; without a mark it costs nothing.
    pub fn after(&mut self, progress: Progress, replay: &Replay) {
        if progress != Progress::default() {
            self.at_step(replay);
        }
    }

    /// Judges as of the replay's last mark.
    pub fn at_step(&mut self, replay: &Replay) {
        let _ = (replay, &self.policy);
    }

    /// Everything that was ever said, also what was withdrawn: worst first.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
