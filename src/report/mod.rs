//! What is true → what people and programs read: text, JSON, memory_viz snapshots. Only prints.
//!
//! Nothing here reads a file, a clock or the environment: a caller fills a [`Report`] from reader, replay and detect, and
//! says where to print. Text for people puts the verdict first and the next command last; JSON follows schema 1 of
//! docs/report.md; snapshots are what pytorch.org/memory_viz and `torch/cuda/_memory_viz.py` read.

pub mod snapshot;
mod style;
mod table;
mod units;

pub use style::{Ink, Style};
pub use table::{Align, Table};
pub use units::{TableUnit, count, duration, percent, plural, quantity, size, size_f};
