//! The first line of every report: one word and its reason.

use super::detector::Detector;
use crate::replay::Replay;

/// The word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// A leak that fills the device in a run of ordinary length.
    Leak,
    /// Growth that would, but has not stood the test of time yet.
    Warning,
    /// An allocation failed, and no leak is the cause.
    Oom,
    /// Nothing leaks, and enough was seen to say so.
    Clean,
    /// Not enough was seen.
    Unknown,
}

impl Outcome {
    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Leak => "leak",
            Outcome::Warning => "warning",
            Outcome::Oom => "oom",
            Outcome::Clean => "clean",
            Outcome::Unknown => "unknown",
        }
    }
}

/// The word and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The word.
    pub outcome: Outcome,
    /// Why, as a clause.
    pub reason: String,
}

/// The verdict on one process, as of its last step.
pub fn judge(replay: &Replay, detector: &Detector) -> Verdict {
    let _ = (replay, detector);
    Verdict { outcome: Outcome::Unknown, reason: String::new() }
}
