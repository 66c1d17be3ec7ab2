//! `strandline run`: the job as it would run without us, recorded, and a report when it ends.
//!
//! The rule of this room is invisibility: terminal, standard streams, process group, signals, job control and exit
//! status are the job's own. What we say goes to stderr, in whole lines, before the job starts and after it has ended.

mod bare;
mod child;
mod command;
mod conclude;
mod execute;
mod exited;
mod host;
mod kernel_log;
mod library;
mod noted;
mod nothing;
mod plan;
mod tails;
mod witness;

pub(crate) use command::main;
pub(crate) use conclude::conclude;
pub(crate) use execute::execute;
pub(crate) use library::Library;
pub(crate) use plan::{Outcome, Plan};
pub(crate) use witness::run_as_helper_if_asked;
