//! What the door writes down: the records that the tracker writes for PyTorch's own allocator, with the door's numbers.
//!
//! All of it is called with the device's lock held, which is what puts the records of different threads in order (see
//! `format::merge`); the stack was taken before.

use super::types::DOOR;
use crate::recorder::guard::HookGuard;
use crate::torch::tracker;
use strandline_core::format::raw::{Kind, Record, flag};

/// Blocks lie at addresses that the driver chose; the pool they come from shows only its size. It is recorded as one
/// expandable segment that begins here, in the half of the address space where no memory of a program lies, plus the
/// device's number at this bit.
const POOL_AT: u64 = 0xF000_0000_0000_0000;
const DEVICE_BIT: u32 = 48;

/// Where and on behalf of whom something happens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    /// Interned stack.
    pub(super) stack: u32,
    /// Phase bits.
    pub(super) phase: u8,
}

impl Origin {
    /// Of this thread, now, for an allocation.
    pub(super) fn here(t: &mut HookGuard) -> Origin {
        // The door's token lives while the driver is asked: only what is our own is noted.
        let (phase, stack) = t.noted(DOOR, tracker::origin_of_block);
        Origin { stack, phase }
    }
}

/// A block, as the door knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Ordinal of its device.
    pub(super) device: u8,
    /// Where it lies.
    pub(super) addr: u64,
    /// Bytes asked for.
    pub(super) size: u64,
    /// The stream it was asked for on.
    pub(super) stream: u64,
    /// The pool of a captured graph; zeros: none.
    pub(super) pool: [u64; 2],
}

/// The door's sums after an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    /// Rounded bytes handed out.
    pub(super) allocated: u64,
    /// Bytes that the pool holds, as far as it has been asked.
    pub(super) reserved: u64,
}

/// A block was handed out (`given`), or given back; then it can be used again at once, in its stream's order.
pub(super) fn block(t: &mut HookGuard, b: &Block, given: bool, o: Origin, totals: Totals) {
    let kind = if given { Kind::Alloc } else { Kind::FreeRequested };
    let mut r = Record {
        a: b.addr,
        b: b.size,
        c: b.stream,
        allocated: totals.allocated,
        reserved: totals.reserved,
        stack: o.stack,
        flags: flag::REPORTED | if given { 0 } else { flag::COMPLETED },
        phase: o.phase,
        ..t.record(kind, b.device)
    };
    r.set_sequence(tracker::next_sequence(b.device as i8));
    r.set_rounded(super::count::rounded(b.size));
    if b.pool != [0, 0] && !t.is_shared() {
        let [a, b] = b.pool;
        t.push(Record { ticks: r.ticks, a, b, kind: Kind::Pool as u8, ..Record::default() });
        r.flags |= flag::POOL;
    }
    t.push(r);
}

/// The pool has grown or shrunk to `now` bytes.
pub(super) fn pool(t: &mut HookGuard, device: u8, before: u64, now: u64) {
    let base = POOL_AT + (u64::from(device) << DEVICE_BIT);
    let (kind, from, size) = if now > before {
        (Kind::SegmentMap, before, now - before)
    } else {
        (Kind::SegmentUnmap, now, before - now)
    };
    segment_record(t, kind, device, base + from, size, 0);
}

/// A segment was handed to PyTorch's own allocator (`given`), or came back from it.
pub(super) fn segment(t: &mut HookGuard, b: &Block, given: bool) {
    let kind = if given { Kind::SegmentAlloc } else { Kind::SegmentFree };
    segment_record(t, kind, b.device, b.addr, b.size, b.stream);
}

fn segment_record(t: &mut HookGuard, kind: Kind, device: u8, addr: u64, size: u64, stream: u64) {
    let mut r = Record { a: addr, b: size, c: stream, ..t.record(kind, device) };
    r.set_sequence(tracker::next_sequence(device as i8));
    t.push(r);
}

/// An allocation failed for good. `free` is what the driver called free.
pub(super) fn out_of_memory(t: &mut HookGuard, b: &Block, free: u64, o: Origin) {
    let (rounded, record) = (super::count::rounded(b.size), t.record(Kind::Oom, b.device));
    t.push(Record { a: free, b: rounded, c: b.stream, stack: o.stack, phase: o.phase, ..record });
}
