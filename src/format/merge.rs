//! Many rings, one order.
//!
//! Within a ring, records are in order. Across rings they are merged by time, behind a *bound*: what is not older than
//! everything seen in the sweep before waits for the next sweep. Why that is right for the allocator: an event's time is
//! taken under its device's lock, and its record is published before that lock is released. So when a record is seen, all
//! earlier records of its device were published before its time; a record older than the newest one of the sweep before
//! had all of them published before that sweep ended, and this sweep has read them. Records of other kinds get the same
//! slack, and keep their place within their thread.
//!
//! Times of one device that are equal (they are rounded in pages) are put right by the device's sequence numbers, which
//! also tell whether something is missing: see [`Merge::holes`].
//!
//! Blocks that CUDA itself hands out are counted under no lock: one may be seen long before a record with a lower number, and that one
//! comes late. Whatever is not due waits only for lower numbers of its device that are here, so a late record never stands behind
//! one that is due: PyTorch's own events keep their order.

use super::raw::{Kind, Record};
use super::sequences::{Sequences, is_sequenced};

/// How far ahead in another ring a record that is due is looked for.
const LOOK_AHEAD: usize = 64;

/// Records that a queue may have room for, however few it holds (64 bytes each).
const MOST_SPARE: usize = 1 << 14;

/// The queues and what is expected next.
#[derive(Default)]
pub struct Merge {
    queues: Vec<Queue>,
    sequences: Sequences,
    newest: u64,
    bound: u64,
    ended: bool,
    /// Holes beyond which nothing is handed out, where the recording is cut off.
    most_holes: Option<u64>,
    left_out: u64,
    swaps: u64,
}

#[derive(Default)]
struct Queue {
    ring: u32,
    thread: u32,
    records: Vec<Record>,
    at: usize,
}

impl Queue {
    fn head(&self) -> Option<&Record> {
        self.records.get(self.at)
    }

    /// Hands out records from the head on: at most `limit`, and behind the first none of `until` or later. Stops before one that is
    /// not due, unless `any` may be handed out. How many, and whether it stopped so.
    #[inline]
    fn hand_out(
        &mut self,
        sequences: &mut Sequences,
        (limit, until, any): (usize, u64, bool),
        f: &mut impl FnMut(&Record, u32, u32),
    ) -> (usize, bool) {
        let (mut count, mut stuck) = (0, false);
        for r in self.records.get(self.at..).unwrap_or_default().iter().take(limit) {
            if count > 0 && r.ticks >= until {
                break;
            }
            if is_sequenced(r.kind) {
                stuck = !any && !sequences.is_due(r);
                if stuck {
                    break;
                }
                sequences.note(r);
            } else if r.kind == Kind::Thread as u8 {
                self.thread = r.stack;
            } else if r.kind == Kind::Gap as u8 && r.c != 0 {
                // A gap that a reader put in: the owner may have changed unseen.
                self.thread = r.c as u32;
            }
            f(r, self.ring, self.thread);
            count += 1;
        }
        self.at += count;
        if self.at == self.records.len() {
            // What a backlog needed once is not kept for ever.
            if self.records.capacity() > MOST_SPARE.max(self.at.saturating_mul(4)) {
                self.records.shrink_to(self.at.saturating_mul(2));
            }
            self.records.clear();
            self.at = 0;
        }
        (count, stuck)
    }
}

impl Merge {
    /// Adds the next records of a ring. `thread` owned the ring at the first of them; later owners say so themselves.
    pub fn extend(&mut self, ring: u32, thread: u32, records: &[Record]) {
        let mut queue = self.lend(ring);
        let before = queue.len();
        queue.extend_from_slice(records);
        self.give(ring, thread, queue, before);
    }

    /// The records of a ring that were added and are kept, for whoever appends the next ones to them and gives all back by
    /// [`Merge::give`]: so they need not be copied.
    pub fn lend(&mut self, ring: u32) -> Vec<Record> {
        let Some(q) = self.queues.iter_mut().find(|q| q.ring == ring) else { return Vec::new() };
        let len = q.records.len();
        // Of a short queue up to three quarters may be handed out already, of a long one half.
        let kept_in_four = if len > MOST_SPARE * 4 { 2 } else { 1 };
        if q.at > 4096 && (len - q.at) * 4 < len * kept_in_four {
            q.records.drain(..q.at);
            q.at = 0;
        }
        std::mem::take(&mut q.records)
    }

    /// Takes back what [`Merge::lend`] gave, with the ring's next records behind the first `before`: as [`Merge::extend`].
    pub fn give(&mut self, ring: u32, thread: u32, records: Vec<Record>, before: usize) {
        let news = records.get(before..).unwrap_or_default();
        self.newest = news.iter().fold(self.newest, |n, r| n.max(r.ticks));
        let q = match self.queues.iter().position(|q| q.ring == ring) {
            Some(i) => self.queues.get_mut(i),
            None => {
                self.queues.push(Queue { ring, ..Queue::default() });
                self.queues.last_mut()
            }
        };
        let Some(q) = q else { return };
        if before == 0 {
            q.thread = thread;
        }
        q.records = records;
    }

    /// The records added since the last call are a whole sweep: what is older than the newest one before them is in order.
    pub fn end_sweep(&mut self, newest_before: u64) {
        self.bound = self.bound.max(newest_before);
    }

    /// Ticks of the newest record so far: [`Merge::end_sweep`]'s argument, taken before a sweep's records are added.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Nothing more will come: everything is in order now.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Nothing more will come, and the last pages are missing: everything is in order up to the first allocator event that is not there.
    /// `lost`: so many are known to be missing.
    pub fn cut(&mut self, lost: u64) {
        (self.ended, self.most_holes) = (true, Some(lost));
    }

    /// Records behind the first one that is not there, of a recording that was cut off.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// More will come after all (a recording that is still being written).
    pub fn reopen(&mut self) {
        if std::mem::take(&mut self.ended) {
            self.bound = self.newest;
        }
    }

    /// Records that wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|q| q.records.len() - q.at).sum()
    }

    /// What of a ring waits: its owner at the first of them, and the records.
    pub fn held(&self) -> impl Iterator<Item = (u32, u32, &[Record])> {
        self.queues.iter().map(|q| (q.ring, q.thread, q.records.get(q.at..).unwrap_or_default()))
    }

    /// Records of a ring that wait.
    pub fn waiting_in(&self, ring: u32) -> u64 {
        let q = self.queues.iter().find(|q| q.ring == ring);
        q.map_or(0, |q| q.records.len().saturating_sub(q.at) as u64)
    }

    /// Drops the last `n` waiting records of a ring.
    pub fn drop_last(&mut self, ring: u32, n: u64) {
        if let Some(q) = self.queues.iter_mut().find(|q| q.ring == ring) {
            let waiting = q.records.len() - q.at;
            let keep = waiting.saturating_sub(usize::try_from(n).unwrap_or(usize::MAX));
            q.records.truncate(q.at + keep);
        }
    }

    /// Sequence numbers that never came.
    pub fn holes(&self) -> u64 {
        self.sequences.holes
    }

    /// Records whose place the sequence numbers corrected.
    pub fn swaps(&self) -> u64 {
        self.swaps
    }

    /// Hands out up to about `limit` records in order, with their ring and thread. `false`: nothing more is ready.
    pub fn drain(&mut self, limit: usize, mut f: impl FnMut(&Record, u32, u32)) -> bool {
        let mut left = limit;
        while left > 0 {
            let Some((first, second)) = self.heads() else { return false };
            // At equal times the other ring gets its turn; the first record is the oldest in any case.
            let until = if self.ended { second } else { second.min(self.bound) };
            let Some(q) = self.queues.get_mut(first) else { return false };
            let (count, stuck) = q.hand_out(&mut self.sequences, (left, until, false), &mut f);
            left -= count;
            if stuck {
                left -= 1;
                if !self.earlier(first, &mut f) {
                    if self.is_cut_before(first) {
                        self.left_out += self.waiting() as u64;
                        self.queues.clear();
                        return false;
                    }
                    self.take(first, 1, &mut f);
                }
            }
        }
        true
    }

    fn is_ready(&self, ticks: u64) -> bool {
        ticks < self.bound || self.ended
    }

    /// The queue with the oldest head, and the time of the next oldest.
    fn heads(&self) -> Option<(usize, u64)> {
        let (mut first, mut time, mut second) = (None, u64::MAX, u64::MAX);
        for (i, q) in self.queues.iter().enumerate() {
            let Some(r) = q.head() else { continue };
            if first.is_none() || r.ticks < time {
                second = time;
                (first, time) = (Some(i), r.ticks);
            } else {
                second = second.min(r.ticks);
            }
        }
        first.filter(|_| self.is_ready(time)).map(|i| (i, second))
    }

    /// Whether more is missing before the head of a queue than is known to be, of a recording that was cut off.
    fn is_cut_before(&self, i: usize) -> bool {
        let missing = || Some(self.sequences.missing_before(self.queues.get(i)?.head()?));
        self.most_holes.zip(missing()).is_some_and(|(most, more)| self.sequences.holes + more > most)
    }

    /// Hands out so many records of a queue, due or not.
    fn take(&mut self, i: usize, count: usize, f: &mut impl FnMut(&Record, u32, u32)) {
        if let Some(q) = self.queues.get_mut(i) {
            q.hand_out(&mut self.sequences, (count, u64::MAX, true), f);
        }
    }

    /// Hands out something where the head of queue `first` is not due: what comes before it in its device's order, if that is here.
    /// `false`: it has the least number of what is here.
    fn earlier(&mut self, first: usize, f: &mut impl FnMut(&Record, u32, u32)) -> bool {
        // What stands before that may itself not be due, on another device.
        let mut of = first;
        for _ in 0..self.queues.len() {
            let Some((i, k)) = self.least_before(of) else { break };
            if k == 0 && self.is_cut_before(i) {
                return false;
            }
            let Some(q) = self.queues.get_mut(i) else { return false };
            let (count, _) = q.hand_out(&mut self.sequences, (k + 1, u64::MAX, k == 0), f);
            if count > 0 {
                self.swaps += 1;
                return true;
            }
            of = i;
        }
        if of == first || self.is_cut_before(of) {
            return false;
        }
        self.swaps += 1;
        self.take(of, 1, f);
        true
    }

    /// The queue that has the least number of a device, if that is less than the one at the head of queue `of`, and how many records
    /// stand before it.
    fn least_before(&self, of: usize) -> Option<(usize, usize)> {
        let head = self.queues.get(of).and_then(Queue::head)?;
        let others = self.queues.iter().enumerate().filter(|&(i, _)| i != of);
        let (ahead, i, k) = others
            .filter_map(|(i, q)| {
                let records = q.records.get(q.at..)?;
                let of_device = |x: &Record| is_sequenced(x.kind) && x.device == head.device;
                let k = records.iter().take(LOOK_AHEAD).position(of_device)?;
                Some((self.sequences.ahead(records.get(k)?), i, k))
            })
            .min()?;
        (ahead < self.sequences.ahead(head)).then_some((i, k))
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw::{SEQUENCE_MODULUS, flag};
    use super::*;

    fn event(ticks: u64, sequence: u32) -> Record {
        let mut r = Record { ticks, ..Record::default() };
        r.set_sequence(sequence);
        r
    }

    fn order(m: &mut Merge) -> Vec<u32> {
        let mut seen = Vec::new();
        while m.drain(3, |r, _, _| seen.push(r.sequence())) {}
        seen
    }

    #[test]
    fn a_recording_that_is_cut_off_ends_before_the_first_record_that_is_missing() {
        let all = |cut: Option<u64>| {
            let mut m = Merge::default();
            m.extend(0, 1, &[event(10, 0), event(11, 1), event(14, 4)]);
            m.extend(1, 2, &[event(12, 2), event(15, 5)]);
            match cut {
                Some(lost) => m.cut(lost),
                None => m.end(),
            }
            (order(&mut m), m.left_out(), m.holes())
        };
        assert_eq!(all(None), (vec![0, 1, 2, 4, 5], 0, 1));
        assert_eq!(all(Some(0)), (vec![0, 1, 2], 2, 0));
        assert_eq!(all(Some(1)), (vec![0, 1, 2, 4, 5], 0, 1), "that one is known to be lost");
    }

    #[test]
    fn late_records_find_their_place_within_the_slack() {
        let mut m = Merge::default();
        m.extend(0, 1, &[event(10, 0), event(40, 3)]);
        m.end_sweep(0);
        assert_eq!(order(&mut m), [0u32; 0]);
        // Ring 1 was read a moment too early: 20 and 30 had been published when 40 was, but were not seen.
        let newest = m.newest();
        m.extend(1, 2, &[event(20, 1), event(30, 2), event(50, 4)]);
        m.end_sweep(newest);
        assert_eq!(order(&mut m), [0, 1, 2]);
        assert_eq!(m.waiting(), 2);
        m.end();
        assert_eq!(order(&mut m), [3, 4]);
        assert_eq!((m.holes(), m.swaps()), (0, 0));
    }

    #[test]
    fn equal_and_swapped_times_are_put_right_by_the_sequence() {
        let mut m = Merge::default();
        let scope = Record { ticks: 12, kind: Kind::Scope as u8, rounded_seq: 99 << 40, ..Record::default() };
        m.extend(0, 1, &[event(10, SEQUENCE_MODULUS - 2), event(10, 0), event(11, 1)]);
        m.extend(1, 2, &[event(10, SEQUENCE_MODULUS - 1), scope, event(12, 2)]);
        m.end();
        assert_eq!(order(&mut m), [SEQUENCE_MODULUS - 2, SEQUENCE_MODULUS - 1, 0, 1, 99, 2]);
        m.extend(0, 1, &[event(20, 4)]);
        m.extend(1, 2, &[Record { ticks: 21, ..scope }, event(22, 3)]);
        assert_eq!(order(&mut m), [99, 3, 4]);
        assert_eq!((m.holes(), m.swaps()), (0, 2));
    }

    #[test]
    fn missing_numbers_are_counted_and_merged_frees_may_take_one_or_two() {
        let mut m = Merge::default();
        let merged = |t, n| Record { flags: flag::COMPLETED, ..event(t, n) };
        m.extend(0, 1, &[event(1, 1), merged(2, 2), event(3, 4), merged(4, 5), event(5, 6), event(6, 9)]);
        m.end();
        assert_eq!(order(&mut m), [1, 2, 4, 5, 6, 9]);
        assert_eq!(m.holes(), 2);
        m.extend(0, 1, &[event(7, 7)]);
        assert_eq!(order(&mut m), [7]);
        assert_eq!(m.holes(), 1);
    }

    #[test]
    fn a_late_record_comes_before_a_due_one_of_another_ring() {
        let mut m = Merge::default();
        // CUDA's block took number 2 while the thread of number 1 had not published it.
        m.extend(0, 1, &[event(10, 0)]);
        m.extend(9, 9, &[event(12, 2)]);
        m.end_sweep(13);
        assert_eq!(order(&mut m), [0, 2]);
        m.extend(0, 1, &[event(11, 1)]);
        m.extend(1, 2, &[event(14, 3)]);
        m.end();
        assert_eq!(order(&mut m), [1, 3]);
        assert_eq!(m.holes(), 0);
    }

    #[test]
    fn late_records_of_equal_times_have_the_order_of_their_numbers() {
        let mut m = Merge::default();
        m.extend(0, 1, &[event(10, 0)]);
        m.extend(9, 9, &[event(10, 3)]);
        m.end_sweep(13);
        assert_eq!(order(&mut m), [0, 3]);
        m.extend(0, 1, &[event(11, 2)]);
        m.extend(1, 2, &[event(11, 1), event(14, 4)]);
        m.end();
        assert_eq!(order(&mut m), [1, 2, 4]);
        assert_eq!(m.holes(), 0);
    }

    #[test]
    fn what_follows_a_merged_free_is_the_next_number_if_that_is_here() {
        let mut m = Merge::default();
        let merged = Record { flags: flag::COMPLETED, ..event(10, 0) };
        m.extend(0, 1, &[merged, event(11, 2)]);
        m.extend(1, 2, &[event(11, 1), event(12, 3)]);
        m.end();
        assert_eq!(order(&mut m), [0, 1, 2, 3]);
        assert_eq!(m.holes(), 0);
    }

    #[test]
    fn what_stands_before_a_due_record_keeps_the_order_of_its_own_device() {
        let mut m = Merge::default();
        let other = |t, n| Record { device: 1, ..event(t, n) };
        m.extend(0, 1, &[event(10, 0), other(10, 10), event(11, 2)]);
        m.extend(1, 2, &[other(12, 12), event(12, 1)]);
        m.extend(2, 3, &[other(12, 11)]);
        m.end();
        assert_eq!(order(&mut m), [0, 10, 11, 12, 1, 2]);
        assert_eq!(m.holes(), 0);
    }

    #[test]
    fn a_new_owner_is_heard() {
        let mut m = Merge::default();
        let thread = Record { ticks: 5, stack: 8, kind: Kind::Thread as u8, ..Record::default() };
        m.extend(3, 7, &[event(1, 0), thread, event(6, 1)]);
        m.end();
        let mut threads = Vec::new();
        m.drain(9, |_, ring, thread| threads.push((ring, thread)));
        assert_eq!(threads, [(3, 7), (3, 8), (3, 8)]);
    }
}
