//! What the allocator calls for each of its events, and the report that completes them.
//!
//! Rules of this room: hot, and under the device's allocator lock. No heap, no lock, no call but the clock and c10's
//! thread-local gradient mode; no GIL; nothing that can panic.
//!
//! The report (`reportMemoryUsageToProfiler`) follows its event on the same thread and under the same lock, so it
//! patches the record that the event left open: rounded size and torch's own totals cost no record of their own.

use super::entry::{TIME_AFTER_POOL, TIME_BEFORE_POOLS, TraceEntry};
use crate::entered::enter;
use crate::probe::collector;
use crate::thread::Thread;
use crate::{clock, stacks};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::Relaxed};
use strandline_core::event::Phase;
use strandline_core::format::raw::{Kind, Record, flag};

const ALLOC: i32 = Kind::Alloc as i32;
const FREE_REQUESTED: i32 = Kind::FreeRequested as i32;
const FREE_COMPLETED: i32 = Kind::FreeCompleted as i32;
const SEGMENT_UNMAP: i32 = Kind::SegmentUnmap as i32;
const SNAPSHOT: i32 = Kind::Snapshot as i32;
const OOM: i32 = Kind::Oom as i32;

/// One counter per device, on a cache line of its own. The device's allocator lock is held whenever it is touched, so it
/// needs no read-modify-write of the hardware's.
#[repr(align(64))]
struct Sequence(AtomicU32);
static SEQUENCES: [Sequence; 128] = [const { Sequence(AtomicU32::new(0)) }; 128];

/// Where `time_` lies: 0 = not looked for yet, 1 = not to be used.
static TIME_AT: AtomicU32 = AtomicU32::new(0);
const UNUSABLE: u32 = 1;
/// Entries have a pool (2.8 and newer).
static POOLS: AtomicBool = AtomicBool::new(false);
static STACKS: AtomicBool = AtomicBool::new(false);
/// `c10::GradMode::is_enabled`.
static GRAD_MODE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The tracker is in place; reports have events to complete.
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// What is settled before the first event.
pub(super) struct Setup {
    /// Entries have a pool.
    pub(super) pools: bool,
    /// Record stacks.
    pub(super) stacks: bool,
    /// `c10::GradMode::is_enabled`, or null.
    pub(super) grad_mode: *mut c_void,
}

/// Settles it.
pub(super) fn prepare(s: &Setup) {
    POOLS.store(s.pools, Relaxed);
    STACKS.store(s.stacks, Relaxed);
    GRAD_MODE.store(s.grad_mode, Relaxed);
}

/// From now on reports are taken.
pub(super) fn attached() {
    ATTACHED.store(true, Relaxed);
}

/// What an allocation of this thread is recorded with: its phase, and its stack if stacks are recorded.
#[inline(always)]
pub(crate) fn origin(t: &mut Thread) -> (u8, u32) {
    let phase = t.phase(no_grad());
    (phase, if STACKS.load(Relaxed) { stacks::current(t) } else { 0 })
}

/// The number of the next allocator event of a device. Called with the device's lock held.
#[inline(always)]
pub(crate) fn next_sequence(device: i8) -> u32 {
    // Index from an i8 with the sign bit masked off: below 128.
    let Some(s) = SEQUENCES.get((device & 0x7f) as usize) else { return 0 };
    let n = s.0.load(Relaxed);
    s.0.store(n.wrapping_add(1), Relaxed);
    n
}

/// The same where no lock orders the device's events: the blocks that CUDA itself hands out.
#[inline(always)]
pub(crate) fn next_sequence_of_many(device: u8) -> u32 {
    SEQUENCES.get(usize::from(device & 0x7f)).map_or(0, |s| s.0.fetch_add(1, Relaxed))
}

#[inline(always)]
fn no_grad() -> bool {
    let f = GRAD_MODE.load(Relaxed);
    if f.is_null() {
        return false;
    }
    // SAFETY: set only to `bool c10::GradMode::is_enabled()`, which reads a thread-local and cannot throw.
    let f: extern "C" fn() -> bool = unsafe { core::mem::transmute(f) };
    !f()
}

/// The bit of a free that happens while Python's collector is at work.
#[inline(always)]
fn collected() -> u8 {
    const COLLECTOR: u8 =
        Phase { backward: false, optimizer: false, no_grad: false, capture: false, collector: true }
            .to_bits();
    if collector::is_watched_at_work() { COLLECTOR } else { 0 }
}

/// The tracker: called through our `std::function`, with the device's lock held.
///
/// # Safety
/// `e` must point to a live `TraceEntry`.
pub(super) unsafe extern "C" fn event(_functor: *const c_void, e: *const TraceEntry) {
    let Some(mut t) = enter() else { return };
    let t: &mut Thread = &mut t;
    // SAFETY: the allocator passes a reference that lives during the call; we read only the part that all versions share,
    // and the pool and time where the version has them.
    let e = unsafe { &*e };
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
    let ticks = time(e);
    t.pulse.began(ticks);
    let mut r = Record {
        ticks,
        a: e.addr,
        b: e.size,
        c: e.stream,
        kind: action as u8,
        device: e.device as u8,
        ..Record::default()
    };
    if action == SNAPSHOT {
        // Always says device 0, whichever device's lock is held: it has no place in that device's order.
        return t.push(r);
    }
    if action <= SEGMENT_UNMAP {
        r.set_sequence(next_sequence(e.device));
        if POOLS.load(Relaxed) && e.pool != [0, 0] && !t.is_shared() {
            t.push(Record { ticks, a: e.pool[0], b: e.pool[1], kind: Kind::Pool as u8, ..Record::default() });
            r.flags = flag::POOL;
        }
    }
    match action {
        ALLOC => {
            r.phase = t.phase(no_grad());
            if STACKS.load(Relaxed) {
                r.stack = stacks::current(t);
            }
            t.freeing = None;
            t.open(r);
        }
        FREE_REQUESTED => {
            r.phase = t.phase(false) | collected();
            t.freeing = Some((r.device, r.a));
            t.open(r);
        }
        OOM => {
            r.phase = t.phase(no_grad());
            if STACKS.load(Relaxed) {
                r.stack = stacks::current(t);
            }
            t.push(r);
        }
        _ => {
            r.phase = t.phase(false);
            t.push(r);
        }
    }
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
        let v = unsafe { *core::ptr::from_ref(e).byte_add(at).cast::<u64>() };
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

/// The report: the block at `addr` was handed out (`size` > 0, rounded) or given back (< 0), and torch's totals on this
/// device are now these.
#[inline(always)]
pub(crate) fn report(addr: u64, size: i64, allocated: u64, reserved: u64, device: u8) {
    if !ATTACHED.load(Relaxed) {
        return;
    }
    let Some(mut t) = enter() else { return };
    t.freeing = None;
    match t.opened() {
        Some(r) if r.a == addr && r.kind <= FREE_COMPLETED as u8 => {
            r.set_rounded(size.unsigned_abs());
            r.allocated = allocated;
            r.reserved = reserved;
            r.flags |= flag::REPORTED;
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
