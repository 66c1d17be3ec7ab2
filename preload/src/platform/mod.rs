//! What the kernel, the C library and the processor offer, and nothing that knows of recordings.

pub(crate) mod descriptor;
pub(crate) mod mapping;
pub(crate) mod tid;
