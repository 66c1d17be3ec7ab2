//! What the writer knows about each ring, and how its records become pages.

use crate::buffer::Drain;
use crate::format::events::{Encoder, EventsHead};
use crate::format::marks::RingMark;
use crate::format::merge::Merge;
use crate::format::raw::{Kind, Record};

/// Records in a page: large enough for steps to repeat in it, small enough to be held in memory at both ends.
const PAGE: u64 = 16_384;

/// All rings.
#[derive(Default)]
pub(super) struct Rings(Vec<Ring>);

#[derive(Clone, Copy, Default)]
struct Ring {
    /// Everything before this index is in pages.
    next: u64,
    /// This sweep takes what is before this index.
    until: u64,
    /// Owner at `next`.
    thread: u32,
    lost: u64,
}

impl Rings {
    fn numbered(&self) -> impl Iterator<Item = (u32, &Ring)> {
        (0u32..).zip(&self.0)
    }

    /// Whether anything waits, and how full the fullest ring is in 1/1000.
    pub(super) fn fullest(&self, drain: &Drain) -> (bool, u32) {
        let mut waiting = false;
        let mut fullest = 0;
        for i in 0..drain.rings() {
            let p = drain.published(i);
            let n = p.end.saturating_sub(p.start);
            waiting |= n > 0;
            fullest = fullest.max(n.saturating_mul(1000).checked_div(drain.capacity(i)).unwrap_or(0) as u32);
        }
        (waiting, fullest)
    }

    /// Fixes what this sweep takes.
    pub(super) fn look(&mut self, drain: &Drain) {
        self.0.resize(drain.rings() as usize, Ring::default());
        for (i, r) in (0u32..).zip(&mut self.0) {
            // Losses first: one that is counted here lies before what is published from now on.
            r.lost = drain.lost(i);
            let published = drain.published(i);
            r.next = r.next.max(published.start);
            r.until = published.end;
        }
    }

    /// Records that this sweep takes.
    pub(super) fn count_due(&self) -> u64 {
        self.0.iter().map(|r| r.until.saturating_sub(r.next)).sum()
    }

    /// Encodes what this sweep takes.
    pub(super) fn encode(&self, drain: &Drain, shift: u8, e: &mut Encoder, mut page: impl FnMut(&[u8])) {
        let mut payload = Vec::new();
        for (ring, r) in self.numbered() {
            let (mut at, mut thread) = (r.next, r.thread);
            while at < r.until {
                let to = r.until.min(at.saturating_add(PAGE));
                let records = drain.records(ring, at..to);
                payload.clear();
                let head = EventsHead { ring, thread, first: at, count: 0, shift };
                e.encode(head, records, &mut payload);
                page(&payload);
                thread = owner_after(thread, records.0.iter().chain(records.1));
                at = to;
            }
        }
    }

    /// Encodes what waits in the merge.
    pub(super) fn encode_held(&self, merge: &Merge, shift: u8, e: &mut Encoder, mut page: impl FnMut(&[u8])) {
        let mut payload = Vec::new();
        for (ring, mut thread, records) in merge.held() {
            let Some(r) = self.0.get(ring as usize) else { continue };
            let mut first = r.next.saturating_sub(records.len() as u64);
            for part in records.chunks(PAGE as usize) {
                payload.clear();
                e.encode(EventsHead { ring, thread, first, count: 0, shift }, (part, &[]), &mut payload);
                page(&payload);
                thread = owner_after(thread, part.iter());
                first = first.saturating_add(part.len() as u64);
            }
        }
    }

    /// Copies what this sweep takes to the merge and gives it back to the rings. Returns how much it was.
    pub(super) fn take(&mut self, drain: &mut Drain, merge: &mut Merge) -> u64 {
        let mut taken = 0u64;
        for (ring, r) in (0u32..).zip(&mut self.0) {
            if r.next >= r.until {
                continue;
            }
            let (a, b) = drain.records(ring, r.next..r.until);
            merge.extend(ring, r.thread, a);
            let middle = owner_after(r.thread, a.iter());
            if !b.is_empty() {
                merge.extend(ring, middle, b);
            }
            r.thread = owner_after(middle, b.iter());
            taken = taken.saturating_add(r.until - r.next);
            r.next = r.until;
            drain.advance(ring, r.until);
        }
        taken
    }

    /// Where the rings stand once this sweep is written.
    pub(super) fn marks(&self) -> Vec<RingMark> {
        let all = self.numbered().filter(|(_, r)| r.until > 0 || r.lost > 0);
        all.map(|(ring, r)| RingMark { ring, next: r.until, thread: r.thread, lost: r.lost }).collect()
    }

    /// Where the rings stood before the records that wait in the merge.
    pub(super) fn marks_held(&self, merge: &Merge) -> Vec<RingMark> {
        let mut all: Vec<RingMark> = self
            .numbered()
            .filter(|(_, r)| r.next > 0)
            .map(|(ring, r)| RingMark { ring, next: r.next, thread: r.thread, lost: r.lost })
            .collect();
        for (ring, thread, records) in merge.held() {
            if let Some(m) = all.iter_mut().find(|m| m.ring == ring) {
                m.next = m.next.saturating_sub(records.len() as u64);
                m.thread = thread;
            }
        }
        all
    }
}

/// Who owns a ring after these records.
fn owner_after<'a>(thread: u32, records: impl Iterator<Item = &'a Record>) -> u32 {
    records.filter(|r| r.kind == Kind::Thread as u8).last().map_or(thread, |r| r.stack)
}
