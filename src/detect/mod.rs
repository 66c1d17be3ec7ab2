//! State → judgement. One file per judgement, each with the same three parts: check, format, explain.
//!
//! A [`Detector`] is asked at every mark. It reads only what [`crate::replay::Replay`] says as of that mark,
//! so what a job frees after its last step does not change a verdict. A finding can be withdrawn: growth that
//! stops was filling, not a leak. **A leak that is not named is a defect; a healthy job that is called leaky
//! is a worse one.**

mod allocator_pressure;
mod backlog;
mod case;
mod certainty;
mod cycle_garbage;
mod deferred_free;
mod detector;
mod explain;
mod finding;
mod forecast;
mod fragmentation;
mod growth;
mod job;
mod keeper;
mod lazy_state;
mod live_after_stream_exit;
mod live_at_exit;
mod note;
mod oom;
mod opaque_pool;
mod resident_on_side_stream;
mod self_fault;
mod severity;
mod step_growth;
mod stranded_cache;
mod survivors;
mod verdict;

pub use case::UNCOLLECTED;
pub use certainty::{Bound, Certainty, Evidence};
pub use detector::{Detector, Policy};
pub use finding::{Finding, FindingSite, GrainName, Kind, SecondsToOom, StepsToOom, StreamRef};
pub use job::{JobVerdict, Member, judge_job};
pub use keeper::{Keeper, Owner, Testimony, refine};
pub use oom::{Cause, Change, PostMortem, post_mortem};
pub use self_fault::{Death, SelfFault, cut_short, self_fault};
pub use severity::Severity;
pub use verdict::{Outcome, Verdict, judge};
