//! Time that a slice may take.
//!
//! A slice holds the GIL, so what it is bounded by is the clock: what the processor does for others, what a page that lies in swap
//! costs, and what the kernel makes a copy wait for (another thread that maps memory) are pauses of the job as well. A machine that is
//! busy must not stop the probe, though: up to a bound of its own a slice gets the processor's time that it needs to come on.

use std::cell::Cell;

/// Nanoseconds of the processor that a slice may take; those on the clock after which [`LEAST`] of the processor's are enough; and those
/// after which nothing is begun in any case.
pub(super) const SLICE: u64 = 8_000_000;
const LONG: u64 = 16_000_000;
const LEAST: u64 = 2_000_000;
const MOST: u64 = 40_000_000;
/// The processor's nanoseconds of a slice that is about what can only be done at one moment.
pub(super) const AT_ONCE: u64 = 3 * SLICE;
/// Between two looks at the processor's clock, which is a system call.
const LOOK: u64 = 200_000;

/// Time that a slice may take. The clock is looked at every few objects: 25 ns.
pub(super) struct Budget {
    began: u64,
    spent: u64,
    /// No use of looking at the processor's clock before: it does not run faster than the other.
    look: Cell<u64>,
}

impl Budget {
    /// It begins now.
    pub(super) fn new() -> Budget {
        let began = now();
        Budget { began, spent: spent(), look: Cell::new(began + LEAST) }
    }

    /// It is used up: nothing that can wait is begun.
    pub(super) fn is_over(&self) -> bool {
        let now = now();
        if now < self.look.get() {
            return false;
        }
        let is_over = is_over(now.saturating_sub(self.began), spent().saturating_sub(self.spent));
        // Once over, always: the next look is one again.
        self.look.set(if is_over { 0 } else { now + LOOK });
        is_over
    }

    /// What can only be done at one moment is to be given up: a few slices' worth of the processor.
    pub(super) fn is_all_used(&self) -> bool {
        let (clock, processor) = self.used();
        processor >= AT_ONCE || clock >= 3 * MOST
    }

    /// What is under way is to be given up.
    pub(super) fn is_far_over(&self) -> bool {
        now().saturating_sub(self.began) >= MOST
    }

    /// Nanoseconds since it began: of the clock, of the processor.
    pub(super) fn used(&self) -> (u64, u64) {
        (now().saturating_sub(self.began), spent().saturating_sub(self.spent))
    }
}

/// Whether a slice that has taken so much of the clock and of the processor is at its end.
fn is_over(clock: u64, processor: u64) -> bool {
    processor >= SLICE || clock >= MOST || clock >= LONG && processor >= LEAST
}

fn now() -> u64 {
    time(libc::CLOCK_MONOTONIC)
}

/// Time of the processor that this thread has had.
fn spent() -> u64 {
    time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What the kernel counts of this thread: times that others were put before it, times that it waited, pages from a disk.
pub(super) fn usage() -> [i64; 3] {
    // SAFETY: a structure of numbers, which the call fills.
    let mut u: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: writes into our structure.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut u) };
    [u.ru_nivcsw, u.ru_nvcsw, u.ru_majflt]
}

fn time(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into our structure.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_makes_it_shorter_but_does_not_stop_it() {
        const MS: u64 = 1_000_000;
        for (clock, processor, over) in [
            (7, 7, false),
            (8, 8, true),
            (15, 3, false),
            (16, 3, true),
            (30, 1, false),
            (30, 2, true),
            (40, 0, true),
        ] {
            assert_eq!(is_over(clock * MS, processor * MS), over, "{clock} ms, {processor} of the processor");
        }
    }

    #[test]
    fn work_uses_it_up() {
        let budget = Budget::new();
        assert!(!budget.is_over() && !budget.is_far_over());
        while !budget.is_over() {
            std::hint::spin_loop();
        }
        let (clock, processor) = budget.used();
        assert!(is_over(clock, processor));
    }
}
