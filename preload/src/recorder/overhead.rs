//! What recording costs, as the recording itself tells it: time in our hooks, memory of the host, none of the device.
//!
//! Hot but for what is marked: one entry in [`EVERY`] of a thread is timed, so an entry costs a count and two compares. It is timed
//! where it happens and as it is, once: its code and what it reads come from as far away as they do every other time.
//! Heap of ours is counted where it is allocated, which is never on the hot path; what we have mapped is asked of the
//! kernel, by the writing thread.

use crate::platform::clock;
use crate::platform::heap::Heap;
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use serde_json::{Value, json};

/// One entry of a thread in so many is timed.
const EVERY: u32 = 1024;
/// Ticks that one entry takes at most, some 20 µs of a TSC: in a longer one the kernel had something else run meanwhile, which
/// is no cost of ours, and would count for a thousand others.
const LONGEST: u64 = 50_000;

/// Entries that were timed, of all threads.
static TIMED: AtomicU64 = AtomicU64::new(0);
/// What they took together, in ticks.
static TICKS: AtomicU64 = AtomicU64::new(0);
/// Bytes of our heap.
static HEAP: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds that the search for holders has paused the job.
static PAUSED: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds that the search for holders has paused the job.
pub(crate) fn paused() -> u64 {
    PAUSED.load(Relaxed)
}

/// The search for holders has paused the job for so many more.
pub(crate) fn add_pause(nanos: u64) {
    PAUSED.fetch_add(nanos, Relaxed);
}

/// A thread's part: when it is to be timed again, and since when it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverheadSampler {
    left: u32,
    /// Ticks that timing nothing takes, here and now: reading a clock is as dear as a short hook.
    nothing: u32,
    /// Ticks that it took to begin to time.
    preparing: u32,
    /// Ticks at which the entry that is timed began; 0: it is not timed.
    since: u64,
}

/// What an entry took of its own: without what it takes to time it, which is as dear as a short hook. A hook takes a tick at
/// least, whatever the clock's steps.
fn own(took: u64, timing: u64) -> u64 {
    took.saturating_sub(timing).clamp(1, LONGEST)
}

impl OverheadSampler {
    /// Of a thread that begins. Half a period goes by first: a thread of few events is neither always nor never timed.
    pub(crate) const fn new() -> OverheadSampler {
        OverheadSampler { left: EVERY / 2, nothing: 0, preparing: 0, since: 0 }
    }

    /// A hook begins; `began`: when what it is called for did, see [`OverheadSampler::began`], if that is known.
    #[inline(always)]
    pub(crate) fn enter(&mut self, began: impl FnOnce() -> Option<u64>) {
        self.left = self.left.wrapping_sub(1);
        if self.left <= 1 {
            self.soon(began());
        }
    }

    /// This entry is timed, or the next one is: then what times it is tried, so that its code is at hand.
    #[cold]
    #[inline(never)]
    fn soon(&mut self, began: Option<u64>) {
        self.begin();
        if self.left == 1 {
            self.since = 0;
        } else {
            self.left = EVERY;
            if let Some(ticks) = began {
                self.began(ticks);
            }
        }
    }

    /// What is timed began earlier, at these ticks: torch makes its trace entry only because we are attached, and tells
    /// when it began. What lies between is its work and ours, but for the preparation to time it.
    #[inline(always)]
    pub(crate) fn began(&mut self, ticks: u64) {
        if self.since != 0 {
            self.since = self.since.min(ticks.saturating_add(u64::from(self.preparing)));
        }
    }

    /// A hook ends.
    #[inline(always)]
    pub(crate) fn leave(&mut self) {
        if self.since != 0 {
            let took = self.elapsed();
            self.count(took);
        }
    }

    /// Nothing is timed, before: for what that takes, and so that the code that ends it is at hand when it ends.
    #[cold]
    #[inline(never)]
    fn begin(&mut self) {
        let begun = clock::ticks();
        for _ in 0..2 {
            self.since = clock::ticks();
            self.nothing = self.elapsed() as u32;
        }
        self.since = clock::ticks();
        self.preparing = u32::try_from(self.since.saturating_sub(begun)).unwrap_or(u32::MAX);
    }

    #[cold]
    #[inline(never)]
    fn elapsed(&self) -> u64 {
        clock::ticks().saturating_sub(self.since)
    }

    #[cold]
    #[inline(never)]
    fn count(&mut self, took: u64) {
        let own = own(took, u64::from(self.nothing));
        TICKS.fetch_add(own, Relaxed);
        TIMED.fetch_add(1, Relaxed);
        self.since = 0;
    }
}

/// Brings so many lines of a function to the caches, all at once: between two events of a real step other code has pushed ours out of
/// the nearest ones, and to run through it is to wait for line after line.
#[inline(always)]
pub(crate) fn prefetch<const LINES: usize>(function: *const ()) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in 0..LINES {
        // SAFETY: prefetching has no effect on memory, wherever the address is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(function.cast::<i8>().wrapping_add(64 * line)) };
    }
}

/// The fact `cost` of the recording (docs/recording.md), for a recording that began `elapsed_ns` ago and whose clock has
/// made `elapsed_ticks` since.
#[cold]
pub(crate) fn fact(elapsed_ns: u64, elapsed_ticks: u64, mapped: u64) -> Value {
    let timed = TIMED.load(Relaxed);
    // The clock's rate is that of the whole recording.
    let ns = TICKS.load(Relaxed) as f64 * elapsed_ns as f64 / elapsed_ticks.max(1) as f64;
    json!({ "cost": {
        "timed_hooks": timed,
        "timed_ns": ns as u64,
        "one_in": EVERY,
        "probe_ns": paused(),
        "elapsed_ns": elapsed_ns,
        "host_bytes": mapped + HEAP.load(Relaxed),
        "device_bytes": 0,
    } })
}

/// The heap of this library, counted.
struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: every call is handed on to the heap as it is, and its result is returned as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: the caller's layout.
        unsafe { Heap.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        HEAP.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: the caller's layout.
        unsafe { Heap.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size() as u64, Relaxed);
        // SAFETY: `p` came from the heap with this layout.
        unsafe { Heap.dealloc(p, layout) }
    }

    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HEAP.fetch_add((size as u64).wrapping_sub(layout.size() as u64), Relaxed);
        // SAFETY: `p` came from the heap with this layout; the size is the caller's.
        unsafe { Heap.realloc(p, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_in_so_many_is_timed_from_where_it_began() {
        let mut p = OverheadSampler::new();
        let mut timed = 0;
        for _ in 0..10 * EVERY {
            p.enter(|| None);
            timed += u32::from(p.since != 0);
            let (since, preparing) = (p.since, u64::from(p.preparing));
            p.began(since.saturating_sub(preparing + 100));
            assert!(
                since == 0 || p.since == since - 100,
                "torch's own work counts, the preparation does not"
            );
            p.since = 0;
            p.leave();
        }
        assert_eq!(timed, 10);
    }

    #[test]
    fn what_timing_takes_is_told_of_no_hook() {
        assert_eq!(own(150, 40), 110, "as it was timed, without the timing");
        assert_eq!(own(30, 40), 1, "a hook takes a tick");
        assert_eq!(own(2 * LONGEST, 40), LONGEST, "the kernel's work is no hook's");
    }

    #[test]
    fn what_times_an_entry_is_tried_at_the_one_before() {
        let mut p = OverheadSampler::new();
        p.left = 2;
        p.enter(|| Some(1));
        assert_eq!((p.since, p.left), (0, 1), "tried, not timed");
        assert_ne!(p.preparing, 0);
        p.enter(|| Some(1));
        assert_eq!(
            (p.since, p.left),
            (1 + u64::from(p.preparing), EVERY),
            "since what it is called for began"
        );
        let timed = TIMED.load(Relaxed);
        p.leave();
        assert_eq!(p.since, 0);
        assert!(TIMED.load(Relaxed) > timed);
    }
}
