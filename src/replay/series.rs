//! A value at every mark, in bounded memory.

/// Blocks, such as the old ones of a cohort at one mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// How many.
    pub blocks: u64,
    /// Their rounded sizes.
    pub bytes: u64,
}

impl Point {
    /// One block.
    pub fn block(bytes: u64) -> Point {
        Point { blocks: 1, bytes }
    }

    /// Adds others.
    pub fn add(&mut self, o: Point) {
        self.blocks = self.blocks.saturating_add(o.blocks);
        self.bytes = self.bytes.saturating_add(o.bytes);
    }
    /// Without others, as far as they are there.
    pub fn less(mut self, o: Point) -> Point {
        self.sub(o);
        self
    }
    pub(super) fn sub(&mut self, o: Point) {
        self.blocks = self.blocks.saturating_sub(o.blocks);
        self.bytes = self.bytes.saturating_sub(o.bytes);
    }
    fn floor(self, o: Point) -> Point {
        Point { blocks: self.blocks.min(o.blocks), bytes: self.bytes.min(o.bytes) }
    }
}

/// Buckets that are kept at most; twice as many marks per bucket from then on.
const BUCKETS: usize = 512;
/// Marks that are kept one by one.
pub const RECENT: usize = 32;

/// Points at marks 1, 2, 3 … The last [`RECENT`] ones are kept one by one; all of them in buckets of equal
/// width of which the minimum is kept: growth is judged by minima, so that nothing is lost by it. Up to 512
/// marks the buckets are single marks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Mark of the first point; points before it were (0, 0).
    first: u32,
    /// Points so far.
    len: u32,
    /// Minima of buckets of `width` marks each, the first one beginning at `first`.
    floors: Vec<Point>,
    /// log2 of the marks per bucket.
    shift: u32,
    /// The last points one by one: a ring, point `i` of the series at `i % RECENT`.
    recent: Vec<Point>,
}

impl Series {
    /// Mark of the first point that is kept; the value before it was (0, 0). 0 in an empty series.
    pub fn first_mark(&self) -> u32 {
        self.first
    }

    /// Mark of the last point; 0 in an empty series.
    pub fn last_mark(&self) -> u32 {
        if self.len == 0 { 0 } else { self.first + (self.len - 1) }
    }

    /// The last point.
    pub fn last(&self) -> Point {
        self.back(0)
    }

    /// The point `n` marks before the last one, for `n` < [`RECENT`]; (0, 0) before the first.
    pub fn back(&self, n: u32) -> Point {
        if n >= self.len || n as usize >= RECENT {
            return Point::default();
        }
        self.recent.get((self.len - 1 - n) as usize % RECENT).copied().unwrap_or_default()
    }

    /// The minimum over marks `from..to`, widened to whole buckets at its ends where buckets are wider than a
    /// mark. Marks before the first point count as (0, 0); an empty range is (0, 0).
    pub fn floor(&self, from: u32, to: u32) -> Point {
        if self.len == 0 || from >= to || from < self.first {
            return Point::default();
        }
        let end = to.min(self.first.saturating_add(self.len));
        if end <= from {
            return Point::default();
        }
        let (a, b) = ((from - self.first) >> self.shift, (end - 1 - self.first) >> self.shift);
        let range = self.floors.get(a as usize..=b as usize).unwrap_or(&[]);
        range.iter().copied().reduce(Point::floor).unwrap_or_default()
    }

    /// (last mark, minimum) of every bucket, oldest first.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = (u32, Point)> + '_ {
        let last = self.last_mark();
        self.floors.iter().enumerate().map(move |(i, p)| {
            let end = self.first as u64 + (((i as u64) + 1) << self.shift) - 1;
            (end.min(u64::from(last)) as u32, *p)
        })
    }

    /// Marks in a bucket: 1 up to 512 marks.
    pub fn width(&self) -> u32 {
        1 << self.shift
    }

    /// Appends the value at `mark`; marks that were left out since the last one had the value (0, 0).
    pub(crate) fn push(&mut self, mark: u32, p: Point) {
        if self.len == 0 {
            if p == Point::default() {
                return;
            }
            self.first = mark;
        }
        let gap = mark.saturating_sub(self.first.saturating_add(self.len));
        self.append_zeros(gap);
        self.append(p);
    }

    /// As many points of (0, 0), bucket by bucket: a damaged recording may leave out any number of marks.
    fn append_zeros(&mut self, mut count: u32) {
        while count > 0 {
            let room = ((BUCKETS as u64) << self.shift).saturating_sub(u64::from(self.len));
            let now = u64::from(count).min(room.max(1)) as u32;
            let last = ((self.len + (now - 1)) >> self.shift) as usize;
            let begun = (self.len >> self.shift) as usize;
            self.floors.get_mut(begun).into_iter().for_each(|f| *f = Point::default());
            self.floors.resize(self.floors.len().max(last + 1), Point::default());
            for i in 0..now.min(RECENT as u32) {
                let slot = (self.len + (now - 1 - i)) as usize % RECENT;
                self.recent.resize(self.recent.len().max(slot + 1), Point::default());
                self.recent[slot] = Point::default();
            }
            (self.len, count) = (self.len + now, count - now);
            self.widen();
        }
    }

    fn append(&mut self, p: Point) {
        let bucket = (self.len >> self.shift) as usize;
        match self.floors.get_mut(bucket) {
            Some(f) => *f = f.floor(p),
            None => self.floors.push(p),
        }
        let slot = self.len as usize % RECENT;
        match self.recent.get_mut(slot) {
            Some(r) => *r = p,
            None => self.recent.push(p),
        }
        self.len = self.len.saturating_add(1);
        self.widen();
    }

    /// Twice as many marks per bucket, where there are too many.
    fn widen(&mut self) {
        if self.floors.len() >= BUCKETS && self.len.is_multiple_of(2 << self.shift) {
            let n = self.floors.len() / 2;
            for i in 0..n {
                self.floors[i] = self.floors[2 * i].floor(self.floors[2 * i + 1]);
            }
            self.floors.truncate(n);
            self.shift += 1;
        }
    }

    /// Forgets marks from `mark` on.
    pub(super) fn truncate(&mut self, mark: u32) {
        if mark <= self.first || self.shift > 0 {
            *self = Series::default();
            return;
        }
        let keep = (mark - self.first).min(self.len);
        let kept: Vec<Point> = self.floors.iter().copied().take(keep as usize).collect();
        let first = self.first;
        *self = Series { first, ..Series::default() };
        for p in kept {
            self.append(p);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(v: u64) -> Point {
        Point { blocks: v, bytes: v * 512 }
    }

    #[test]
    fn floors_of_any_window_match_the_plain_series() {
        let mut plain = vec![Point::default(); 6];
        let mut s = Series::default();
        let mut x = 7u64;
        for mark in 6..500u32 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let v = p(1 + (x >> 40) % 100);
            plain.push(v);
            s.push(mark, v);
        }
        for from in (0..500).step_by(7) {
            for to in (from + 1..500).step_by(11) {
                let want = plain[from..to].iter().copied().reduce(Point::floor).unwrap();
                assert_eq!(s.floor(from as u32, to as u32), want, "{from}..{to}");
            }
        }
        assert_eq!((s.first_mark(), s.last_mark(), s.last()), (6, 499, plain[499]));
        assert_eq!(s.back(31), plain[468]);
    }

    #[test]
    fn memory_is_bounded_and_minima_survive() {
        let mut s = Series::default();
        for mark in 1..=100_000u32 {
            s.push(mark, p(u64::from(mark)));
        }
        assert!(s.floors.len() <= BUCKETS && s.recent.len() == RECENT);
        let f = s.floor(50_000, 60_000);
        assert!(f.blocks <= 50_000 && f.blocks > 49_000, "{f:?}");
        assert_eq!(s.back(10), p(99_990));
        assert_eq!(s.back(RECENT as u32), Point::default());
    }

    #[test]
    fn marks_left_out_were_zero() {
        let mut s = Series::default();
        s.push(3, Point::default());
        assert_eq!(s.last_mark(), 0);
        s.push(5, p(9));
        s.push(9, p(4));
        assert_eq!(s.floor(7, 8), Point::default());
        assert_eq!((s.floor(5, 6), s.floor(9, 10)), (p(9), p(4)));
        s.truncate(6);
        assert_eq!((s.last_mark(), s.last()), (5, p(9)));
        s.truncate(1);
        assert_eq!(s.last_mark(), 0);
    }

    #[test]
    fn any_number_of_marks_may_be_left_out() {
        let mut x = 11u64;
        for _ in 0..60 {
            let (mut fast, mut slow) = (Series::default(), Series::default());
            let mut mark = 1;
            for _ in 0..12 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let gap = (x >> 33) as u32 % [3, 40, 600, 3000][(x >> 20) as usize % 4];
                if slow.len > 0 {
                    (0..gap).for_each(|_| slow.append(Point::default()));
                }
                mark += gap;
                slow.first = if slow.len == 0 { mark } else { slow.first };
                slow.append(p(1 + (x >> 50)));
                fast.push(mark, p(1 + (x >> 50)));
                mark += 1;
                assert_eq!(fast, slow, "after a gap of {gap}");
            }
        }
        let mut s = Series::default();
        s.push(1, p(1));
        s.push(u32::MAX, p(2));
        assert_eq!((s.last_mark(), s.last(), s.floors.len() <= BUCKETS), (u32::MAX, p(2), true));
    }
}
