//! `strandline advise`: what would lower the peak of a recorded job, and by how much.

mod command;
mod source;

pub(crate) use command::main;
