//! What is true → what people and programs read: text, JSON, memory_viz snapshots. Only prints.
//!
//! Nothing here reads a file, a clock or the environment: a caller fills a [`Report`] from reader, replay and detect, and
//! says where to print. Text for people ([`text`]) puts the verdict first and the next command last; JSON ([`json`]) is a
//! contract, schema 1; snapshots ([`snapshot`]) are what pytorch.org/memory_viz and `torch/cuda/_memory_viz.py` read.

pub mod advice;
mod anatomy;
pub mod ci;
pub mod diff;
pub mod export;
mod files;
mod held;
pub mod html;
pub mod json;
mod later;
mod left;
mod markup;
pub mod metrics;
mod model;
mod numbered;
mod path;
mod processes;
mod ranks;
pub mod snapshot;
mod style;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
mod units;

pub use held::{Count, HeldBy, Holder, HolderBound, KeptAt};
pub use left::{LeftBehind, RegionPeak};
pub use model::{
    Context, Cost, Ended, Exit, Facts, Fix, Known, Moment, Native, Process, Report, SourceLinks, used,
};
pub use processes::{IDLE, Namesakes};
pub use style::{Ink, Style, ascii, curve};
pub use table::{Align, Table};
pub use units::{
    TableUnit, duration, numbered, percent, plural, quantity, rounded, seconds, size, size_f, thousands,
};
