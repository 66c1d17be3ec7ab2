//! A thread's own ring, from the thread's side: the hot path.

use super::layout::Ring;
use super::region::Region;
use crate::format::raw::{Kind, Record, words_of_name};
use crate::format::region::owner;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The owner's side of one ring. It may move between threads, but only one may use it at a time.
///
/// A record is *open* from [`Lane::open`] to [`Lane::publish`]: its owner may patch it through [`Lane::opened`], and
/// nobody else sees it. Dropping a lane keeps the ring taken for ever; [`Lane::release`] gives it back.
pub struct Lane {
    ring: NonNull<Ring>,
    slots: NonNull<Record>,
    mask: u32,
    /// Records published so far; the index of the open record or of the next one.
    head: u64,
    /// `head` may grow up to here before the drain's progress must be looked at.
    limit: u64,
    open: bool,
}

// Five words: what every event needs of a thread lies on two cache lines with it.
const _: () = assert!(size_of::<Option<Lane>>() == 40);

// SAFETY: a lane is the ring's only owner (fact 4), whichever thread holds it; the pointers are to memory that outlives
// the process (fact 1).
unsafe impl Send for Lane {}

impl Lane {
    /// # Safety
    /// The caller must be the only owner of ring `i` of `region`, and `i` must be at most `lanes`.
    pub(super) unsafe fn new(region: Region, i: u32) -> Lane {
        let ring = region.ring(i);
        let mut lane = Lane {
            ring: NonNull::from(ring),
            slots: region.slots(i),
            mask: region.geometry().ring_records(i) - 1,
            head: ring.head.load(Relaxed),
            limit: 0,
            open: false,
        };
        // An untold loss of the owner before must be told first: look at the room at once.
        let told = ring.told.load(Relaxed) == ring.lost.load(Relaxed);
        lane.limit = if told { lane.room() } else { lane.head };
        lane
    }

    /// This lane's thread number: 1 for the first claim of the region (0 stands for the overflow ring).
    pub fn thread(&self) -> u32 {
        self.ring().thread.load(Relaxed) as u32
    }

    /// Where the owner leaves which hook it is in ([`crate::event::HookId`]), for whoever reads the region after its death.
    pub fn hook(&self) -> &'static AtomicU64 {
        // SAFETY: as in `ring`: the region's memory lives for ever.
        unsafe { &(*self.ring.as_ptr()).hook }
    }

    /// Opens the next record; one that is still open is published first. `None`: the ring is full, the loss is counted,
    /// and nothing is open.
    ///
    /// The record holds an older one's words: assign all of it.
    #[inline(always)]
    pub fn open(&mut self) -> Option<&mut Record> {
        if self.open {
            self.publish();
        }
        if self.head == self.limit && !self.make_room() {
            return None;
        }
        self.open = true;
        // SAFETY: head < limit <= tail + capacity, so the slot is the owner's (fact 3); the borrow of `self` keeps a second
        // reference from being made.
        Some(unsafe { &mut *self.slot(self.head) })
    }

    /// As [`Lane::open`], without a look at the drain's progress. `None`: it must be looked at; only what was open is published.
    #[inline(always)]
    pub fn open_known(&mut self) -> Option<&mut Record> {
        self.publish();
        if self.head == self.limit {
            return None;
        }
        self.open = true;
        // SAFETY: as in `open`.
        Some(unsafe { &mut *self.slot(self.head) })
    }

    /// The record that is still open, to be patched.
    #[inline(always)]
    pub fn opened(&mut self) -> Option<&mut Record> {
        if !self.open {
            return None;
        }
        // SAFETY: as in `open`: an open record has not been published, so its slot is the owner's.
        Some(unsafe { &mut *self.slot(self.head) })
    }

    /// Publishes the open record, if there is one.
    #[inline(always)]
    pub fn publish(&mut self) {
        if !self.open {
            return;
        }
        self.open = false;
        self.head += 1;
        self.ring().head.store(self.head, Release);
        self.prefetch();
    }

    /// Writes a whole record and publishes it. `false`: lost, and counted.
    #[inline(always)]
    pub fn push(&mut self, r: Record) -> bool {
        match self.open() {
            Some(slot) => {
                *slot = r;
                self.publish();
                true
            }
            None => false,
        }
    }

    /// The first record of a new owner: who it is. `name` is the thread's name, zero-padded.
    pub fn announce(&mut self, ticks: u64, tid: u32, name: [u8; 16], flags: u8) -> bool {
        let (b, c) = words_of_name(name);
        self.push(Record {
            ticks,
            a: u64::from(tid),
            b,
            c,
            stack: self.thread(),
            kind: Kind::Thread as u8,
            flags,
            ..Record::default()
        })
    }

    /// Gives the ring back, on thread exit; what is open is published. Another thread may have it once it is drained.
    pub fn release(mut self) {
        self.publish();
        self.ring().hook.store(0, Relaxed);
        self.ring().state.store(owner::RELEASED, Release);
    }

    #[inline(always)]
    fn ring(&self) -> &Ring {
        // SAFETY: fact 1: made from a reference to a ring header of the region, which lives for ever.
        unsafe { self.ring.as_ref() }
    }

    #[inline(always)]
    fn slot(&self, index: u64) -> *mut Record {
        // SAFETY: index & mask < capacity, and the ring has that many slots from `slots` on (fact 1).
        unsafe { self.slots.as_ptr().add((index as u32 & self.mask) as usize) }
    }

    /// The highest `head` that the drain's progress allows.
    fn room(&self) -> u64 {
        self.ring().tail.load(Acquire).wrapping_add(u64::from(self.mask) + 1)
    }

    /// Looks at the drain's progress. After a loss, the first thing into the new room is a Gap.
    #[cold]
    fn make_room(&mut self) -> bool {
        self.limit = self.room();
        let lost = self.ring().lost.load(Relaxed);
        let told = self.ring().told.load(Relaxed);
        // Room for the Gap and one record at least, else this record is lost too and the Gap comes later.
        let needed = if lost == told { 1 } else { 2 };
        if self.limit.wrapping_sub(self.head) < needed {
            self.limit = self.head;
            self.ring().lost.store(lost + 1, Relaxed);
            return false;
        }
        if lost != told {
            // A ring that was full has a record before this one, which only its owner overwrites.
            // SAFETY: the slot before `head` was written by an owner of this ring; the drain at most reads it.
            let ticks = unsafe { (*self.slot(self.head.wrapping_sub(1))).ticks };
            let gap = Record { ticks, a: lost, kind: Kind::Gap as u8, ..Record::default() };
            // SAFETY: head < limit: the slot is the owner's (fact 3).
            unsafe { *self.slot(self.head) = gap };
            self.head += 1;
            self.ring().head.store(self.head, Release);
            self.ring().told.store(lost, Relaxed);
        }
        true
    }

    /// Takes the next record's cache line for writing before it is needed.
    #[inline(always)]
    fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            // The compiler's own hint becomes one for reading, unless a newer processor is asked for: the line would come shared
            // with the drain, and be fetched again to be written. Processors without the instruction pass over it.
            // SAFETY: prefetching has no effect on memory; the address is a slot of the ring.
            unsafe {
                std::arch::asm!("prefetchw byte ptr [{}]", in(reg) self.slot(self.head), options(nostack, preserves_flags, readonly))
            };
        }
    }
}

impl Region {
    /// A ring for this thread among the first `n` lanes: those whose memory exists. `None` where all are taken: then
    /// [`Region::overflow`] is the way. At most one compare-and-swap per ring; no system call, no heap. The owner's first
    /// record is [`Lane::announce`]'s.
    pub fn claim(&self, n: u32) -> Option<Lane> {
        (0..self.geometry().lanes.min(n)).find_map(|i| self.claim_ring(i))
    }

    fn claim_ring(&self, i: u32) -> Option<Lane> {
        let ring = self.ring(i);
        let state = ring.state.load(Acquire);
        // A released ring is free once it is drained. Its head is final: its owner has ended.
        let free = match state {
            owner::FREE => true,
            owner::RELEASED => ring.head.load(Relaxed) == ring.tail.load(Acquire),
            _ => false,
        };
        if !free || ring.state.compare_exchange(state, owner::OWNED, AcqRel, Relaxed).is_err() {
            return None;
        }
        let number = self.head().threads.fetch_add(1, Relaxed).wrapping_add(1);
        ring.thread.store(number, Relaxed);
        ring.hook.store(0, Relaxed);
        ring.generation.fetch_add(1, Relaxed);
        // SAFETY: the compare-and-swap made this call the only owner of ring `i` (fact 4); `i` < lanes.
        Some(unsafe { Lane::new(*self, i) })
    }
}
