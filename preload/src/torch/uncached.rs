//! Where PyTorch's blocks come from no cache: whether each stream-ordered allocation is one, and the code of the native allocator that
//! asks CUDA for a single block.

use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static ASYNC: AtomicBool = AtomicBool::new(false);

/// Code of PyTorch's native allocator that asks CUDA for one block, past its cache: begin and end of each function.
static UNCACHED: [[AtomicU64; 2]; 4] = [const { [const { AtomicU64::new(0) }; 2] }; 4];

/// Whether a function of it can be one of those, by its name behind the class: `allocate`, `raw_alloc`,
/// `raw_alloc_with_stream`. Segments are asked for elsewhere.
#[cold]
pub(crate) fn is_uncached_function(name: &[u8]) -> bool {
    let names: [&[u8]; 3] = [b"8allocateE", b"9raw_allocE", b"21raw_alloc_with_streamE"];
    names.iter().any(|n| name.starts_with(n)) && !name.ends_with(b".cold")
}

/// Such a function lies here. Told when the tracker is attached, before the first block.
#[cold]
pub(crate) fn register_uncached_range(begin: usize, size: usize) {
    for [from, to] in &UNCACHED {
        if from.load(Relaxed) == 0 {
            to.store((begin + size) as u64, Relaxed);
            from.store(begin as u64, Relaxed);
            return;
        }
    }
}

/// Whether any of them is known.
pub(crate) fn is_known() -> bool {
    UNCACHED.iter().any(|[from, _]| from.load(Relaxed) != 0)
}

/// How much is seen where PyTorch does not cache.
pub(crate) fn facts() -> serde_json::Value {
    let reason = "PyTorch's totals: its cache is turned off, and PyTorch keeps no totals without the cache";
    json!({ "level": "blocks", "reason": reason })
}

/// Whether a `cudaMalloc` that returns to `caller` is for one block, and not for a segment.
#[inline(always)]
pub(crate) fn is_uncached(caller: u64) -> bool {
    UNCACHED.iter().any(|[from, to]| caller > from.load(Relaxed) && caller <= to.load(Relaxed))
}

/// Whether stream-ordered allocations are PyTorch's blocks.
#[inline(always)]
pub(crate) fn is_async() -> bool {
    ASYNC.load(Relaxed)
}

/// They are: PyTorch's allocator has said that it is the one that makes them.
pub(crate) fn set_async() {
    ASYNC.store(true, Relaxed);
}

/// Facts about what is seen then.
pub(crate) fn async_facts() -> serde_json::Value {
    json!({
        "allocator": "cudaMallocAsync",
        "coverage": { "level": "blocks", "reason": "what the driver's memory pool holds besides the blocks: with cudaMallocAsync, PyTorch keeps no totals" },
    })
}
