//! A job before it runs and after: its command line, its variables, the folder of its recordings, how it ended.

mod checkout;
mod command;
mod ended;
mod environment;
mod launchers;
mod place;
mod variables;

pub(crate) use checkout::Checkout;
pub(crate) use command::{Job, cannot_start, find, script_is_there};
pub(crate) use ended::{Ended, Seen};
pub(crate) use environment::Environment;
pub(crate) use launchers::{Elsewhere, elsewhere, hidden};
pub(crate) use place::{create as create_folder, now, today};
pub(crate) use variables::{LD_PRELOAD, NVTX_INJECTION, Variable, appended, leave_preloads_silent};
