//! What the kernel, the C library and the processor offer, and nothing that knows of recordings.

pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod descriptor;
pub(crate) mod elf;
pub(crate) mod environment;
pub(crate) mod errno;
mod glibc_compat;
pub(crate) mod heap;
pub(crate) mod loader;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod own_stack;
pub(crate) mod pages;
pub(crate) mod pause;
pub(crate) mod real;
pub(crate) mod reserve;
pub(crate) mod runtimes;
pub(crate) mod say;
pub(crate) mod tid;
pub(crate) mod tls;
#[cfg(any(strandline_floor, test))]
pub(crate) mod unwinder;
