//! The memory that the rings lie in: where it comes from, and who keeps it when the process is killed.
//!
//! | tried, in this order                                  | after `kill -9`             |
//! |-------------------------------------------------------|-----------------------------|
//! | a file in `STRANDLINE_TAIL`, where that is set        | it is there                 |
//! | memory that `strandline run` keeps open (`memory`)    | it is there                 |
//! | a file in `/dev/shm`, where that has room to spare    | it is there                 |
//! | memory that only this process has open                | gone: a second at most      |
//! | anonymous memory                                      | gone, and nobody follows it |
//!
//! A store into the rings never raises SIGBUS: every page exists before it is stored to. A file is reserved whole, since others fill
//! its file system too. Memory is on no mount, so its pages are made ahead of the threads that claim them ([`make_ready`]): a process pays for what it uses.

mod file;
mod make;
mod memory;
mod region;

pub(crate) use file::{is_remote, remove};
pub(crate) use make::{make, make_ready, tell_failure};
