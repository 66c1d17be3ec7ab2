//! `strandline predict`: how much memory a job will need and on which cards it fits, by running the job itself on a simulated GPU until
//! its memory has settled.

mod cards;
mod command;
mod peak;
mod settled;
mod told;

pub(crate) use cards::Card;
pub(crate) use command::main;
