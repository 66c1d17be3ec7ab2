//! Blocks that are made anew, and larger or more of them each time: `cache = torch.cat([cache, new])`, `states = [f(s) for s in states + [new]]`.
//! None of them grows old; only what there is of them at each mark tells.

use super::series::Point;

/// Values that are kept; of more every other one is left out.
const SAMPLES: usize = 32;

/// What a line holds from mark to mark, for as long as that are no fewer blocks than before and no fewer bytes: those that were requested, of
/// which the allocator's rounding is no part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remade {
    /// The mark at which this began, and what was held then.
    pub first: (u32, Point),
    /// The last mark at which there was more than before, and how much.
    pub last: (u32, Point),
    /// At how many marks there was more than at the one before.
    pub rises: u32,
    /// The longest time between two of them, in marks.
    pub gap: u32,
    /// Most rises of one that has ended, since there was less.
    pub longest: u32,
    /// How many have ended.
    pub ends: u32,
    /// The last mark at which there were more blocks than before.
    pub more: u32,
    /// Sum of the marks of the rises, counted from the first mark.
    sum: u64,
    samples: Vec<(u32, u64)>,
}

impl Remade {
    /// Laplace's statistic of the rises up to `mark`: 0 at a constant rate, negative where they die away.
    pub fn trend(&self, mark: u32) -> f64 {
        let (n, span) = (f64::from(self.rises.max(1)), f64::from(mark.saturating_sub(self.first.0).max(1)));
        (self.sum as f64 / n - (span + 1.0) / 2.0) / (span * (1.0 / (12.0 * n)).sqrt())
    }

    /// Bytes beyond what it began with, at some of the marks at which there was more; the first and the last are among them.
    pub fn samples(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let begin = self.first.1.bytes;
        let last = (self.last.0, self.last.1.bytes);
        let before = self.samples.iter().copied().filter(move |s| s.0 < last.0);
        let all = std::iter::once((self.first.0, begin)).chain(before).chain([last]);
        all.map(move |(mark, bytes)| (mark, bytes.saturating_sub(begin)))
    }

    #[inline]
    pub(super) fn see(&mut self, mark: u32, live: Point) {
        if live == self.last.1 {
            return;
        }
        if live.blocks >= self.last.1.blocks && live.bytes > self.last.1.bytes && self.last.1.blocks > 0 {
            self.rise(mark, live);
            return;
        }
        if live.bytes < self.last.1.bytes {
            self.longest = self.longest.max(self.rises);
            self.ends = self.ends.saturating_add(u32::from(self.rises > 0));
        }
        (self.first, self.last, self.rises, self.gap, self.sum) = ((mark, live), (mark, live), 0, 0, 0);
        self.more = mark;
        self.samples.clear();
    }

    fn rise(&mut self, mark: u32, live: Point) {
        self.rises = self.rises.saturating_add(1);
        self.gap = self.gap.max(mark.saturating_sub(self.last.0));
        self.sum = self.sum.saturating_add(u64::from(mark.saturating_sub(self.first.0)));
        if live.blocks > self.last.1.blocks {
            self.more = mark;
        }
        self.last = (mark, live);
        if self.samples.len() == SAMPLES {
            self.samples = self.samples.iter().copied().step_by(2).collect();
        }
        let (first, n) = (self.first.0, self.samples.len() as u32);
        let next = self.samples.last().map_or(0, |s| s.0 + (s.0 - first) / n.max(1));
        if mark >= next {
            self.samples.push((mark, live.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(blocks: u64, bytes: u64) -> Point {
        Point { blocks, bytes }
    }

    #[test]
    fn it_goes_on_until_there_is_less_or_fewer_blocks() {
        let mut r = Remade::default();
        (1..=20).for_each(|mark| r.see(mark, p(1, u64::from(mark) * 512)));
        assert_eq!((r.first.0, r.last.0, r.rises, r.gap, r.longest), (1, 20, 19, 1, 0));
        assert!(r.trend(20).abs() < 0.5 && r.trend(60) < -3.0, "{} {}", r.trend(20), r.trend(60));
        (21..=30).for_each(|mark| r.see(mark, p(1, 20 * 512)));
        assert_eq!((r.rises, r.last.0), (19, 20));
        r.see(31, p(1, 512));
        assert_eq!((r.rises, r.longest, r.ends, r.first), (0, 19, 1, (31, p(1, 512))));
        r.see(32, p(2, 1024));
        assert_eq!((r.rises, r.longest, r.ends), (1, 19, 1), "a second block is more, too");
        r.see(33, p(1, 2048));
        assert_eq!((r.rises, r.ends), (0, 1), "a larger one in the place of two begins anew");
    }

    #[test]
    fn few_samples_tell_of_all_of_it() {
        let mut r = Remade::default();
        (1..=10_000).for_each(|mark| r.see(mark, p(1, u64::from(mark) * 512)));
        let all: Vec<(u32, u64)> = r.samples().collect();
        assert!(all.len() > 16 && all.len() <= SAMPLES + 2, "{}", all.len());
        assert_eq!((all[0], all[all.len() - 1]), ((1, 0), (10_000, 9_999 * 512)));
        let widest = all.windows(2).map(|w| w[1].0 - w[0].0).max();
        assert!(widest.is_some_and(|w| w < 1500), "{all:?}");
    }
}
