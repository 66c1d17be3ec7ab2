//! The holder probe: which attribute, container, global, closure or local keeps the blocks that a watcher has flagged.
//!
//! Detectors never run in the job, so the watcher asks: it lays a question beside the job's tail
//! (`strandline_core::format::holders`). The writing thread finds it and queues a pending call, or an optimizer's hook comes by;
//! each of those does one slice under the GIL. Between slices nothing is kept but addresses, names and counts: no reference to an
//! object is ever taken. Python's objects are read as they lie, nothing is created, and no code of the job runs: it sees pauses alone.
//!
//! What it may take of the job is `pace.rs`; too many objects are not looked at, and the answer says so. What was found is counted again
//! later (`looks.rs`), and a last question is answered as the interpreter begins to end (`ending.rs`).

mod answer;
mod attributes;
mod bound;
mod budget;
mod chains;
mod climb;
mod close;
mod contexts;
pub(crate) mod ending;
mod frames;
mod functions;
mod graph;
mod heap;
mod inside;
mod layout;
mod looks;
mod modules;
mod named;
mod names;
mod naming;
mod near;
mod node;
mod objects;
mod outcome;
mod pace;
mod pieces;
mod proof;
mod questions;
mod reach;
mod rebound;
mod registered;
mod remembered;
mod running;
mod slices;
mod tensors;
mod types;
mod verify;
mod work;
mod world;
mod wrappers;

pub(crate) use questions::Probe;
pub(crate) use slices::pass_by;
