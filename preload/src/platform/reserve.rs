//! Memory for what this library allocates where the heap has none left: a job that runs into its limit (`ulimit -v`, `-d`) may catch that, free
//! some and go on, but an allocation of ours that fails would end it, as Rust does then.
//!
//! It lies in the library itself, and takes no physical memory before it is used. What was taken is given back as a whole, once nothing of it is in
//! use. Where it is used up, our own thread ends what it does, and goes on no more.

use super::pause::pause;
use super::tid;
use core::cell::UnsafeCell;
use std::alloc::Layout;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

/// Bytes: a search's lists come to a few MiB.
const SIZE: usize = 8 << 20;

#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; SIZE]>);
// SAFETY: only handed out, in parts that do not overlap.
unsafe impl Sync for Memory {}
static MEMORY: Memory = Memory(UnsafeCell::new([0; SIZE]));

/// Bytes that are handed out, and above them how many parts of it are in use.
static USED: AtomicU64 = AtomicU64::new(0);
const PART: u64 = 1 << 32;
/// It was more than half used at some moment.
static LOW: AtomicBool = AtomicBool::new(false);
/// Our own thread, and what it is ended with there, which does not allocate.
static OURS: AtomicU32 = AtomicU32::new(0);
static END: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// This is our own thread: where nothing is left it calls `end`, and goes on no more. Whoever waits for it does so for a bounded time.
pub(crate) fn of_our_thread(end: fn()) {
    END.store(end as *mut (), Release);
    OURS.store(tid::tid(), Release);
}

/// Whether it was more than half used at some moment: who uses it had better end.
pub(crate) fn is_low() -> bool {
    LOW.load(Relaxed)
}

/// Whether a block is of it.
pub(super) fn has(block: *const u8) -> bool {
    (block as usize).wrapping_sub(MEMORY.0.get() as usize) < SIZE
}

/// Memory for what the heap has none for; null where there is none here either, on a thread of the job's.
#[cold]
#[inline(never)]
pub(super) fn take(layout: Layout) -> *mut u8 {
    let block = part(layout);
    if !block.is_null() || OURS.load(Acquire) != tid::tid() {
        return block;
    }
    let end = END.load(Acquire);
    if !end.is_null() {
        // SAFETY: only ever set to a `fn()`.
        unsafe { core::mem::transmute::<*mut (), fn()>(end)() };
    }
    loop {
        pause(Duration::from_millis(999));
    }
}

fn part(layout: Layout) -> *mut u8 {
    let mut begin = 0;
    let take = |used: u64| {
        let (bytes, parts) = ((used % PART) as usize, used / PART);
        begin = bytes.checked_next_multiple_of(layout.align())?;
        let end = begin.checked_add(layout.size())?;
        (end <= SIZE && layout.align() <= 4096).then_some((parts + 1) * PART + end as u64)
    };
    if USED.fetch_update(AcqRel, Acquire, take).is_err() {
        return core::ptr::null_mut();
    }
    if begin + layout.size() > SIZE / 2 {
        LOW.store(true, Relaxed);
    }
    // SAFETY: it ends within the memory, as was just seen.
    unsafe { MEMORY.0.get().cast::<u8>().add(begin) }
}

/// A part of it is in use no more.
#[cold]
pub(super) fn give_back() {
    let give = |used: u64| Some(if used / PART <= 1 { 0 } else { used - PART });
    let _ = USED.fetch_update(AcqRel, Acquire, give);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_does_not_overlap_and_is_given_back_as_a_whole() {
        let layout = |size, align| Layout::from_size_align(size, align).expect("a layout");
        let [a, b] = [part(layout(3, 1)), part(layout(5_000, 64))];
        assert!(has(a) && has(b) && (b as usize).is_multiple_of(64) && b as usize >= a as usize + 3);
        assert!(part(layout(SIZE, 1)).is_null() && part(layout(8, 8192)).is_null());
        assert!(!is_low() && !has(core::ptr::from_ref(&layout).cast()));
        give_back();
        assert!(part(layout(8, 8)) as usize > b as usize, "one is in use");
        give_back();
        give_back();
        assert_eq!(part(layout(SIZE, 1)), a, "all of it");
        assert!(is_low());
        give_back();
    }
}
