//! Time: the machine's clock, or one that stands still until it is moved.
//!
//! With the manual clock an asynchronous program is deterministic: work stays unfinished until a test advances
//! time or the program itself synchronizes, which moves the clock to the instant waited for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Waits shorter than this are spun: a sleep would take longer.
const SPIN_BELOW: u64 = 60_000;

/// The device's clock, in nanoseconds.
pub struct Clock {
    manual: AtomicBool,
    hand: AtomicU64,
}

impl Clock {
    /// A clock that runs, or one that stands at 1 µs.
    pub fn new(manual: bool) -> Self {
        Clock { manual: AtomicBool::new(manual), hand: AtomicU64::new(1_000) }
    }

    /// The present.
    pub fn now(&self) -> u64 {
        if self.manual.load(Ordering::Acquire) { self.hand.load(Ordering::Acquire) } else { monotonic() }
    }

    /// Moves a manual clock forward. Without effect on a running one.
    pub fn advance(&self, nanoseconds: u64) {
        let _ = self
            .hand
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |hand| Some(hand.saturating_add(nanoseconds)));
    }

    /// Stops the clock where it is, or lets it run.
    pub fn set_manual(&self, manual: bool) {
        self.hand.fetch_max(self.now(), Ordering::AcqRel);
        self.manual.store(manual, Ordering::Release);
    }

    /// Returns once the present has reached `instant`: sleeps, or moves the manual clock there.
    pub fn wait_until(&self, instant: u64) {
        loop {
            if self.manual.load(Ordering::Acquire) {
                self.hand.fetch_max(instant, Ordering::AcqRel);
                return;
            }
            let now = monotonic();
            if now >= instant {
                return;
            }
            if instant - now < SPIN_BELOW {
                std::hint::spin_loop();
            } else {
                // In slices, so that a wait ends when a test stops the clock.
                std::thread::sleep(Duration::from_nanos((instant - now).min(50_000_000)));
            }
        }
    }
}

fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec on this stack; the clock id is a constant that every Linux knows.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told_or_waited_for() {
        let clock = Clock::new(true);
        let start = clock.now();
        assert_eq!(clock.now(), start);
        clock.advance(500);
        assert_eq!(clock.now(), start + 500);
        clock.wait_until(start + 9_000);
        assert_eq!(clock.now(), start + 9_000);
        clock.wait_until(start);
        assert_eq!(clock.now(), start + 9_000);
    }

    #[test]
    fn a_running_clock_can_be_stopped_without_going_back() {
        let clock = Clock::new(false);
        let before = clock.now();
        clock.set_manual(true);
        let stopped = clock.now();
        assert!(stopped >= before);
        assert_eq!(clock.now(), stopped);
        clock.set_manual(false);
        assert!(clock.now() >= stopped);
    }
}
