//! THE list of hooked functions. Exports, real pointers and the table that the law test reads all come from it.
//!
//! Every hook has the same shape: enter, (observe a release), the real function exactly once, (observe an acquisition or
//! what its success tells). A release is recorded before the real call, since the address or handle may be another
//! thread's the moment it returns; an acquisition after it, since only then it is known. A hook that needs no result
//! records first and then jumps.
//!
//! Only names of CUDA and of PyTorch are here: nothing that a shell or a compiler would call. The one name beside the list,
//! `dlsym`, lets everything else through untouched (`asked`).

pub(crate) mod attribution;
pub(crate) mod autograd;
pub(crate) mod blocks;
mod context;
mod cupy;
mod dlsym;
mod driver;
mod entry_points;
mod exports;
mod filled;
pub(crate) mod functions;
mod list;
mod runtime;
mod runtimes;
pub(crate) mod sticky_error;
mod streams;
mod torch;

pub(crate) use exports::{Trigger, addresses, attach_trigger, memory_report_address, python_trigger};
pub(crate) use functions::resolve_all;
pub(crate) use runtimes::refresh as refresh_runtimes;
