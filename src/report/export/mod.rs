//! A recording for tools that people have already: stacks for flame graphs, speedscope and pprof, a time line for Perfetto, rows of
//! tables.
//!
//! [`Sums`] and [`Timeline`] go over a recording once more and keep what is printed, in bounded size; the rest only prints.

mod chrome;
mod folded;
mod pprof;
mod profile;
mod protobuf;
mod speedscope;
mod sums;
pub mod tables;
mod timeline;

pub use chrome::write as perfetto;
pub use folded::write as folded;
pub use pprof::encode as pprof;
pub use profile::{Column, Profile};
pub use speedscope::write as speedscope;
pub use sums::Sums;
pub use timeline::{Timeline, Track};
