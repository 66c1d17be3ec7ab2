//! A queue that fills faster than it is served: every block dies in the end, and yet there are more of them at every mark.
//! No survivor tells of it; their number does.

use crate::replay::{Point, RECENT, Track};

/// Marks in a row at each of which there must be more.
const EACH: u32 = 11;
/// Or windows whose floors must all rise, and marks in each of them at least.
const WINDOWS: u32 = 8;
const WIDTH: u32 = 2;
/// The same where it was level before: for as long as it rises now, and longer.
const LATE: u32 = 3;
/// Old blocks that there must be.
const BLOCKS: u64 = 4;
/// Where one old block for so many of those that live now has died, it is served.
const TURNOVER: u64 = 16;
/// Marks since the last of them died: what is emptied now and then is no queue. Where it is trimmed now and then, its floors tell.
const SERVED: u32 = 8;
/// Marks without a new record after which it grows no more; or a quarter of the time that it grew for.
const PATIENCE: u32 = 24;
/// Where a queue was served after all there must be more than ever by one in so many blocks for it to grow again.
const AGAIN: u64 = 2;
/// Marks that must have passed since a checkpoint of which earlier deaths are not known.
const WITNESSED: u32 = 24;

/// A queue that grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Queue {
    /// The mark at which it began to, and what was there then.
    pub(super) onset: u32,
    pub(super) base: Point,
    /// Most blocks so far, and when first.
    record: (u64, u32),
}

/// What is known of a line's queue from mark to mark.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    pub(super) named: Option<Queue>,
    highest: u64,
    /// Most blocks when it was clear that it is served after all.
    served: u64,
    at: u32,
}

impl Backlog {
    /// Judges a track as of `mark`, once. `ended`: what was kept at the line has ended before.
    pub(super) fn look(&mut self, t: &Track, ended: bool, mark: u32) {
        if self.at == mark {
            return;
        }
        self.at = mark;
        let now = t.at_mark.blocks;
        let is_highest = now > self.highest;
        self.highest = self.highest.max(now);
        if ended && self.served == 0 && self.named.is_none() {
            self.served = self.highest;
        }
        match &mut self.named {
            Some(q) => {
                if now > q.record.0 {
                    q.record = (now, mark);
                }
                let patience = PATIENCE.max((q.record.1 - q.onset.min(q.record.1)) / 4);
                if now.saturating_mul(2) < q.record.0 || mark.saturating_sub(q.record.1) > patience {
                    (self.named, self.served) = (None, self.highest);
                }
            }
            None if is_highest
                && now >= self.served.saturating_add(self.served / AGAIN)
                && is_served(t, mark) =>
            {
                let since_death = mark.saturating_sub(t.last_death);
                let soon = (since_death <= SERVED).then_some(t);
                let by_windows = || by_windows(t, mark, since_death);
                let late = || soon.and_then(|t| late(t, mark));
                let begin = soon.and_then(strictly).or_else(by_windows).or_else(late);
                let queue = |(onset, base)| Queue { onset, base, record: (now, mark) };
                self.named = begin.map(queue);
            }
            None => {}
        }
    }
}

/// Blocks of it die of old age all the time.
fn is_served(t: &Track, mark: u32) -> bool {
    t.at_mark.blocks >= BLOCKS
        && t.died_old.blocks.saturating_mul(TURNOVER) > t.at_mark.blocks
        && !t.is_cycle_garbage()
        && mark.saturating_sub(t.remembered) >= WITNESSED.min(mark)
}

/// There were more at each of the last marks: since when.
fn strictly(t: &Track) -> Option<(u32, Point)> {
    let more = |n: u32| {
        let (a, b) = (t.series.back(n), t.series.back(n + 1));
        a.blocks > b.blocks && a.bytes > b.bytes
    };
    let marks = (0..RECENT as u32 - 1).take_while(|n| more(*n)).count() as u32;
    (marks >= EACH).then(|| (t.series.last_mark() + 1 - marks, t.series.back(marks)))
}

/// The floor of each window is higher than that of the one before, and no window is without a death: since when.
fn by_windows(t: &Track, mark: u32, since_death: u32) -> Option<(u32, Point)> {
    let width = mark.saturating_sub((mark / 5).max(3)) / WINDOWS;
    if width < WIDTH || since_death > width.max(SERVED) {
        return None;
    }
    rises(t, mark, width).map(|(start, [first, _])| (start, first))
}

/// The last windows of so many marks, of which the floor of each is higher than that of the one before: where they start, and the first and
/// the last floor.
fn rises(t: &Track, mark: u32, width: u32) -> Option<(u32, [Point; 2])> {
    let start = mark.checked_add(1)?.checked_sub(WINDOWS.checked_mul(width)?)?;
    let floor = |i: u32| t.series.floor(start + i * width, start + (i + 1) * width);
    let (first, mut last) = (floor(0), floor(0));
    for next in (1..WINDOWS).map(floor) {
        if next.blocks <= last.blocks || next.bytes <= last.bytes {
            return None;
        }
        last = next;
    }
    Some((start, [first, last]))
}

/// It was level, and rises now: to half as many again as there ever were then, and by twice as many as those went up and down. There are never
/// fewer than in the window before, as there are where requests of many lengths come and go.
fn late(t: &Track, mark: u32) -> Option<(u32, Point)> {
    let between = |from: u32, to: u32| {
        let all = t.series.buckets().filter(move |(at, _)| *at >= from && *at < to).map(|(_, p)| p.blocks);
        all.fold(None, |range: Option<(u64, u64)>, n| {
            Some(range.map_or((n, n), |(a, b)| (a.min(n), b.max(n))))
        })
    };
    let widths = core::iter::successors(Some(LATE), |w| w.checked_add((w / 4).max(1)));
    widths.take_while(|w| w.checked_mul(2 * WINDOWS).is_some_and(|all| all <= mark)).find_map(|width| {
        let (start, [first, last]) = rises(t, mark, width)?;
        let (low, high) = between(start / 2, start)?;
        let more = (high / 2).max((high - low).saturating_mul(2)).max(2 * BLOCKS);
        let ranges = (0..WINDOWS).map(|i| between(start + i * width, start + (i + 1) * width));
        let ranges: Vec<(u64, u64)> = ranges.collect::<Option<_>>()?;
        let is_steady = ranges.windows(2).all(|w| matches!(w, [before, after] if after.0 >= before.1));
        (is_steady && last.blocks >= high.saturating_add(more)).then_some((start, first))
    })
}
