//! Blocks that a CUDA call each hands out, from no cache of PyTorch's: `backend:cudaMallocAsync`, and its native allocator with
//! `PYTORCH_NO_CUDA_MEMORY_CACHING` or `caching_allocator_enable(False)`; and those of programs without PyTorch.
//!
//! Nobody keeps a history there, so the calls are the events. A block is recorded after the call that gave it and before the
//! one that takes it back: an address has left its last owner's record when its next owner's is written. What the driver's
//! pool keeps beyond the blocks shows only in what the device reports used.

use super::attribution;
use super::functions::P;
use crate::platform::tls;
use crate::recorder::guard::{HookGuard, enter_or_arm};
use crate::stacks;
use crate::torch::tracker;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strandline_core::event::HookId;
use strandline_core::format::raw::{Kind, Record, flag};

/// Sizes of stream-ordered allocations are multiples of this.
const GRAIN: u64 = 512;

/// A block was recorded here: from now on every free may be that of one. Whoever reads a recording tells them apart.
static SEEN: AtomicBool = AtomicBool::new(false);

/// Whether any such block was recorded.
#[inline(always)]
pub(super) fn any_recorded() -> bool {
    SEEN.load(Relaxed)
}

fn rounded(size: u64) -> u64 {
    size.checked_next_multiple_of(GRAIN).unwrap_or(size)
}

/// After a call that gave a block of PyTorch's.
#[inline(always)]
pub(super) fn record_alloc(hook: HookId, addr: u64, size: usize, stream: P) {
    let Some(mut t) = enter_or_arm(hook) else { return };
    let origin = tracker::origin_of_block(&mut t);
    record(&mut t, tls::device(), addr, size, stream, origin);
}

/// Records the block that a call of a program without PyTorch returned; `caller` is that call's return address.
#[inline]
pub(super) fn record_alloc_of_program(hook: HookId, caller: u64, addr: u64, size: usize, stream: P) {
    let Some(mut t) = enter_or_arm(hook) else { return };
    let phase = t.phase(false);
    let stack = if attribution::have_stacks() { stacks::of_block(&mut t, caller) } else { 0 };
    record(&mut t, tls::device(), addr, size, stream, (phase, stack));
}

/// Records a block of `size` bytes, with its phase and its stack.
#[inline(always)]
pub(super) fn record(t: &mut HookGuard, device: u8, addr: u64, size: usize, stream: P, origin: (u8, u32)) {
    let (phase, stack) = origin;
    let (b, c) = (size as u64, stream as u64);
    let mut r = Record { a: addr, b, c, stack, flags: flag::DIRECT, phase, ..t.record(Kind::Alloc, device) };
    t.refused = None;
    SEEN.store(true, Relaxed);
    r.set_sequence(tracker::next_sequence_of_many(device));
    r.set_rounded(rounded(size as u64));
    t.push(r);
}

/// Before a call that takes one back. In its stream's order the memory can be used again at once.
#[inline(always)]
pub(super) fn record_free(hook: HookId, p: P, stream: P) {
    if p.is_null() {
        return;
    }
    let Some(mut t) = enter_or_arm(hook) else { return };
    record_free_on(&mut t, tls::device(), p as u64, stream as u64);
}

/// The same of a device that is not the thread's.
#[inline(always)]
pub(super) fn record_free_on(t: &mut HookGuard, device: u8, addr: u64, stream: u64) {
    let record = t.record(Kind::FreeRequested, device);
    let mut r = Record { a: addr, c: stream, flags: flag::DIRECT | flag::COMPLETED, ..record };
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
pub(super) fn out_of_memory(t: &mut HookGuard, free: u64) {
    let Some((size, stream)) = t.refused.take() else { return };
    let (phase, stack) = tracker::origin(t);
    let record = t.record(Kind::Oom, tls::device());
    t.push(Record { a: free, b: rounded(size), c: stream, stack, phase, ..record });
}
