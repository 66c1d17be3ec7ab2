//! The registry of detectors. Each is one file of this folder with all that is said of its kind and how it is found, and a line in
//! the list below; nothing else imports such a file.

mod allocator_pressure;
mod cycle_garbage;
mod deferred_free;
mod fragmentation;
mod lazy_state;
mod live_after_stream_exit;
mod live_at_exit;
mod opaque_pool;
mod outside_growth;
mod pinned_growth;
mod pool_growth;
mod resident_on_side_stream;
mod step_growth;
mod stranded_cache;

use super::check::{Check, Entry, Sentence};
use super::kind::Kind;
use crate::replay::{Cohort, Replay};

macro_rules! registry {
    ($($name:ident = $entry:path,)*) => {
        /// All detectors.
        pub(super) static ALL: &[Entry] = &[$($entry),*];

        #[allow(non_upper_case_globals, reason = "a kind is a value, and is named as one")]
        impl Kind {
            $(#[doc = concat!("What `", stringify!($entry), "` of `detect/kinds` finds.")]
            pub const $name: Kind = $entry.kind;)*
        }
    };
}

// Of findings that weigh the same, those of an earlier line are told first. Growth is of the first kind that claims it.
registry! {
    LiveAfterStreamExit = live_after_stream_exit::DETECTOR,
    StepGrowth = step_growth::DETECTOR,
    DeferredFree = deferred_free::DETECTOR,
    StrandedCache = stranded_cache::DETECTOR,
    PoolGrowth = pool_growth::DETECTOR,
    OutsideGrowth = outside_growth::DETECTOR,
    Fragmentation = fragmentation::DETECTOR,
    CycleGarbage = cycle_garbage::DETECTOR,
    ResidentOnSideStream = resident_on_side_stream::DETECTOR,
    PinnedGrowth = pinned_growth::DETECTOR,
    LazyState = lazy_state::DETECTOR,
    OpaquePool = opaque_pool::DETECTOR,
    AllocatorPressure = allocator_pressure::DETECTOR,
    LiveAtExit = live_at_exit::DETECTOR,
}

impl Kind {
    /// All kinds, in the order of the registry.
    pub fn all() -> impl Iterator<Item = Kind> {
        ALL.iter().map(|e| e.kind)
    }
}

/// Of which kind growth of a cohort is, and what makes its sentence.
pub(super) fn of_growth(replay: &Replay, c: &Cohort) -> Option<(Kind, Sentence)> {
    ALL.iter().find_map(|e| match e.check {
        Check::Growth { claims, explain } if claims(replay, c) => Some((e.kind, explain)),
        _ => None,
    })
}

/// Where a kind is in the list.
pub(super) fn place(kind: Kind) -> usize {
    ALL.iter().position(|e| e.kind == kind).unwrap_or(ALL.len())
}
