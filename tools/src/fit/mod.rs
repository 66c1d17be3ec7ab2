//! `strandline fit`: the largest value of an option with which a job fits a card, by running the job itself on a simulated GPU with
//! several values.

mod answer;
mod command;
mod runs;
mod search;

pub(crate) use command::main;
