//! What the sequence numbers of each device tell: which record is due, and how many never came.

use super::raw::{Kind, Record, SEQUENCE_MODULUS, flag};

/// The number that each device's next record is due to have, and how many never came.
#[derive(Default)]
pub(super) struct Sequences {
    expected: Vec<Option<Expected>>,
    /// Numbers that never came.
    pub(super) holes: u64,
}

#[derive(Clone, Copy)]
struct Expected {
    sequence: u32,
    /// The record before was a merged free, whose completion may have taken a number of its own.
    merged: bool,
}

/// Whether records of this kind carry a number of their device's sequence.
pub(super) fn is_sequenced(kind: u8) -> bool {
    kind <= Kind::SegmentUnmap as u8
}

impl Sequences {
    #[inline]
    pub(super) fn is_due(&self, r: &Record) -> bool {
        match self.expected.get(usize::from(r.device)) {
            Some(Some(e)) => r.sequence() == e.sequence,
            _ => true,
        }
    }

    /// How far a record's number is ahead of the one that is due; negative: it comes late.
    pub(super) fn ahead(&self, r: &Record) -> i32 {
        let Some(Some(e)) = self.expected.get(usize::from(r.device)) else { return 0 };
        let ahead = (r.sequence().wrapping_sub(e.sequence) % SEQUENCE_MODULUS) as i32;
        if ahead > SEQUENCE_MODULUS as i32 / 2 { ahead - SEQUENCE_MODULUS as i32 } else { ahead }
    }

    /// How many numbers would be missing before a record, were it next.
    pub(super) fn missing_before(&self, r: &Record) -> u64 {
        let Some(Some(e)) = self.expected.get(usize::from(r.device)) else { return 0 };
        u64::try_from(self.ahead(r)).unwrap_or(0).saturating_sub(u64::from(e.merged))
    }

    #[inline]
    pub(super) fn note(&mut self, r: &Record) {
        let d = usize::from(r.device);
        if d >= self.expected.len() {
            self.expected.resize(d + 1, None);
        }
        let Some(slot) = self.expected.get_mut(d) else { return };
        let n = r.sequence();
        if let Some(e) = slot {
            let ahead = n.wrapping_sub(e.sequence) % SEQUENCE_MODULUS;
            if ahead > SEQUENCE_MODULUS / 2 {
                // It comes late: one number that seemed to be missing is here after all.
                self.holes = self.holes.saturating_sub(1);
                return;
            }
            self.holes += u64::from(ahead.saturating_sub(u32::from(e.merged)));
        }
        *slot = Some(Expected { sequence: next(n), merged: r.flags & flag::COMPLETED != 0 });
    }
}

fn next(n: u32) -> u32 {
    (n + 1) % SEQUENCE_MODULUS
}
