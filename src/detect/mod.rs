//! State → judgement. One file per judgement, each with the same three parts: check, format, explain.
//!
//! A [`Detector`] is asked at every mark. It reads only what [`crate::replay::Replay`] says as of that mark,
//! so what a job frees after its last step does not change a verdict. A finding can be withdrawn: growth that
//! stops was filling, not a leak. **A leak that is not named is a defect; a healthy job that is called leaky
//! is a worse one.**

mod deferred_free;
mod detector;
mod explain;
mod finding;
mod forecast;
mod growth;
mod live_after_stream_exit;
mod severity;
mod step_growth;
mod verdict;

pub use detector::{Detector, Policy};
pub use finding::{Finding, FindingSite, GrainName, Kind, StepsToOom, StreamRef};
pub use severity::Severity;
pub use verdict::{Outcome, Verdict, judge};
