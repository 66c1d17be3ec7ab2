//! The state of a process as PyTorch's own snapshots tell it: for pytorch.org/memory_viz and `torch/cuda/_memory_viz.py`.
//!
//! A snapshot is a history (`device_traces`) and the state it leads to (`segments`), and readers replay one against the
//! other, backwards: it must never contradict itself. So the state is not taken from elsewhere but comes from the same
//! pass that writes the history ([`Snapshot::apply`]); where a recording has holes, what must have happened in them is
//! written as entries that say so.
//!
//! Two passes over a recording: the first feeds [`Replay`](crate::replay::Replay) and [`Steps`], the second a [`Snapshot`]. Nothing is held in
//! memory but the live state (and, for processes that use several devices, the history of all but the first).

mod annotations;
mod entry;
mod field;
mod filter;
pub mod import;
mod json;
mod layout;
mod log;
mod origin;
mod out;
mod pickle;
mod repair;
mod row;
mod segments;
mod settings;
mod shared;
mod source;
mod steps;
mod track;
pub mod unpickle;
mod words;
mod write;

pub use entry::Standing;
pub use filter::Filter;
pub use out::Language;
pub use source::Source;
pub use steps::Steps;
pub use write::{Snapshot, Written};
