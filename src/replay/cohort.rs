//! Cohorts: blocks of one device, stream and call site, and how many of them grow old.

use super::series::{Point, Series};
use crate::event::{DeviceId, SiteId, StreamId};

/// Index of a cohort in [`super::Replay::cohorts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CohortId(pub u32);

/// What blocks of a cohort have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CohortKey {
    /// Device.
    pub device: DeviceId,
    /// The stream they were allocated on.
    pub stream: StreamId,
    /// The line that allocated them.
    pub site: SiteId,
    /// They lie in the pool of a graph capture or of a `MemPool`.
    pub private_pool: bool,
}

/// A cohort.
#[derive(Clone, Debug)]
pub struct Cohort {
    /// What its blocks have in common.
    pub key: CohortKey,
    /// Allocations so far.
    pub allocs: u64,
    /// Frees so far.
    pub frees: u64,
    /// Live now (not freed, not unverified).
    pub live: Point,
    /// Old blocks by step.
    pub steps: Track,
    /// Old blocks by microbatch.
    pub microbatches: Track,
}

/// Old blocks of a cohort at the marks of one grain. A block is old once two further marks have passed since the end
/// of the one it was born in.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// Old blocks at each mark.
    pub series: Series,
    /// Old blocks now (as of the last mark, less what was freed since).
    pub old: Point,
    /// Old blocks exactly at the last mark.
    pub at_mark: Point,
    /// Live blocks that are too young, by birth mark: the one that runs, the one before.
    pub(super) young: [Point; 2],
}
