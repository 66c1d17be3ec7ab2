//! Snapshots for memory_viz of any moment, out of a recording, made outside of the job: `strandline snapshot`, and those that a job
//! or an alert asks for.

mod command;
mod find;
mod make;
mod options;
mod requests;
mod tell;
mod wanted;

pub(crate) use command::main;
pub(crate) use make::write;
pub(crate) use options::Options;
pub(crate) use requests::fulfil;
pub(crate) use tell::make_and_tell;
