//! What the allocator calls for each of its events, and the report that completes them.
//!
//! Rules of this room: hot, and under the device's allocator lock. No heap, no lock, no call but the clock and, at a
//! thread's first event, for c10's thread-local gradient mode; no GIL; nothing that can panic.
//!
//! The report (`reportMemoryUsageToProfiler`) follows its event on the same thread and under the same lock, so it
//! patches the record that the event left open: rounded size and torch's own totals cost no record of their own.

use super::entry::{TIME_AFTER_POOL, TIME_BEFORE_POOLS, TraceEntry};
use super::grad;
use crate::platform::clock;
use crate::python::collector;
use crate::recorder::guard::{FastGuard, enter, enter_fast};
use crate::recorder::overhead;
use crate::recorder::thread::Thread;
use crate::stacks;
use core::num::NonZeroU64;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::Relaxed};
use strandline_core::event::{HookId, Phase};
use strandline_core::format::raw::{Kind, Record, flag};

/// What the shared memory calls an event of the allocator, and its report.
const EVENT: HookId = HookId::of("tracker");
const REPORT: HookId = HookId::of("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

const ALLOC: i32 = Kind::Alloc as i32;
const FREE_REQUESTED: i32 = Kind::FreeRequested as i32;
const FREE_COMPLETED: i32 = Kind::FreeCompleted as i32;
const SEGMENT_UNMAP: i32 = Kind::SegmentUnmap as i32;
const SNAPSHOT: i32 = Kind::Snapshot as i32;
const OOM: i32 = Kind::Oom as i32;

/// One counter per device, on a cache line of its own. PyTorch's events come with the device's allocator lock held, so they need no
/// read-modify-write of the hardware's, until a block is counted that CUDA itself handed out (`of_many`): no lock orders those.
#[repr(align(64))]
struct Sequence {
    next: AtomicU32,
    of_many: AtomicBool,
}
static SEQUENCES: [Sequence; 128] =
    [const { Sequence { next: AtomicU32::new(0), of_many: AtomicBool::new(false) } }; 128];

/// Where `time_` lies: 0 = not looked for yet, 1 = not to be used.
#[unsafe(link_section = ".data.strandline_hot")]
static TIME_AT: AtomicU32 = AtomicU32::new(0);
const UNUSABLE: u32 = 1;
/// Entries have a pool (2.8 and newer).
#[unsafe(link_section = ".data.strandline_hot")]
static POOLS: AtomicBool = AtomicBool::new(false);
#[unsafe(link_section = ".data.strandline_hot")]
static STACKS: AtomicBool = AtomicBool::new(false);
/// The tracker is in place; reports have events to complete.
#[unsafe(link_section = ".data.strandline_hot")]
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// The code of the hook that follows each event.
#[unsafe(link_section = ".data.strandline_hot")]
static REPORT_CODE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Says where the code of the hook on the allocator's report is: it is brought near when an event is recorded.
pub(crate) fn set_report_code(code: *const ()) {
    REPORT_CODE.store(code.cast_mut(), Relaxed);
}

/// What is settled before the first event.
pub(super) struct Setup {
    /// Entries have a pool.
    pub(super) pools: bool,
    /// Record stacks.
    pub(super) stacks: bool,
}

/// Settles it.
pub(super) fn prepare(s: &Setup) {
    POOLS.store(s.pools, Relaxed);
    STACKS.store(s.stacks, Relaxed);
}

/// From now on reports are taken.
pub(super) fn attached() {
    ATTACHED.store(true, Relaxed);
}

/// What an allocation of this thread, or one that failed, is recorded with: its phase, and its stack if stacks are recorded.
#[inline(always)]
pub(crate) fn origin(t: &mut Thread) -> (u8, u32) {
    let stack = if STACKS.load(Relaxed) { stacks::current(t) } else { 0 };
    let no_grad = grad::is_off(t);
    (t.phase(no_grad), stack)
}

/// The same of one that did not fail, which tells of Python's collector, too.
#[inline(always)]
pub(crate) fn origin_of_block(t: &mut Thread) -> (u8, u32) {
    let (phase, stack) = origin(t);
    (phase | if collector::take_full_gc() { COLLECTOR } else { 0 }, stack)
}

/// The number of the next allocator event of a device. Called with the device's lock held.
#[inline(always)]
pub(crate) fn next_sequence(device: i8) -> u32 {
    // Index from an i8 with the sign bit masked off: below 128.
    let Some(s) = SEQUENCES.get((device & 0x7f) as usize) else { return 0 };
    if s.of_many.load(Relaxed) {
        return s.next.fetch_add(1, Relaxed);
    }
    let n = s.next.load(Relaxed);
    s.next.store(n.wrapping_add(1), Relaxed);
    n
}

/// The same where no lock orders the device's events: the blocks that CUDA itself hands out.
#[inline(always)]
pub(crate) fn next_sequence_of_many(device: u8) -> u32 {
    let Some(s) = SEQUENCES.get(usize::from(device & 0x7f)) else { return 0 };
    s.of_many.store(true, Relaxed);
    s.next.fetch_add(1, Relaxed)
}

/// What a record says of Python's collector; see [`Phase::collector`].
const COLLECTOR: u8 =
    Phase { backward: false, optimizer: false, no_grad: false, capture: false, collector: true }.to_bits();

/// The bit of a free that happens while Python's collector is at work.
#[inline(always)]
fn collected() -> u8 {
    if collector::is_watched_at_work() { COLLECTOR } else { 0 }
}

/// The tracker: called through our `std::function`, with the device's lock held.
///
/// The three events that every block has go short ways of their own; the rest, and what is not as usual, goes `otherwise`.
///
/// # Safety
/// `e` must point to a live `TraceEntry`.
#[unsafe(link_section = ".text.strandline_hot")]
pub(super) unsafe extern "C" fn event(_functor: *const c_void, e: *const TraceEntry) {
    // SAFETY: the allocator passes a reference that lives during the call; we read only the part that all versions share,
    // and the pool and time where the version has them.
    let e = unsafe { &*e };
    match e.action {
        ALLOC => {
            overhead::prefetch::<10>(allocated as *const ());
            overhead::prefetch::<11>(stacks::current as *const ());
            allocated(e);
        }
        FREE_REQUESTED if requested(e).is_some() => {}
        FREE_COMPLETED if completed(e).is_some() => {}
        _ => record_slow_path(e),
    }
}

/// A block is handed out. On its own, since it calls others, and what a block's end takes does not.
#[inline(never)]
#[unsafe(link_section = ".text.strandline_hot")]
fn allocated(e: &TraceEntry) {
    if allocated_quickly(e).is_none() {
        record_slow_path(e);
    }
}

/// `None`: nothing was done, since something is not as usual.
#[inline(always)]
fn allocated_quickly(e: &TraceEntry) -> Option<()> {
    let (mut t, at) = enter_for(e)?;
    // What is told of it must be written.
    if collector::full_gc_pending() {
        return None;
    }
    let (phase, stack) = t.noted(EVENT, origin);
    write(&mut t, e, at, phase, stack)?;
    t.freeing = None;
    Some(())
}

/// A block is given back. `None`: nothing was done, since something is not as usual.
#[inline(always)]
fn requested(e: &TraceEntry) -> Option<()> {
    overhead::prefetch::<11>(event as *const ());
    let (mut t, at) = enter_for(e)?;
    let phase = t.phase(false) | collected();
    write(&mut t, e, at, phase, 0)?;
    t.freeing = NonZeroU64::new(e.addr).map(|block| (e.device as u8, block));
    Some(())
}

/// The token for an event of a block that has no pool of its own, and where its time lies.
#[inline(always)]
fn enter_for(e: &TraceEntry) -> Option<(FastGuard, u32)> {
    let at = TIME_AT.load(Relaxed);
    if at <= UNUSABLE || has_pool(e) {
        return None;
    }
    Some((enter_fast(|| began(e))?, at))
}

/// When torch began what it does for an event because we are attached, if entries tell.
#[inline(always)]
fn began(e: &TraceEntry) -> Option<u64> {
    let at = TIME_AT.load(Relaxed);
    // SAFETY: see `time`.
    (at > UNUSABLE).then(|| unsafe { time_at(e, at) })
}

/// Writes its record.
#[inline(always)]
fn write(t: &mut Thread, e: &TraceEntry, at: u32, phase: u8, stack: u32) -> Option<()> {
    let slot = t.next()?;
    let mut r = Record {
        // SAFETY: see `time`.
        ticks: unsafe { time_at(e, at) },
        a: e.addr,
        b: e.size,
        c: e.stream,
        stack,
        kind: e.action as u8,
        device: e.device as u8,
        phase,
        ..Record::default()
    };
    r.set_sequence(next_sequence(e.device));
    *slot = r;
    overhead::prefetch::<5>(REPORT_CODE.load(Relaxed).cast_const());
    Some(())
}

/// A block is free at once: the completion becomes a flag of the request. `None`: it is not, or something is not as usual.
#[inline(always)]
fn completed(e: &TraceEntry) -> Option<()> {
    let mut t = enter_fast(|| began(e))?;
    let open = t.opened()?;
    if open.kind != FREE_REQUESTED as u8 || open.a != e.addr {
        return None;
    }
    open.flags |= flag::COMPLETED;
    t.freeing = None;
    Some(())
}

/// Every event, as usual or not.
#[cold]
#[inline(never)]
fn record_slow_path(e: &TraceEntry) {
    let Some(mut t) = enter(EVENT) else { return };
    let t: &mut Thread = &mut t;
    let action = e.action;
    if !(ALLOC..=OOM).contains(&action) {
        return;
    }
    if action == FREE_COMPLETED
        && let Some(open) = t.opened()
        && open.kind == FREE_REQUESTED as u8
        && open.a == e.addr
    {
        open.flags |= flag::COMPLETED;
        t.freeing = None;
        return;
    }
    let mut r = record_of(t, e);
    match action {
        ALLOC => {
            (r.phase, r.stack) = origin_of_block(t);
            t.freeing = None;
            t.open(r);
        }
        FREE_REQUESTED => {
            r.phase = t.phase(false) | collected();
            t.freeing = NonZeroU64::new(r.a).map(|block| (r.device, block));
            t.open(r);
        }
        OOM => {
            (r.phase, r.stack) = origin(t);
            t.push(r);
        }
        // Always says device 0, whichever device's lock is held: it has no place in that device's order.
        SNAPSHOT => t.push(r),
        _ => {
            r.phase = t.phase(false);
            t.push(r);
        }
    }
}

/// The record of an event, without what is this thread's; its pool, if it has one, is written before it.
#[inline(always)]
fn record_of(t: &mut Thread, e: &TraceEntry) -> Record {
    let ticks = time(e);
    t.pulse.began(ticks);
    let mut r = Record {
        ticks,
        a: e.addr,
        b: e.size,
        c: e.stream,
        kind: e.action as u8,
        device: e.device as u8,
        ..Record::default()
    };
    if e.action <= SEGMENT_UNMAP {
        r.set_sequence(next_sequence(e.device));
        if has_pool(e) && !t.is_shared() {
            in_pool(t, ticks, e.pool);
            r.flags = flag::POOL;
        }
    }
    r
}

/// Whether it is of a pool of its own, as memory of a graph is.
#[inline(always)]
fn has_pool(e: &TraceEntry) -> bool {
    POOLS.load(Relaxed) && e.pool != [0, 0]
}

#[cold]
#[inline(never)]
fn in_pool(t: &mut Thread, ticks: u64, pool: [u64; 2]) {
    t.push(Record { ticks, a: pool[0], b: pool[1], kind: Kind::Pool as u8, ..Record::default() });
}

/// When the event happened. c10 read the TSC for `time_` under the lock, which is both cheaper than reading it again and
/// sorts all threads of a device into torch's own order.
#[inline(always)]
fn time(e: &TraceEntry) -> u64 {
    let mut at = TIME_AT.load(Relaxed);
    if at == 0 {
        at = find_time(e);
    }
    if at == UNUSABLE {
        return clock::ticks();
    }
    // SAFETY: `find_time` found a plausible time there, in the first entry of this same library.
    unsafe { time_at(e, at) }
}

/// # Safety
/// The entry must have a word at this offset.
#[inline(always)]
unsafe fn time_at(e: &TraceEntry, at: u32) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { *core::ptr::from_ref(e).byte_add(at as usize).cast::<u64>() }
}

/// Looks where the first entry has a value that is just now. Both offsets lie within the smallest entry that has a word
/// there: 56 bytes up to 2.7, 104 from 2.8.
#[cold]
#[inline(never)]
fn find_time(e: &TraceEntry) -> u32 {
    const NEAR: u64 = 50_000_000;
    let now = clock::rdtsc();
    let near = |at: usize| {
        // SAFETY: offset 48 is inside every version's entry; 64 is only looked at where entries have pools, hence 104 bytes.
        let v = unsafe { time_at(e, at as u32) };
        v <= now && now - v < NEAR
    };
    let found = if near(TIME_BEFORE_POOLS) {
        POOLS.store(false, Relaxed); // whatever the version said: a pool is never a time
        TIME_BEFORE_POOLS as u32
    } else if POOLS.load(Relaxed) && near(TIME_AFTER_POOL) {
        TIME_AFTER_POOL as u32
    } else {
        UNUSABLE
    };
    let found = if clock::is_tsc() { found } else { UNUSABLE };
    TIME_AT.store(found, Relaxed);
    found
}

/// Whether reports are taken: the tracker is in place.
#[inline(always)]
pub(crate) fn takes_reports() -> bool {
    ATTACHED.load(Relaxed)
}

/// The report: the block at `addr` was handed out (`size` > 0, rounded) or given back (< 0), and torch's totals on this
/// device are now these. `None`: it completes nothing, or something is not as usual: see [`report`].
#[inline(always)]
pub(crate) fn report_quickly(addr: u64, size: i64, allocated: u64, reserved: u64) -> Option<()> {
    let mut t = enter_fast(|| None)?;
    let r = t.opened()?;
    if r.a != addr || r.kind > FREE_COMPLETED as u8 {
        return None;
    }
    complete(r, size, allocated, reserved);
    t.freeing = None;
    t.publish();
    Some(())
}

#[inline(always)]
fn complete(r: &mut Record, size: i64, allocated: u64, reserved: u64) {
    r.set_rounded(size.unsigned_abs());
    r.allocated = allocated;
    r.reserved = reserved;
    r.flags |= flag::REPORTED;
}

/// The same, whatever there is: a report that completes nothing is a record of its own.
#[cold]
#[inline(never)]
pub(crate) fn report(addr: u64, size: i64, allocated: u64, reserved: u64, device: u8) {
    let Some(mut t) = enter(REPORT) else { return };
    t.freeing = None;
    match t.opened() {
        Some(r) if r.a == addr && r.kind <= FREE_COMPLETED as u8 => {
            complete(r, size, allocated, reserved);
            t.publish();
        }
        _ => {
            let r = Record {
                ticks: clock::ticks(),
                a: addr,
                b: size as u64,
                allocated,
                reserved,
                kind: Kind::Report as u8,
                device,
                flags: flag::REPORTED,
                ..Record::default()
            };
            t.push(r);
        }
    }
}

#[cfg(test)]
mod tests;
