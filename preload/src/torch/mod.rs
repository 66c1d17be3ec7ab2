//! PyTorch's caching allocator: finding it, proving what it is, listening to it.

pub(crate) mod attach;
mod entry;
pub(crate) mod fraction;
mod grad;
pub(crate) mod tracker;
pub(crate) mod uncached;
mod versions;
