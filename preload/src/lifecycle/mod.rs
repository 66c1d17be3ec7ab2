//! How a recording begins in a process, who writes it, and how it ends.

mod chores;
mod drain;
mod exit;
mod output;
mod panics;
mod place;
mod startup;
mod watcher;

#[cfg(not(test))]
pub(crate) use startup::load;
