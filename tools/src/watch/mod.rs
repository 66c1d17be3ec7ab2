//! The watch over a folder of recordings while their processes run: findings as they come, the ranks of a job as one.

mod asker;
mod command;
mod watcher;

pub(crate) use command::main;
pub(crate) use watcher::Watcher;
