//! A recording → what is true of it: reader, replay and detectors put together, twice over the items.
//!
//! The first pass judges and finds the moments that matter; the second asks what filled the device at those.

mod analysis;
mod anatomies;
mod conclude;
mod end;
mod feed;
mod foreign;
mod gate;
mod given;
mod iterations;
mod judge;
mod judged;
mod moment;
mod native;
mod passes;
mod read;
mod recorded;
mod report;
mod suppress;

pub(crate) use analysis::Analysis;
pub(crate) use conclude::{Conclusion, conclude};
pub(crate) use feed::Feed;
pub(crate) use gate::{Decision, Gate};
pub(crate) use given::Given;
pub(crate) use iterations::by_iterations;
pub(crate) use judge::{judge, judge_at_step, judge_only};
pub(crate) use judged::Judged;
pub(crate) use moment::{Moment, Place, nothing};
pub(crate) use native::symbolized;
pub(crate) use report::{any_running, next, report};
pub(crate) use suppress::Suppressions;
