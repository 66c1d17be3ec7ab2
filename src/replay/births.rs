//! When the old blocks of a cohort that live now were born, in bounded memory.

use super::series::Point;

/// Entries that are kept at most; neighbours are joined beyond.
const ENTRIES: usize = 256;

/// Old blocks that live, of one mark or of some that were joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Birth {
    /// The mark they were born in (the step that ran), or the first of several.
    pub first: u32,
    /// The last of them.
    pub last: u32,
    /// In how many different marks.
    pub marks: u32,
    /// How many blocks, of which size.
    pub total: Point,
}

/// The births of old blocks that live, oldest first: one entry for each mark that left any, up to 256; then neighbours are
/// joined, so that the oldest are the coarsest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Births {
    list: Vec<Birth>,
}

impl Births {
    /// All of them, oldest first.
    pub fn list(&self) -> &[Birth] {
        &self.list
    }

    /// Blocks that were born from mark `from` to mark `until`, as far as these are told apart.
    pub fn between(&self, from: u32, until: u32) -> Point {
        let mut all = Point::default();
        self.list.iter().filter(|b| b.first >= from && b.last <= until).for_each(|b| all.add(b.total));
        all
    }

    /// Whether every mark from `from` on that left any left some of the others, too.
    pub fn come_with(&self, others: &Births, from: u32) -> bool {
        let has = |b: &Birth| {
            let at = others.list.partition_point(|o| o.last < b.last);
            others.list.get(at).is_some_and(|o| o.first <= b.first)
        };
        self.list.iter().filter(|b| b.first >= from).all(has)
    }

    /// Blocks born in `mark` are old now.
    pub(super) fn add(&mut self, mark: u32, p: Point) {
        if p.blocks == 0 {
            return;
        }
        let at = self.list.partition_point(|b| b.last < mark);
        match self.list.get_mut(at) {
            Some(b) if b.first <= mark => b.total.add(p),
            _ => self.list.insert(at, Birth { first: mark, last: mark, marks: 1, total: p }),
        }
        if self.list.len() >= ENTRIES {
            self.join();
        }
    }

    /// Blocks born in those marks are gone.
    pub(super) fn remove(&mut self, gone: &[(u32, Point)]) {
        let mut emptied = false;
        for (mark, p) in gone {
            let at = self.list.partition_point(|b| b.last < *mark);
            let Some(b) = self.list.get_mut(at).filter(|b| b.first <= *mark) else { continue };
            b.total.sub(*p);
            b.marks = b.marks.min(b.total.blocks.min(u64::from(u32::MAX)) as u32);
            emptied |= b.total.blocks == 0;
        }
        if emptied {
            self.list.retain(|b| b.total.blocks > 0);
        }
    }

    /// Two neighbours become one.
    fn join(&mut self) {
        let joined = self.list.chunks(2).map(|pair| match pair {
            [a, b] => {
                let mut total = a.total;
                total.add(b.total);
                Birth { first: a.first, last: b.last, marks: a.marks.saturating_add(b.marks), total }
            }
            rest => rest.first().copied().unwrap_or_default(),
        });
        self.list = joined.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(blocks: u64) -> Point {
        Point { blocks, bytes: blocks * 512 }
    }

    #[test]
    fn what_goes_is_taken_from_the_mark_it_was_born_in() {
        let mut b = Births::default();
        for mark in [3, 5, 9] {
            b.add(mark, p(2));
        }
        b.add(4, p(0));
        b.add(4, p(1));
        b.remove(&[(5, p(1)), (7, p(1)), (3, p(2))]);
        let seen: Vec<(u32, u64)> = b.list().iter().map(|b| (b.first, b.total.blocks)).collect();
        assert_eq!(seen, [(4, 1), (5, 1), (9, 2)]);
    }

    #[test]
    fn what_comes_with_others_comes_in_no_mark_without_them() {
        let of = |marks: &[u32]| {
            let mut b = Births::default();
            marks.iter().for_each(|mark| b.add(*mark, p(1)));
            b
        };
        let all = of(&[1, 4, 5, 9]);
        assert!(of(&[4, 9]).come_with(&all, 1) && of(&[3, 5]).come_with(&all, 4));
        assert!(!of(&[4, 10]).come_with(&all, 1) && !all.come_with(&of(&[4, 9]), 1));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        let mut b = Births::default();
        for mark in 1..=100_000 {
            b.add(mark, p(1));
        }
        assert!(b.list().len() < ENTRIES);
        assert_eq!(b.list().iter().map(|b| b.marks).sum::<u32>(), 100_000);
        assert_eq!(b.list().iter().map(|b| b.total.blocks).sum::<u64>(), 100_000);
        b.remove(&[(1, p(1)), (100_000, p(1))]);
        assert_eq!(b.list().iter().map(|b| b.total.blocks).sum::<u64>(), 99_998);
    }
}
