//! `strandline predict`: how much memory a job will need and on which cards it fits, by running the job itself on a simulated GPU until
//! its memory has settled.

mod command;
mod prediction;
mod tried;

pub(crate) use command::main;
