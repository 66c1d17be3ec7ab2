//! Events → state: segments, blocks, streams, call sites, steps. A pure state machine without IO and without
//! judgement.
//!
//! [`Replay`] takes [`crate::event::Item`]s in order and holds, at every moment, what the process held. What
//! a recording cannot mean (a block freed twice, an address handed out twice) is counted and explained, never
//! a panic: recordings come from anywhere. Detectors read [`Replay`] at marks (ends of steps and of
//! microbatches), reports read it at the end, and [`anatomy`] asks in a second pass what filled a device at
//! one moment.

pub mod anatomy;
mod answered;
mod apply;
mod births;
mod calls;
mod clock;
mod cohort;
mod device;
mod failed;
mod failures;
mod held;
mod leaving;
mod limit;
mod marks;
mod private_pools;
mod progress;
mod quiet;
mod refused;
mod remade;
mod restore;
mod scene;
mod segment;
mod series;
mod site;
mod state;
mod stream;
mod table;
mod teardown;
mod workers;

pub use births::{Birth, Births};
pub use calls::{Amount, Calls};
pub use cohort::{Cohort, CohortId, CohortKey, GRACE, SEVERAL, Track, settles};
pub use device::{Capacity, Device, OomEvent, Peak, PendingWait};
pub use failed::Failed;
pub use held::Held;
pub(crate) use limit::device_fact;
pub use private_pools::PrivatePool;
pub use progress::{Coverage, Grain, Inconsistency, PhaseKind, Progress};
pub use remade::Remade;
pub use scene::{HOLDERS, Holder, Scene};
pub use series::{Point, RECENT, Series};
pub use site::{Site, SiteKind, reached};
pub use state::{ITERATIONS, PASSES, Replay};
pub use stream::{PoolUse, Quiet, Stream};
