//! Blocks that a CUDA call each hands out, from no cache of PyTorch's: `backend:cudaMallocAsync`.
//!
//! PyTorch keeps no history there, so the calls are the events. A block is recorded after the call that gave it and before the
//! one that takes it back: an address has left its last owner's record when its next owner's is written. What the driver's
//! pool keeps beyond the blocks shows only in what the device reports used.

use super::P;
use crate::entered::{Entered, enter_or_arm};
use crate::torch::tracker;
use crate::{clock, tls};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strandline_core::format::raw::{Kind, Record, flag};

/// Sizes of stream-ordered allocations are multiples of this.
const GRAIN: u64 = 512;

static ASYNC: AtomicBool = AtomicBool::new(false);

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

/// After a call that gave a block.
#[inline(always)]
pub(super) fn handed_out(addr: u64, size: usize, stream: P) {
    let Some(mut t) = enter_or_arm() else { return };
    let (phase, stack) = tracker::origin(&mut t);
    let device = tls::device();
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
    r.set_sequence(tracker::next_sequence_of_many(device));
    r.set_rounded(rounded(size as u64));
    t.push(r);
}

/// Before a call that takes one back. In its stream's order the memory can be used again at once.
#[inline(always)]
pub(super) fn given_back(p: P, stream: P) {
    if p.is_null() {
        return;
    }
    let Some(mut t) = enter_or_arm() else { return };
    let phase = t.phase(false);
    let device = tls::device();
    let mut r = Record {
        ticks: clock::ticks(),
        a: p as u64,
        c: stream as u64,
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
pub(super) fn refused(size: usize, stream: P) {
    if let Some(mut t) = enter_or_arm() {
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
