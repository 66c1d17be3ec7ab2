//! The overflow ring: for threads that found no lane, and for a record or two of a thread that is going away.

use super::lane::Lane;
use super::region::Region;
use crate::format::raw::Record;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// How often a busy ring is tried. A push takes some 20 ns.
const TRIES: u32 = 64;
/// And how often after that, giving the processor away each time, which takes some milliseconds: the thread that pushes may have lost it. Then
/// a record counts as lost.
const YIELDS: u32 = 20_000;
/// A thread waited in vain: the one that pushed may have ended there. None waits any more.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// A handle of the shared ring. Copies are handles of the same ring; any thread may use one.
#[derive(Clone, Copy)]
pub struct Shared {
    region: Region,
}

impl Shared {
    pub(super) fn new(region: Region) -> Shared {
        Shared { region }
    }

    /// As [`Lane::hook`], for all threads that share the ring: the last one's word stands.
    pub fn hook(&self) -> &'static AtomicU64 {
        &self.region.ring(self.region.geometry().lanes).hook
    }

    /// Publishes a record at once. `false`: the ring was full or stayed busy; the loss is counted.
    ///
    /// Nothing stays open here, so a report that belongs to it is a record of its own (`Kind::Report`).
    pub fn push(&self, r: Record) -> bool {
        let ring = self.region.geometry().lanes;
        let busy = &self.region.ring(ring).busy;
        let yields = if IS_STUCK.load(Relaxed) { 0 } else { YIELDS };
        for i in 0..TRIES + yields {
            if busy.load(Relaxed) == 0 && busy.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                // SAFETY: the busy flag makes this call the overflow ring's only owner until it is cleared (fact 4).
                let mut lane = unsafe { Lane::new(self.region, ring) };
                let done = lane.push(r);
                busy.store(0, Release);
                return done;
            }
            if i < TRIES { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        IS_STUCK.store(true, Relaxed);
        self.region.lose();
        false
    }
}

impl Region {
    /// The ring that threads without a lane share.
    pub fn overflow(&self) -> Shared {
        Shared::new(*self)
    }
}
