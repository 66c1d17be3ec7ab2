//! Blocks that a CUDA call each hands out, from no cache of PyTorch's: `backend:cudaMallocAsync`, and its native allocator with
//! `PYTORCH_NO_CUDA_MEMORY_CACHING` or `caching_allocator_enable(False)`; and those of programs without PyTorch.
//!
//! Nobody keeps a history there, so the calls are the events. A block is recorded after the call that gave it and before the
//! one that takes it back: an address has left its last owner's record when its next owner's is written. What the driver's
//! pool keeps beyond the blocks shows only in what the device reports used.

use super::{P, owner};
use crate::platform::{clock, tls};
use crate::recorder::guard::{Entered, enter_or_arm};
use crate::stacks;
use crate::torch::tracker;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use strandline_core::event::HookId;
use strandline_core::format::raw::{Kind, Record, flag};

/// Sizes of stream-ordered allocations are multiples of this.
const GRAIN: u64 = 512;

static ASYNC: AtomicBool = AtomicBool::new(false);
/// A block was recorded here: from now on every free may be that of one. Whoever reads a recording tells them apart.
static SEEN: AtomicBool = AtomicBool::new(false);

/// Code of PyTorch's native allocator that asks CUDA for one block, past its cache: begin and end of each function.
static UNCACHED: [[AtomicU64; 2]; 4] = [const { [const { AtomicU64::new(0) }; 2] }; 4];

/// Whether a function of it can be one of those, by its name behind the class: `allocate`, `raw_alloc`,
/// `raw_alloc_with_stream`. Segments are asked for elsewhere.
#[cold]
pub(crate) fn is_past_the_cache(name: &[u8]) -> bool {
    let names: [&[u8]; 3] = [b"8allocateE", b"9raw_allocE", b"21raw_alloc_with_streamE"];
    names.iter().any(|n| name.starts_with(n)) && !name.ends_with(b".cold")
}

/// Such a function lies here. Told when the tracker is attached, before the first block.
#[cold]
pub(crate) fn lie_past_the_cache(begin: usize, size: usize) {
    for [from, to] in &UNCACHED {
        if from.load(Relaxed) == 0 {
            to.store((begin + size) as u64, Relaxed);
            from.store(begin as u64, Relaxed);
            return;
        }
    }
}

/// Whether any of them is known.
pub(crate) fn past_the_cache_is_known() -> bool {
    UNCACHED.iter().any(|[from, _]| from.load(Relaxed) != 0)
}

/// How much is seen where PyTorch does not cache.
pub(crate) fn uncached() -> serde_json::Value {
    let reason = "PyTorch's totals: its cache is switched off, CUDA hands them out, and it keeps none";
    json!({ "level": "blocks", "reason": reason })
}

/// Whether a `cudaMalloc` that returns to `caller` is for one block, and not for a segment.
#[inline(always)]
pub(super) fn is_uncached(caller: u64) -> bool {
    UNCACHED.iter().any(|[from, to]| caller > from.load(Relaxed) && caller <= to.load(Relaxed))
}

/// Whether any such block was recorded.
#[inline(always)]
pub(super) fn are_there() -> bool {
    SEEN.load(Relaxed)
}

/// Whether stream-ordered allocations are PyTorch's blocks.
#[inline(always)]
pub(crate) fn are_async() -> bool {
    ASYNC.load(Relaxed)
}

/// They are: PyTorch's allocator has said that it is the one that makes them.
pub(crate) fn are_async_from_now_on() {
    ASYNC.store(true, Relaxed);
}

/// Facts about what is seen then.
pub(crate) fn facts() -> serde_json::Value {
    json!({
        "allocator": "cudaMallocAsync",
        "coverage": { "level": "blocks", "reason": "what the driver's pool keeps beyond the blocks: CUDA hands them out, and PyTorch keeps no totals of them" },
    })
}

fn rounded(size: u64) -> u64 {
    size.checked_next_multiple_of(GRAIN).unwrap_or(size)
}

/// After a call that gave a block of PyTorch's.
#[inline(always)]
pub(super) fn handed_out(hook: HookId, addr: u64, size: usize, stream: P) {
    let Some(mut t) = enter_or_arm(hook) else { return };
    let (phase, stack) = tracker::origin_of_block(&mut t);
    record(&mut t, addr, size, stream, phase, stack);
}

/// After a call, returning to `caller`, that gave a block of a program without PyTorch.
#[inline]
pub(super) fn handed_to(hook: HookId, caller: u64, addr: u64, size: usize, stream: P) {
    let Some(mut t) = enter_or_arm(hook) else { return };
    let phase = t.phase(false);
    let stack = match owner::have_stacks() {
        true => stacks::of_block(&mut t, caller),
        false => 0,
    };
    record(&mut t, addr, size, stream, phase, stack);
}

#[inline(always)]
fn record(t: &mut Entered, addr: u64, size: usize, stream: P, phase: u8, stack: u32) {
    record_on(t, tls::device(), addr, size, stream, phase, stack);
}

/// The same on a device that is not the thread's.
#[inline(always)]
pub(super) fn record_on(
    t: &mut Entered,
    device: u8,
    addr: u64,
    size: usize,
    stream: P,
    phase: u8,
    stack: u32,
) {
    let mut r = Record {
        ticks: clock::ticks(),
        a: addr,
        b: size as u64,
        c: stream as u64,
        stack,
        kind: Kind::Alloc as u8,
        device,
        flags: flag::DIRECT,
        phase,
        ..Record::default()
    };
    t.refused = None;
    SEEN.store(true, Relaxed);
    r.set_sequence(tracker::next_sequence_of_many(device));
    r.set_rounded(rounded(size as u64));
    t.push(r);
}

/// Before a call that takes one back. In its stream's order the memory can be used again at once.
#[inline(always)]
pub(super) fn given_back(hook: HookId, p: P, stream: P) {
    if p.is_null() {
        return;
    }
    let Some(mut t) = enter_or_arm(hook) else { return };
    given_back_on(&mut t, tls::device(), p as u64, stream as u64);
}

/// The same of a device that is not the thread's.
#[inline(always)]
pub(super) fn given_back_on(t: &mut Entered, device: u8, addr: u64, stream: u64) {
    let phase = t.phase(false);
    let mut r = Record {
        ticks: clock::ticks(),
        a: addr,
        c: stream,
        kind: Kind::FreeRequested as u8,
        device,
        flags: flag::DIRECT | flag::COMPLETED,
        phase,
        ..Record::default()
    };
    r.set_sequence(tracker::next_sequence_of_many(device));
    t.push(r);
}

/// CUDA had no room for a block. PyTorch asks at once how much is free, for its message: that is when it is recorded.
#[cold]
#[inline(never)]
pub(super) fn refused(hook: HookId, size: usize, stream: P) {
    if let Some(mut t) = enter_or_arm(hook) {
        t.refused = Some((size as u64, stream as u64));
    }
}

/// The program has asked what is free.
#[inline(always)]
pub(super) fn out_of_memory(t: &mut Entered, free: u64) {
    let Some((size, stream)) = t.refused.take() else { return };
    let (phase, stack) = tracker::origin(t);
    t.push(Record {
        ticks: clock::ticks(),
        a: free,
        b: rounded(size),
        c: stream,
        stack,
        kind: Kind::Oom as u8,
        device: tls::device(),
        phase,
        ..Record::default()
    });
}
