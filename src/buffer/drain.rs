//! The consumer's side of all rings: one per region.

use super::region::Region;
use crate::format::raw::{Kind, Record, words_of_name};
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Reads what is published, and says how far it is done with it.
///
/// Indexes count records from the region's beginning and never wrap in practice (2^64). Reading and advancing are two
/// steps, so that records stay in the ring until what was made of them is safe.
pub struct Drain {
    region: Region,
    /// Claims of each ring whose owner has been named, or could not be.
    named: Vec<u64>,
}

impl Drain {
    /// # Safety
    /// The caller must hold the region's drain flag, once and for ever.
    pub(super) unsafe fn new(region: Region) -> Drain {
        Drain { region, named: vec![0; region.geometry().lanes as usize] }
    }

    /// The region this drains.
    pub fn region(&self) -> Region {
        self.region
    }

    /// How many rings there are: the lanes, then the overflow ring.
    pub fn rings(&self) -> u32 {
        self.region.geometry().lanes + 1
    }

    /// Records in ring `i` that are published and not yet consumed.
    pub fn published(&self, ring: u32) -> Range<u64> {
        let r = self.region.ring(ring);
        r.tail.load(Relaxed)..r.head.load(Acquire)
    }

    /// Capacity of ring `i`.
    pub fn capacity(&self, ring: u32) -> u64 {
        u64::from(self.region.geometry().ring_records(ring))
    }

    /// The records of a range, in two slices because the ring wraps. What of the range is not (or no longer) readable is
    /// left out.
    pub fn records(&self, ring: u32, range: Range<u64>) -> (&[Record], &[Record]) {
        let readable = self.published(ring);
        let capacity = self.capacity(ring);
        let from = range.start.clamp(readable.start, readable.end);
        let to = range.end.clamp(from, readable.end).min(from + capacity);
        let (at, count) = ((from & (capacity - 1)) as usize, (to - from) as usize);
        let first = count.min(capacity as usize - at);
        let slots = self.region.slots(ring).as_ptr();
        // SAFETY: `at + first` <= capacity and `count - first` <= capacity: both in the ring (fact 1). The records are in
        // `tail..head`, loaded with Acquire above, so they are the drain's until `advance`, which needs `&mut self` and
        // thereby the end of these borrows (facts 3 and 4).
        unsafe {
            (
                std::slice::from_raw_parts(slots.add(at), first),
                std::slice::from_raw_parts(slots, count - first),
            )
        }
    }

    /// Fills the names of threads in where they left them out: `name_of` is asked once for each new owner of a ring, with
    /// the thread's number in the kernel. To be called before what is published is written.
    pub fn name_threads(&mut self, mut name_of: impl FnMut(u32) -> Option<[u8; 16]>) {
        for (ring, named) in (0u32..).zip(&mut self.named) {
            let r = self.region.ring(ring);
            let claims = r.generation.load(Relaxed);
            if claims == *named {
                continue;
            }
            let (tail, head) = (r.tail.load(Relaxed), r.head.load(Acquire));
            let capacity = u64::from(self.region.geometry().ring_records(ring));
            // An owner begins on an empty ring with who it is, behind a gap at most.
            for index in tail..head.min(tail + 2) {
                // SAFETY: the record is in `tail..head`, loaded with Acquire, so until it is given back nobody but the drain
                // touches these words of it (facts 3 and 4), and `&mut self` keeps all borrows of records away.
                unsafe {
                    let record = self.region.slots(ring).as_ptr().add((index & (capacity - 1)) as usize);
                    if (*record).kind != Kind::Thread as u8 {
                        continue;
                    }
                    *named = claims;
                    let left_out = ((*record).b, (*record).c) == (0, 0);
                    if let Some(name) = name_of((*record).a as u32).filter(|_| left_out) {
                        ((*record).b, (*record).c) = words_of_name(name);
                    }
                }
            }
        }
    }

    /// Gives everything before index `to` back to the ring's owner.
    pub fn advance(&mut self, ring: u32, to: u64) {
        let readable = self.published(ring);
        let r = self.region.ring(ring);
        r.tail.store(to.clamp(readable.start, readable.end), Release);
    }

    /// Number of the thread that owns ring `i`, or owned it last; 0 for the overflow ring and where nobody did.
    pub fn thread(&self, ring: u32) -> u32 {
        self.region.ring(ring).thread.load(Relaxed) as u32
    }

    /// Records lost so far on ring `i`.
    pub fn lost(&self, ring: u32) -> u64 {
        self.region.ring(ring).lost.load(Relaxed)
    }

    /// Bytes of definitions that are committed and not yet consumed.
    pub fn defined(&self) -> Range<u64> {
        let head = self.region.head();
        head.def_tail.load(Relaxed)..head.def_head.load(Acquire)
    }

    /// Committed definitions up to `to`, in two slices because the ring wraps.
    pub fn definitions(&self, to: u64) -> (&[u8], &[u8]) {
        let readable = self.defined();
        let capacity = self.region.geometry().definitions as usize;
        let to = to.clamp(readable.start, readable.end);
        let (at, count) = (readable.start as usize & (capacity - 1), (to - readable.start) as usize);
        let count = count.min(capacity);
        let first = count.min(capacity - at);
        let bytes = self.region.definition_bytes().as_ptr();
        // SAFETY: as in `records`, for bytes: committed ones are the drain's until `advance_definitions`.
        unsafe {
            (
                std::slice::from_raw_parts(bytes.add(at), first),
                std::slice::from_raw_parts(bytes, count - first),
            )
        }
    }

    /// Gives the definitions before `to` back to the producers.
    pub fn advance_definitions(&mut self, to: u64) {
        let readable = self.defined();
        self.region.head().def_tail.store(to.clamp(readable.start, readable.end), Release);
    }
}

impl Region {
    /// The consumer's side; `None` where it is already taken. There is one for the life of the region.
    pub fn drain(&self) -> Option<Drain> {
        self.head().drain.compare_exchange(0, 1, AcqRel, Relaxed).ok()?;
        // SAFETY: the compare-and-swap succeeds once, and nothing ever resets the flag (fact 4).
        Some(unsafe { Drain::new(*self) })
    }
}
