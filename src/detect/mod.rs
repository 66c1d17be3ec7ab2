//! State → judgement. Each kind of finding is a file of `kinds`, with all that is said of the kind, its check and its sentence; their
//! registry is `kinds/mod.rs`.
//!
//! A [`Detector`] is asked at every mark. It reads only what [`crate::replay::Replay`] says as of that mark,
//! so what a job frees after its last step does not change a verdict. A finding can be withdrawn: growth that
//! stops was filling, not a leak. **A leak that is not named is a defect; a healthy job that is called leaky
//! is a worse one.**

mod after_steps;
mod amounts;
mod backlog;
mod births;
mod call_lines;
mod case;
mod cause;
mod certainty;
mod check;
mod clean;
mod detector;
mod explain;
mod finding;
mod forecast;
mod framework_pool;
mod growth;
mod job;
mod keeper;
mod kind;
mod kinds;
mod loading;
mod note;
mod oom;
mod origins;
mod outlook;
mod outside;
mod policy;
mod ranks;
mod replaced;
mod rise;
mod self_fault;
mod severity;
mod steady;
mod survivors;
mod until_full;
mod verdict;

pub use after_steps::after_training;
pub use amounts::{numbered, plural, size, size_f, thousands};
pub use case::UNCOLLECTED;
pub use cause::Cause;
pub use certainty::{Bound, Certainty, Evidence};
pub use detector::Detector;
pub use finding::{Finding, FindingSite, GrainName, StreamRef};
pub use job::{End, JobVerdict, Member, judge_job};
pub use keeper::{Keeper, Owner, Testimony, holds_enough, refine};
pub use kind::{Kind, KindInfo};
pub use loading::may_be_loading;
pub use oom::{Change, PostMortem, caught, final_oom, post_mortem};
pub use policy::Policy;
pub use ranks::{Apart, Group, Measure, RankSeries, apart, groups};
pub use self_fault::{Death, SelfFault, is_fault, self_fault, verdict_after_fault};
pub use severity::Severity;
pub use until_full::{SecondsToOom, StepsToOom};
pub use verdict::{Outcome, Verdict, judge};
