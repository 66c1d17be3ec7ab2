//! The interpreter in this process: its version, its C API, the GIL, calls that it is asked to make.

pub(crate) mod collector;
mod free_lists;
mod initializing;
pub(crate) mod interpreter;
pub(crate) mod object;
pub(crate) mod packages;
pub(crate) mod tracked;
pub(crate) mod uncounted;
pub(crate) mod untraced;
pub(crate) mod version;

pub(crate) use initializing::is_torch_initializing;
