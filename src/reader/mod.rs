//! A recording → items in order, and a list of what is wrong with it.
//!
//! ```no_run
//! # fn main() -> Result<(), strandline::reader::Error> {
//! use strandline::reader::{Batch, Reader};
//! let mut reader = Reader::open("train-r0.strand")?;
//! while let Some(batch) = reader.next_batch() {
//!     match batch {
//!         Batch::Events(events) => println!("{} events", events.len()),
//!         Batch::Item(item) => println!("{item:?}"),
//!     }
//! }
//! for d in reader.damage() {
//!     println!("{d}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! After the last page the tail is read: the records and definitions that the process published and its drain did not
//! get to write, out of the region's file, if that is still there. A recording that is still being written is followed with
//! a [`Follower`]. Nothing here panics or takes unbounded memory, whatever the bytes.

mod accept;
mod damage;
mod define;
mod error;
mod facts;
mod follow;
mod frozen;
mod kept;
mod mapped;
mod nested;
mod open;
mod opening;
mod pages;
mod source;
mod state;
mod summary;
mod tail;
mod written;

pub use damage::Damage;
pub use error::Error;
pub use facts::FactsFollower;
pub use follow::Follower;
pub use frozen::Frozen;
pub use kept::kept_path;
pub use nested::nested;
pub use open::open_file;
pub use source::Source;
pub use state::{Batch, Reader};
pub use summary::{Summary, TailState};
pub use written::{Gone, SHIPPED_EVERY, Stand, Written};
