//! Small pages that say where the recording stands: Sweep, Chunk, Skip, End.

use super::fields::{Field, fields};
use super::wire::{Cursor, Malformed};

/// Where a ring stood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingMark {
    /// Which ring.
    pub ring: u32,
    /// Index of the next record.
    pub next: u64,
    /// Its owner.
    pub thread: u32,
    /// Records lost so far.
    pub lost: u64,
}

fields! {
    RingMark { ring, next, thread, lost }
    Mark { number, ticks, ns, tsc, records, lost_unowned, lost_definitions, rings }
    Skipped { records, from_ns, to_ns, first_step, last_step }
}

/// End of a sweep, or beginning of a chunk: what the pages so far hold.
///
/// After a Sweep page, every record before `rings[…].next` is in the pages. A Chunk page begins a chunk that is readable
/// without what came before: all definitions so far follow, then a Checkpoint, then records from `rings[…].next` on
/// (some of which the chunk before holds, too).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Number of the sweep or chunk.
    pub number: u64,
    /// Clock ticks.
    pub ticks: u64,
    /// Nanoseconds since the recording began, at those ticks.
    pub ns: u64,
    /// The clock's ticks are TSC cycles (else nanoseconds).
    pub tsc: bool,
    /// Records in pages so far, and records lost so far.
    pub records: u64,
    /// Records lost without a ring.
    pub lost_unowned: u64,
    /// Definitions lost.
    pub lost_definitions: u64,
    /// Rings that were ever used.
    pub rings: Vec<RingMark>,
}

impl Mark {
    /// As a payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::with_capacity(64 + self.rings.len() * 16);
        self.put(&mut b);
        b
    }

    /// Out of a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(b: &[u8]) -> Result<Mark, Malformed> {
        let mut c = Cursor::new(b);
        let m = Mark::take(&mut c, "mark")?;
        let is_ring = |r: &RingMark| r.ring <= 255 && r.next <= 1 << 60;
        if m.rings.iter().all(is_ring) { Ok(m) } else { Err(c.bad("ring")) }
    }
}

/// What a Skip page stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Records that are not kept.
    pub records: u64,
    /// When the first of them happened, in nanoseconds since the recording began.
    pub from_ns: u64,
    /// Everything is kept again from here on.
    pub to_ns: u64,
    /// The step (from 1) that the first of them belongs to.
    pub first_step: u32,
    /// The last step that is not kept as a whole.
    pub last_step: u32,
}

impl Skipped {
    /// As a payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Vec::new();
        self.put(&mut b);
        b
    }

    /// Out of a payload.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(b: &[u8]) -> Result<Skipped, Malformed> {
        Skipped::take(&mut Cursor::new(b), "skip")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_and_cuts_are_errors() {
        let ring = RingMark { ring: 255, next: 1 << 60, thread: 9, lost: 300 };
        let m = Mark { number: 7, ticks: u64::MAX, tsc: true, rings: vec![ring; 3], ..Mark::default() };
        let b = m.encode();
        assert_eq!(Mark::decode(&b), Ok(m));
        let s = Skipped { records: 1 << 40, from_ns: 1, to_ns: 2, first_step: 3, last_step: 400 };
        assert_eq!(Skipped::decode(&s.encode()), Ok(s));
        assert!((0..b.len()).all(|n| Mark::decode(&b[..n]).is_err()));
    }
}
