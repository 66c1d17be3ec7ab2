//! Whether the old blocks of a cohort grow: the question both leak judgements ask. It judges a series,
//! nothing else.
//!
//! A *floor* at a mark is the least value from that mark on: what never came back. Growth is floors that
//! rise.

use super::forecast::Rate;
use crate::replay::{Cohort, CohortId, GRACE, Grain, Held, Point, RECENT, Replay, Track};
use rustc_hash::FxHashMap;

/// Marks that must lie behind before growth can be established.
pub(super) const MIN_MARKS: u32 = 12;
/// Windows whose floors must all rise.
const WINDOWS: u32 = 4;
/// Marks in a row at which a side stream's old blocks must rise for the fast path.
const FAST: u32 = 4;
/// Growth of the later half, as a part of that of the earlier half, below which something is filling up.
const DECELERATION: f64 = 0.4;
/// The same where an optimizer allocates (lazily routed experts).
const DECELERATION_STRICT: f64 = 0.75;
/// Marks that such a cohort must have grown for.
const STRICT_MARKS: u32 = 100;

/// Where one old block for so many of those that live now has died while they grew in number, it may be a queue: what is in
/// use by something that takes its time, and ends.
const TURNOVER: u64 = 16;

/// Rises that are worth a word before growth can be established.
const BRIEF: u32 = 4;

/// Rises that must be seen after a recording's oldest pages were dropped.
const WITNESSED: usize = 3;

/// How sure growth is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// Its floor rose lately, no more: counts only beside an established cohort of the same stream that began
    /// when it did.
    Weak,
    /// Rose at each of the last marks.
    Fast,
    /// Stood the test of the whole run.
    Established,
}

/// Growth of one cohort in one grain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Growth {
    pub(super) strength: Strength,
    /// The first mark at which the floor rose.
    pub(super) onset: u32,
    /// Floor before that.
    pub(super) base: Point,
    /// Old blocks at the last mark.
    pub(super) now: Point,
    /// Floor rose last at this mark.
    pub(super) last_rise: u32,
    /// Mean marks between rises.
    pub(super) gap: f64,
    /// How often the floor rose.
    pub(super) rises: u32,
    pub(super) rate: Rate,
    /// Four rises or more of blocks of which none dies, seen for too few marks yet to be told from something that
    /// fills.
    pub(super) brief: bool,
    /// Most of it is in use, and goes in its time: no part of anything else's growth.
    pub(super) in_use: bool,
    /// Old blocks of the cohort that had died by then.
    pub(super) died: u64,
}

impl Growth {
    /// Whether it looks like another part of the same leak: it began with it, and rises about as often.
    pub(super) fn resembles(&self, lead: &Growth, mark: u32) -> bool {
        let tolerance = ((mark - lead.onset.max(self.onset)) / 4).max(6);
        self.onset.abs_diff(lead.onset) <= tolerance && self.gap <= 4.0 * lead.gap + 2.0
    }

    /// What it left when it stopped growing is still there: as much, and not because old blocks went and others came.
    pub(super) fn is_left(&self, t: &Track) -> bool {
        let gone = t.died_old.blocks.saturating_sub(self.died);
        t.at_mark.bytes >= self.now.bytes / 10 * 9 && gone * TURNOVER <= t.at_mark.blocks
    }

    /// The floor has not risen for so long that growth is over.
    pub(super) fn has_stalled(&self, mark: u32) -> bool {
        f64::from(mark - self.last_rise) > (3.0 * self.gap).max(8.0)
    }
}

/// Rising floors, reused between calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    points: Vec<(u32, Point)>,
    rises: Vec<(u32, Point)>,
    /// What [`outlived`] said last.
    outlived: FxHashMap<(CohortId, Grain), Kept>,
}

impl Scratch {
    /// Cohorts are others now.
    pub(super) fn forget(&mut self) {
        self.outlived.clear();
    }
}

pub(super) fn track(c: &Cohort, grain: Grain) -> &Track {
    match grain {
        Grain::Step => &c.steps,
        Grain::Microbatch => &c.microbatches,
    }
}

/// Nothing changed for as long as single marks are kept: what was said of it at the last full look still
/// holds.
pub(super) fn is_flat(t: &Track) -> bool {
    t.series.last() == t.series.back(RECENT as u32 - 1)
}

/// The growth of a cohort as of `mark`, if there is any. `weights` is how many blocks the job held when its first step
/// ended, but for its optimizer's: a line of an optimizer makes one state for each at the most, in as many steps as it takes
/// until all are trained (layers that are thawed one by one).
pub(super) fn of(
    replay: &Replay,
    id: CohortId,
    grain: Grain,
    mark: u32,
    weights: u64,
    scratch: &mut Scratch,
) -> Option<Growth> {
    let c = &replay.cohorts()[id.0 as usize];
    let t = track(c, grain);
    let now = t.at_mark;
    let of_optimizer = c.in_optimizer * 2 > c.allocs;
    if of_optimizer && now.blocks <= weights {
        return None;
    }
    if now.blocks < 2 || t.series.last_mark() != mark || mark < FAST {
        return None;
    }
    // What reference cycles keep is freed when Python's collector comes by: until it has grown beyond what that freed at once
    // before, it waits for the next time.
    if t.is_cycle_garbage() && now.bytes / 2 <= t.collected_at_once.bytes {
        return None;
    }
    floors(t, scratch);
    let (onset, base, first) = segment(&scratch.rises)?;
    let rises: Vec<(u32, Point)> = scratch.rises.iter().copied().skip(first).collect();
    let (&(last_rise, _), count) = (rises.last()?, rises.len() as u32);
    let gap = f64::from(last_rise - onset) / f64::from(count.saturating_sub(1).max(1));
    let halves = Halves::of(&rises, mark);
    let rate = Rate::of(&rises, mark, halves.ratio());
    let mut g = Growth {
        strength: Strength::Weak,
        onset,
        base,
        now,
        last_rise,
        gap,
        rises: count,
        rate,
        brief: false,
        in_use: false,
        died: t.died_old.blocks,
    };
    if g.has_stalled(mark) {
        return None;
    }
    let monotone = scratch
        .points
        .windows(2)
        .all(|w| w[1].0 <= onset || (w[1].1.bytes >= w[0].1.bytes && w[1].1.blocks >= w[0].1.blocks));
    let undying = t.died_old.blocks == 0 || t.last_death < onset;
    let grown =
        Point { blocks: now.blocks.saturating_sub(base.blocks), bytes: now.bytes.saturating_sub(base.bytes) };
    let turnover = !undying && t.died_old.blocks * TURNOVER > grown.blocks;
    let kept = match turnover {
        true => outlived(replay, id, grain, (onset, mark), grown.bytes, &mut scratch.outlived),
        false => Kept::Most,
    };
    if kept == Kept::Nothing {
        return None;
    }
    let (least, deceleration) =
        if of_optimizer { (STRICT_MARKS, DECELERATION_STRICT) } else { (MIN_MARKS, DECELERATION) };
    let span = mark + 1 - onset;
    // Births of what lives at a checkpoint look like growth where a queue is; growth has to go on before our
    // eyes.
    let witnessed =
        t.remembered == 0 || rises.iter().filter(|r| r.0 > t.remembered).count() >= WITNESSED && undying;
    let record = sets_a_record(&scratch.points, onset, now);
    let steady = witnessed && halves.ratio() >= deceleration && record;
    let often = count >= 4 && halves.gaps_hold();
    let staircase =
        monotone && undying && last_rise - onset >= least - 3 && (often || is_clockwork(&rises, base));
    g.brief = steady && !of_optimizer && undying && count >= BRIEF && (monotone || rose_at_each(t, FAST));
    if kept == Kept::Some {
        // Worth a word, no more.
        (g.brief, g.in_use) = (steady && !of_optimizer, true);
        return g.brief.then_some(g);
    }
    if steady && span >= least && (staircase || four_windows(t, mark)) {
        g.strength = Strength::Established;
    } else if !of_optimizer && undying && rose_at_each(t, FAST) && record {
        g.strength = Strength::Fast;
    } else if of_optimizer || !record || halves.ratio() < DECELERATION / 2.0 {
        return None;
    }
    Some(g)
}

/// How much of what a cohort grew by has lived for half as long again as anything of it that was ever freed. What waits in a
/// queue, or serves a request, goes in its time, however many of them there are; what leaks does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// Nothing that would be worth a word.
    Nothing,
    /// Less than what is in use: worth a word.
    Some,
    /// Most of it, or nothing was freed.
    Most,
}

/// Births of what was kept, in marks of their own, that are needed.
const BIRTHS: usize = 4;

fn outlived(
    replay: &Replay,
    id: CohortId,
    grain: Grain,
    (onset, mark): (u32, u32),
    grown: u64,
    known: &mut FxHashMap<(CohortId, Grain), Kept>,
) -> Kept {
    let c = &replay.cohorts()[id.0 as usize];
    let gone = c.frees != c.at_mark.1;
    if let Some(said) = known.get(&(id, grain)).filter(|_| gone) {
        // What was freed after the mark was there at the mark.
        return *said;
    }
    let longest = track(c, grain).longest_life;
    let born_before = mark.saturating_sub(longest.saturating_add(longest / 2));
    let born = |h: &Held| if grain == Grain::Step { h.step } else { h.microbatch };
    let ours = replay.blocks(c.key.device).filter(|h| h.cohort == id && !h.pending && !h.unverified);
    // What was there before it grew is no part of what it grew by, however old.
    let first = onset.saturating_sub(GRACE);
    let (mut births, mut bytes) = (Vec::new(), 0u64);
    for h in ours.filter(|h| (first..born_before).contains(&born(h))) {
        bytes = bytes.saturating_add(h.block.rounded.0);
        if births.len() < BIRTHS && !births.contains(&born(h)) {
            births.push(born(h));
        }
    }
    // At the pace at which that was kept, the whole growth has so much of it: the rest is in use.
    let (window, span) = (u64::from(born_before.saturating_sub(first).max(1)), u64::from(mark - first) + 1);
    let all = bytes.saturating_mul(span) / window;
    let kept = match births.len() >= BIRTHS {
        _ if bytes > grown / 2 => Kept::Most,
        true if all >= grown / 10 => Kept::Some,
        _ => Kept::Nothing,
    };
    known.insert((id, grain), kept);
    kept
}

/// A track's values, oldest first: buckets, and one by one the last marks, where a leak that began just now
/// must be seen.
fn points(t: &Track, out: &mut Vec<(u32, Point)>) {
    let last = t.series.last_mark();
    let exact = if t.series.width() == 1 { u32::MAX } else { last.saturating_sub(RECENT as u32 - 1) };
    out.clear();
    let before = t.series.buckets().take_while(|b| b.0 < exact.saturating_add(t.series.width() - 1));
    out.extend(before.map(|(mark, p)| (mark.min(exact - 1), p)));
    if exact <= last {
        out.extend((exact..=last).map(|m| (m, t.series.back(last - m))));
    }
}

/// Fills the scratch with the series' points and with the rises of its floors.
fn floors(t: &Track, scratch: &mut Scratch) {
    points(t, &mut scratch.points);
    scratch.rises.clear();
    let mut floor: Option<Point> = None;
    for &(mark, p) in scratch.points.iter().rev() {
        let f = floor.map_or(p, |f| Point { blocks: f.blocks.min(p.blocks), bytes: f.bytes.min(p.bytes) });
        // Going back in time: where the floor changes, the mark after it was a rise.
        match scratch.rises.last_mut() {
            Some(last) if last.1 == f => last.0 = mark,
            _ => scratch.rises.push((mark, f)),
        }
        floor = Some(f);
    }
    scratch.rises.reverse();
}

/// The present run of rises: its first mark, the floor before it, its index. Runs are parted by plateaus.
fn segment(rises: &[(u32, Point)]) -> Option<(u32, Point, usize)> {
    let mut i = rises.len().checked_sub(1)?;
    while i > 0 {
        let gap = rises[i].0 - rises[i - 1].0;
        let (seen, span) = (rises.len() - 1 - i, rises[rises.len() - 1].0 - rises[i].0);
        let mean = if seen == 0 { 4.0 } else { f64::from(span) / seen as f64 };
        // The first rises of a slow leak are allowed to lie far apart: nothing is known of its pace yet.
        let patience = if seen < 3 { 60.0 } else { (4.0 * mean).max(8.0) };
        if f64::from(gap) > patience {
            break;
        }
        i -= 1;
    }
    let base = if i == 0 { Point::default() } else { rises[i - 1].1 };
    Some((rises[i].0, base, i))
}

/// What fell before may rise again as far as it once was: cycles that await their collector, buffers within a
/// step. Growth beyond that, by half, is news.
fn sets_a_record(points: &[(u32, Point)], onset: u32, now: Point) -> bool {
    let before = points.iter().filter(|p| p.0 < onset).map(|p| p.1.bytes).max().unwrap_or(0);
    let base = points.iter().rev().find(|p| p.0 < onset).map_or(0, |p| p.1.bytes);
    before <= base || now.bytes / 3 * 2 > before
}

/// Three rises or more of one size, at one distance of at least eight marks: what an evaluation or an epoch
/// leaves behind.
fn is_clockwork(rises: &[(u32, Point)], base: Point) -> bool {
    let gaps = || rises.windows(2).map(|w| w[1].0 - w[0].0);
    let sizes = || {
        let first = rises[0].1.bytes.saturating_sub(base.bytes);
        std::iter::once(first).chain(rises.windows(2).map(|w| w[1].1.bytes - w[0].1.bytes))
    };
    let even = |least: u64, most: u64| most <= least + least / 8;
    let (Some(a), Some(b)) = (gaps().min(), gaps().max()) else { return false };
    let (Some(c), Some(d)) = (sizes().min(), sizes().max()) else { return false };
    rises.len() >= 3 && a >= 8 && even(u64::from(a), u64::from(b)) && even(c, d)
}

/// The floors of four windows after a warm-up rise, in blocks and in bytes.
fn four_windows(t: &Track, mark: u32) -> bool {
    let warm = (mark / 5).max(3);
    let k = mark.saturating_sub(warm) / WINDOWS;
    if k < MIN_MARKS / WINDOWS {
        return false;
    }
    let start = mark + 1 - WINDOWS * k;
    let f: Vec<Point> = (0..WINDOWS).map(|i| t.series.floor(start + i * k, start + (i + 1) * k)).collect();
    f.windows(2).all(|w| w[1].blocks > w[0].blocks && w[1].bytes > w[0].bytes)
}

fn rose_at_each(t: &Track, marks: u32) -> bool {
    (0..marks).all(|i| {
        let (a, b) = (t.series.back(i), t.series.back(i + 1));
        a.blocks > b.blocks && a.bytes > b.bytes
    })
}

/// Growth before and after the middle of the run.
struct Halves {
    early: u64,
    late: u64,
    early_gap: f64,
    late_gap: f64,
}

impl Halves {
    fn of(rises: &[(u32, Point)], mark: u32) -> Halves {
        let (first, last) = (rises[0], rises[rises.len() - 1]);
        let middle = first.0 + (mark - first.0) / 2;
        let at = rises.partition_point(|r| r.0 <= middle).saturating_sub(1);
        let half = rises[at];
        let mean = |r: &[(u32, Point)]| match r {
            [a, .., b] => f64::from(b.0 - a.0) / (r.len() - 1) as f64,
            _ => 0.0,
        };
        Halves {
            early: half.1.bytes - first.1.bytes,
            late: last.1.bytes - half.1.bytes,
            early_gap: mean(&rises[..=at]),
            late_gap: mean(&rises[at..]),
        }
    }

    fn ratio(&self) -> f64 {
        if self.early == 0 {
            f64::from(u8::from(self.late > 0))
        } else {
            self.late as f64 / self.early as f64
        }
    }

    /// Rises do not come more and more rarely.
    fn gaps_hold(&self) -> bool {
        self.late_gap > 0.0 && (self.early_gap == 0.0 || self.late_gap <= 2.0 * self.early_gap + 1.0)
    }
}
