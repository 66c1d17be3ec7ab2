//! What the births of what a line keeps tell: how often they come, whether they die away, whether they come in bursts.

use crate::replay::{Birth, Point, Track};

/// Different marks that survivors must come from.
pub(super) const BIRTHS: u32 = 4;
/// Different marks that are a candidate where they lie as far from each other as the ticks of a clock do: of evaluations a job may have few.
/// Three of a kind that end there look the same, so whoever keeps them must say the rest.
pub(super) const TICKS: u32 = 3;
/// Marks that they lie apart at least, and by a part of which the two times between them may differ; and the part of the first one's blocks
/// that each of the others has left.
const TICK: (u32, u32) = (10, 10);
const LIKE_THE_FIRST: u64 = 4;
/// Different marks that left blocks without there being more, of which nothing is established.
pub(super) const BESIDES: u32 = 2;
/// Births that lie so many times closer together than the farthest ones are one event.
const CLUMP: u32 = 8;
/// Times that the silence after the first of them is longer than any later one, where old blocks of the line die: what died lay in between, and
/// the first are no part of what goes on, such as a workspace of cuBLAS.
const APART: u32 = 4;
/// What shows that births are as regular as clockwork: so many gaps, none of them longer than so many mean ones.
const REGULAR: [(u32, f64); 2] = [(6, 1.2), (3, 1.1)];
/// Bursts of births, as far apart from each other, that are no chance.
const BURSTS: usize = 3;

/// A statistic, and a part.
pub(super) type Limits = (f64, f64);

/// Births of what is kept at a line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// Births of the first and the last mark.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Births of the mark after the first.
    second: u32,
    /// Different marks.
    pub(super) marks: u32,
    pub(super) total: Point,
    /// Laplace's statistic: 0 at a constant rate.
    pub(super) trend: f64,
    /// The longest time without a birth between two.
    pub(super) gap: u32,
    /// How many events the births are: those that lie close together, beside the longest time without any, are one.
    events: u32,
}

impl Kept {
    /// Mean marks between births.
    pub(super) fn pace(&self) -> f64 {
        f64::from(self.last - self.first) / f64::from(self.marks.saturating_sub(1).max(1))
    }

    /// Too few to tell by themselves whether it grows: see [`ticks`].
    pub(super) fn is_sparse(&self) -> bool {
        self.marks < BIRTHS
    }

    /// Whether births die away, as of mark `until`.
    fn fades(&self, t: &Track, until: u32, limits: Limits) -> bool {
        self.trend <= limits.0 && are_few(t.births.list(), self.first, until, limits)
    }

    /// Whether they came back after the longest time without any: they come at no less than a part of the pace before it, and have not died away
    /// since.
    fn came_back(&self, t: &Track, until: u32, limits: Limits) -> bool {
        let all = t.births.list();
        let ours: Vec<&Birth> = all.iter().filter(|b| b.first >= self.first && b.last <= until).collect();
        let silence = |i: &usize| Some(ours.get(*i)?.first - ours.get(i.checked_sub(1)?)?.last);
        let parts = (1..ours.len()).max_by_key(silence).and_then(|i| ours.split_at_checked(i));
        let Some((before, since)) = parts else { return false };
        let (Some(end), Some(back)) = (before.last(), since.first()) else { return false };
        let pace = |part: &[&Birth], marks: u32| {
            f64::from(part.iter().map(|b| b.marks).sum::<u32>()) / f64::from(marks + 1)
        };
        let (then, now) = (pace(before, end.last - self.first), pace(since, until - back.first));
        let fades = |k: Kept| k.fades(t, until, limits);
        // One may be the last of what dies away.
        let is_one = since.iter().map(|b| b.marks).sum::<u32>() < BESIDES;
        !is_one && now >= then * limits.1 && !count(all, back.first, until, BIRTHS).is_some_and(fades)
    }

    /// They die away, and did not come back from the longest time without any.
    pub(super) fn dies_away(&self, t: &Track, until: u32, limits: Limits) -> bool {
        self.fades(t, until, limits) && !self.came_back(t, until, limits)
    }

    /// Births come like clockwork, one by one or in bursts; the first may be what a job makes as it begins.
    pub(super) fn is_regular(&self) -> bool {
        let is = |n: u32, first: u32| {
            let pace = f64::from(self.last - first) / f64::from(n.saturating_sub(1).max(1));
            REGULAR.iter().any(|(gaps, most)| n > *gaps && f64::from(self.gap) <= most * pace.max(1.0))
        };
        is(self.marks, self.first)
            || is(self.events, self.first)
            || is(self.marks.saturating_sub(1), self.second)
    }
}

/// Whether births come in bursts that go on: four of them, or three that are as far apart. Half of the longest time without a birth is between
/// two bursts.
pub(super) fn comes_in_bursts(list: &[Birth], k: &Kept) -> bool {
    let ours = list.iter().filter(|b| b.first >= k.first && b.last <= k.last);
    let (mut bursts, mut before) = (Vec::<(u32, u64)>::new(), None::<u32>);
    for b in ours {
        match bursts
            .last_mut()
            .filter(|_| before.is_some_and(|last| (b.first - last).saturating_mul(2) < k.gap))
        {
            Some(burst) => burst.1 = burst.1.saturating_add(b.total.blocks),
            None => bursts.push((b.first, b.total.blocks)),
        }
        before = Some(b.last);
    }
    let apart: Vec<u32> = bursts.windows(2).map(|w| w[1].0 - w[0].0).collect();
    let (Some(shortest), Some(longest)) = (apart.iter().min(), apart.iter().max()) else { return false };
    let blocks: u64 = bursts.iter().map(|b| b.1).sum();
    let is_even = longest - shortest <= shortest / 4;
    let goes_on = bursts.last().is_some_and(|b| b.1.saturating_mul(2 * bursts.len() as u64) >= blocks);
    let is_often = bursts.len() >= BIRTHS as usize && *longest <= shortest.saturating_mul(3);
    goes_on && (is_often || is_even && bursts.len() >= BURSTS)
}

/// The last three births up to mark `until`, where they tick; one before them may be what a line makes as a job begins.
pub(super) fn ticks(list: &[Birth], until: u32) -> Option<Kept> {
    let list = list.get(..list.partition_point(|b| b.last <= until))?;
    let [before @ .., a, b, c] = list else { return None };
    let (short, long) = {
        let (one, other) = (b.first - a.last, c.first - b.last);
        (one.min(other), one.max(other))
    };
    let is_even = short >= TICK.0 && long - short <= short / TICK.1;
    let is_one =
        [a, b, c].iter().all(|x| x.marks == 1) && before.iter().map(|x| x.marks).sum::<u32>() < BESIDES;
    let fades =
        |x: &Birth| x.total.blocks.saturating_mul(LIKE_THE_FIRST) < a.total.blocks * (LIKE_THE_FIRST - 1);
    (is_even && is_one && !fades(b) && !fades(c)).then(|| count(list, a.first, until, TICKS)).flatten()
}

/// The first mark of what goes on, of births from mark `from` on: those of the first mark or two are left out where they lie far apart from
/// all others.
pub(super) fn beginning(list: &[Birth], from: u32) -> u32 {
    let ours = list.get(list.partition_point(|b| b.last < from)..).unwrap_or_default();
    let silence = |a: &Birth, b: &Birth| b.first.saturating_sub(a.last);
    let longest = |rest: &[Birth]| {
        let between = rest.iter().zip(rest.iter().skip(1)).map(|(a, b)| silence(a, b));
        between.chain(rest.iter().map(|b| (b.last - b.first) / b.marks.max(1))).max().unwrap_or(0)
    };
    let begins = |at: usize| {
        let (before, rest) = ours.split_at_checked(at)?;
        let (last, first) = (before.last()?, rest.first()?);
        let is_beside = before.iter().map(|b| b.marks).sum::<u32>() <= BESIDES;
        (is_beside && silence(last, first) > APART.saturating_mul(longest(rest).max(1)))
            .then_some(first.first)
    };
    (1..=BESIDES as usize).find_map(begins).unwrap_or(from)
}

/// Whether there were few births in the last quarter of the time from mark `from` to mark `until`.
pub(super) fn are_few(list: &[Birth], from: u32, until: u32, (_, part): Limits) -> bool {
    let quarter = until.saturating_sub(until.saturating_sub(from) / 4);
    let (mut all, mut late) = (0.0, 0.0);
    for b in list.iter().filter(|b| b.first >= from && b.first <= until) {
        all += f64::from(b.marks);
        // Of marks that were joined, as many as lie in it.
        let span = f64::from(b.last.saturating_sub(b.first)) + 1.0;
        let inside = f64::from(b.last.saturating_add(1).saturating_sub(quarter.max(b.first)));
        late += f64::from(b.marks) * (inside / span).clamp(0.0, 1.0);
    }
    late < all / 4.0 * part
}

#[derive(Default)]
pub(super) struct Sum {
    pub(super) marks: u32,
    at: f64,
}

impl Sum {
    pub(super) fn add(&mut self, b: &Birth) {
        self.marks = self.marks.saturating_add(b.marks);
        self.at += f64::from(b.marks) * (f64::from(b.first) + f64::from(b.last)) / 2.0;
    }

    /// Laplace's statistic of the births after those of `first`, up to mark `until`.
    pub(super) fn trend(&self, first: &Birth, until: u32) -> f64 {
        let n = f64::from(self.marks.saturating_sub(1).max(1));
        let (begin, span) = (f64::from(first.first), f64::from(until.saturating_sub(first.first).max(1)));
        let mean = (self.at - begin) / n - begin;
        (mean - (span + 1.0) / 2.0) / (span * (1.0 / (12.0 * n)).sqrt())
    }
}

/// Births from mark `from` to mark `until`, where there are at least so many.
pub(super) fn count(list: &[Birth], from: u32, until: u32, least: u32) -> Option<Kept> {
    let (mut sum, mut k, mut before) = (Sum::default(), Kept::default(), None::<&Birth>);
    let begin = list.partition_point(|b| b.last < from);
    let ours = || list.get(begin..).into_iter().flatten().take_while(|b| b.last <= until);
    for b in ours() {
        sum.add(b);
        k.gap = k.gap.max(before.map_or(0, |a| b.first - a.last)).max((b.last - b.first) / b.marks.max(1));
        k.total.blocks = k.total.blocks.saturating_add(b.total.blocks);
        k.total.bytes = k.total.bytes.saturating_add(b.total.bytes);
        (k.last, before) = (b.last, Some(b));
    }
    k.second = ours().nth(1).map_or(k.last, |b| b.first);
    let first = ours().next().filter(|_| sum.marks >= least)?;
    (k.first, k.marks, k.trend) = (first.first, sum.marks, sum.trend(first, until));
    let joined = |a: &&Birth, b: &&Birth| (b.first - a.last).saturating_mul(CLUMP) <= k.gap;
    let close = ours().zip(ours().skip(1)).filter(|(a, b)| joined(a, b)).count();
    k.events = sum.marks.saturating_sub(close as u32);
    Some(k)
}
