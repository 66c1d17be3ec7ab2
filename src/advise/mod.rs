//! What would lower a job's peak: blocks that live longer than they need to at the moment when most is allocated.
//!
//! A second pass over the items ([`Pass`]) makes a [`Timeline`] of each device: how much was allocated from moment to moment, and when
//! each block of some size came and went. Each kind of advice (`kinds/`, one file each) says which blocks a changed job would not have,
//! and from when to when ([`Cut`]). The peak that is left is computed from the timeline without those blocks; what would not lower it
//! by a fiftieth is not said.

mod advice;
mod kinds;
mod look;
mod timeline;

pub use advice::{Advice, advise};
pub use kinds::all as kinds;
pub use look::{KindInfo, Look};
pub use timeline::{Cut, Life, Mark, NEVER, Pass, Time, Timeline};

#[cfg(test)]
mod tests;
