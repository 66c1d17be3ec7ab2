//! How fast what a line keeps has grown, and since when. Whether it does is the business of `survivors` and `backlog`.

use super::backlog::{Backlog, Queue};
use super::births::BIRTHS;
use super::forecast::Rate;
use super::survivors::{self, Fell, Named, Watch};
use crate::event::total;
use crate::replay::{Cohort, CohortId, GRACE, Grain, Point, RECENT, Remade, Track};

/// Marks that must lie behind before a job is called clean.
pub(super) const MIN_MARKS: u32 = 12;
/// Growth below which nothing is said, in bytes a step: what `Detector::detectable` is at least.
pub(super) const LEAST_RATE: f64 = 4096.0;

/// Marks that tell how fast it grows lately, at least.
const LATELY: u32 = 16;
/// Marks in which a job makes what it goes on with.
pub(super) const BEGINNING: u32 = 2;

/// Marks that the state of an optimizer must have grown for beyond what the weights explain: experts that are routed to lazily
/// get theirs one by one.
const STATE_MARKS: u32 = 100;
/// States that a line makes for each weight: two, as Adam's does; and the most of any, which are allowed for until then.
const STATES: u64 = 2;
const MOST_STATES: u64 = 4;
/// No state of an optimizer has so many times the weights' bytes: four slots of twice their precision.
const STATE_BYTES: u64 = 8;

/// By what growth was established.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// Blocks are kept: so many different marks left some, that long was the longest life that had ended at their line, and
    /// that is the trend of their births. A block is counted from this age on.
    Kept { marks: u32, life: u32, trend: f64, age: u32 },
    /// Blocks come faster than they go.
    Backlog { life: u32 },
    /// No fewer blocks than before are made anew, and larger or more of them each time: so often.
    Remade { rises: u32, trend: f64 },
}

/// Growth of one cohort in one grain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Growth {
    pub(super) rule: Rule,
    /// The first mark at which there was more.
    pub(super) onset: u32,
    /// What was there before that.
    pub(super) base: Point,
    /// What it comes to at the last mark.
    pub(super) now: Point,
    /// Mean marks between rises.
    pub(super) gap: f64,
    pub(super) rate: Rate,
    /// The last mark whose blocks it counts.
    pub(super) until: u32,
    /// It does not grow any more, but what it left is still there.
    pub(super) stalled: bool,
}

impl Growth {
    /// Whether it looks like another part of the same leak: it began with it, and rises about as often.
    pub(super) fn resembles(&self, lead: &Growth, mark: u32) -> bool {
        let tolerance = (mark.saturating_sub(lead.onset.max(self.onset)) / 4).max(6);
        self.is_anew() == lead.is_anew()
            && self.onset.abs_diff(lead.onset) <= tolerance
            && self.gap <= 4.0 * lead.gap + 2.0
            && lead.gap <= 4.0 * self.gap + 2.0
    }

    /// See [`Finding::sparse`](super::finding::Finding::sparse).
    pub(super) fn is_sparse(&self) -> bool {
        matches!(self.rule, Rule::Kept { marks, .. } if marks < BIRTHS)
    }

    /// It is of blocks that are made anew: nothing of it is old.
    pub(super) fn is_anew(&self) -> bool {
        matches!(self.rule, Rule::Remade { .. })
    }

    /// The same where no more blocks come, as long as most of those that came are still there.
    pub(super) fn left(&self, t: &Track) -> Option<Growth> {
        let from = self.onset.saturating_sub(GRACE);
        let now = match self.rule {
            Rule::Kept { .. } => t.births.between(from, self.until),
            Rule::Backlog { .. } => t.at_mark.less(self.base),
            Rule::Remade { .. } => self.now,
        };
        let is_there = now.blocks > 0 && now.bytes >= self.now.bytes / 10 * 9;
        let rate = Rate { current: 0.0, gain: 0.0, ..self.rate };
        is_there.then_some(Growth { stalled: true, now, rate, ..*self })
    }
}

/// A part of a case: a cohort that grows, or grew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) id: CohortId,
    pub(super) growth: Growth,
}

/// What is known of a cohort from mark to mark, in one grain.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) kept: Watch,
    queue: Backlog,
    remade: bool,
}

impl Line {
    /// Judges it as of `mark`. `weights` is what the job holds but for its optimizer's, how many blocks when its first step ended and most
    /// bytes since: a line of an optimizer makes two states for each at the most, in as many steps as it takes until all
    /// are trained (layers that are thawed one by one). What a step's hook keeps, or an optimizer of the user's own, is larger by then.
    pub(super) fn look(&mut self, c: &Cohort, grain: Grain, mark: u32, weights: Point) {
        let t = track(c, grain);
        let of_optimizer = c.in_optimizer * 2 > c.allocs;
        let since = t.births.list().first().map_or(mark, |b| b.first);
        let is_early = mark.saturating_sub(since) < STATE_MARKS;
        let states = if is_early { MOST_STATES } else { STATES };
        let is_state = t.at_mark.bytes <= weights.bytes.saturating_mul(STATE_BYTES)
            && t.at_mark.blocks <= weights.blocks.saturating_mul(states);
        if of_optimizer && is_state && self.kept.named.is_none() {
            return;
        }
        // What each thread makes once is no growth. What was established before falls by its own rules.
        if self.kept.named.is_none()
            && self.queue.named.is_none()
            && !self.remade
            && c.workers.each_has_its_own()
        {
            return;
        }
        // What reference cycles keep is freed when Python's collector comes by: until it has grown beyond what that freed at
        // once before, it waits for the next time.
        let waits = t.is_cycle_garbage() && t.at_mark.bytes / 2 <= t.collected_at_once.bytes;
        if !waits || self.kept.named.is_some() {
            // What an optimizer frees at the line are temporaries: its states are not the few of these that are kept.
            self.kept.look(t, if of_optimizer { 0 } else { c.frees }, mark);
        }
        if !of_optimizer {
            self.queue.look(t, self.kept.fell == Some(Fell::Ended), mark);
            self.remade = is_remade(t, mark, self.remade);
        }
    }

    /// Its growth as of the mark that was judged last, if there is any.
    pub(super) fn growth(&self, t: &Track, mark: u32, rises: &mut Vec<(u32, Point)>) -> Option<Growth> {
        if let Some(named) = &self.kept.named {
            survivors::rises(t, &named.kept, rises);
            return Some(kept(named, t, mark, rises));
        }
        if let Some(queue) = &self.queue.named {
            floors(t, queue.onset, rises);
            return Some(backlog(queue, t, mark, rises));
        }
        self.remade.then(|| remade(&t.remade, mark, rises))
    }
}

fn kept(n: &Named, t: &Track, mark: u32, rises: &[(u32, Point)]) -> Growth {
    let k = &n.kept;
    // Survivors are told late by as much as they must have lived for.
    let seen = mark.saturating_sub(n.age.saturating_sub(GRACE));
    Growth {
        rule: Rule::Kept { marks: k.marks, life: n.life.max(t.longest_life), trend: k.trend, age: n.age },
        onset: k.first.saturating_add(GRACE),
        base: Point::default(),
        now: k.total,
        gap: k.pace(),
        rate: without_deaths(rate(rises, seen), n, t, mark),
        until: k.last,
        stalled: false,
    }
}

/// A rate of what comes; where blocks have died of old age since, it is now no more than what there is more of.
fn without_deaths(rate: Rate, n: &Named, t: &Track, mark: u32) -> Rate {
    let window = (mark.saturating_sub(n.kept.first) / 4).max(LATELY).max(2 * t.series.width());
    if t.died_old.blocks <= n.died() || mark <= 2 * window {
        return rate;
    }
    let floor = |to: u32| t.series.floor(to.saturating_sub(window / 2), to.saturating_add(1)).bytes;
    let more = floor(mark).saturating_sub(floor(mark - window)) as f64 / f64::from(window);
    if more < rate.current { Rate { current: more, gain: 0.0, ..rate } } else { rate }
}

fn backlog(q: &Queue, t: &Track, mark: u32, rises: &[(u32, Point)]) -> Growth {
    let (first, last) = (rises.first().map_or(mark, |r| r.0), rises.last().map_or(mark, |r| r.0));
    Growth {
        rule: Rule::Backlog { life: t.longest_life },
        onset: q.onset,
        base: q.base,
        now: t.at_mark.less(q.base),
        gap: f64::from(last - first) / f64::from((rises.len() as u32).saturating_sub(1).max(1)),
        rate: rate(rises, mark),
        until: mark,
        stalled: false,
    }
}

/// Rises that a block must have had that is made anew and larger each time: so many, and so many times as many as any had before there
/// was less, by how often there was less: one or two answers tell little of how long the next one gets.
pub(super) const LARGER: u32 = 10;
const LONGER: [f64; 4] = [1.0, 4.0, 3.0, 2.0];
const LONGER_AT_LAST: f64 = 1.5;
/// Laplace's statistic of rises that die away: below the first nothing is said, below the other what was said falls.
const FADES: (f64, f64) = (-2.0, -3.0);
/// Longest gaps between rises without one after which none is expected any more, and marks that are always waited for.
const PATIENCE: (f64, u32) = (2.5, 8);

/// How often a row of the last few must have been made anew while it grew.
const RENEWED: u32 = 3;

/// Blocks that a line may have allocated once, beside those that it makes anew: cuBLAS has two workspaces.
const ONCE: u64 = 3;

/// Whether what a line holds is made anew, larger and larger. `before`: it was, as of the mark before.
fn is_remade(t: &Track, mark: u32, before: bool) -> bool {
    let r = &t.remade;
    let least = if before { FADES.1 } else { FADES.0 };
    let waits = ((PATIENCE.0 * f64::from(r.gap)) as u32).max(PATIENCE.1);
    // All of it is new at each rise, or was made anew several times since the first, in as many blocks for a while (the last few of what gets
    // larger): of many buffers of which some are replaced by larger ones most are old, and of a queue that fills none gets larger. What the line
    // allocated once, before the first of these rises, is left out, such as workspaces of cuBLAS.
    let old = t.births.list().iter().take_while(|b| b.last <= r.first.0);
    let once = total(old.clone().map(|b| b.total.blocks));
    let is_row = r.last.0.saturating_sub(r.more) >= LARGER;
    let row = if is_row { (r.rises / RENEWED).min(r.last.0) } else { 0 };
    let is_anew = t.births.list().get(old.count()).is_none_or(|b| b.first >= r.last.0 - row)
        && once <= r.last.1.blocks.saturating_sub(once).max(ONCE);
    let longer = LONGER.get(r.ends as usize).copied().unwrap_or(LONGER_AT_LAST);
    is_anew
        && r.rises >= LARGER.max((longer * f64::from(r.longest)) as u32 + 1)
        && mark.saturating_sub(r.last.0) <= waits
        && r.trend(mark) > least
}

fn remade(r: &Remade, mark: u32, rises: &mut Vec<(u32, Point)>) -> Growth {
    rises.clear();
    rises.extend(r.samples().map(|(mark, bytes)| (mark, Point { blocks: 0, bytes })));
    let span = f64::from(r.last.0 - r.first.0);
    let is_full = r.more <= r.first.0 + (r.last.0 - r.first.0) / 2;
    Growth {
        rule: Rule::Remade { rises: r.rises, trend: r.trend(mark) },
        onset: r.first.0 + 1 + GRACE,
        // A row that was filled in the first half of the time has had no more blocks since.
        base: Point { blocks: if is_full { r.last.1.blocks } else { r.first.1.blocks }, ..r.first.1 },
        now: Point { blocks: r.last.1.blocks, bytes: r.last.1.bytes.saturating_sub(r.first.1.bytes) },
        gap: span / f64::from(r.rises.max(1)),
        rate: rate(rises, mark),
        until: mark,
        stalled: false,
    }
}

fn rate(rises: &[(u32, Point)], mark: u32) -> Rate {
    if rises.is_empty() { Rate::default() } else { Rate::of(rises, mark, later_half(rises, mark)) }
}

pub(super) fn track(c: &Cohort, grain: Grain) -> &Track {
    match grain {
        Grain::Step => &c.steps,
        Grain::Microbatch => &c.microbatches,
    }
}

/// A track's values, oldest first: buckets, and one by one the last marks.
fn points(t: &Track) -> impl DoubleEndedIterator<Item = (u32, Point)> + '_ {
    let last = t.series.last_mark();
    let exact = if t.series.width() == 1 { u32::MAX } else { last.saturating_sub(RECENT as u32 - 1) };
    let before = t.series.buckets().take_while(move |b| b.0 < exact.saturating_add(t.series.width() - 1));
    let before: Vec<(u32, Point)> = before.map(|(mark, p)| (mark.min(exact.saturating_sub(1)), p)).collect();
    before.into_iter().chain((exact..=last).map(move |m| (m, t.series.back(last - m))))
}

/// The rises of a series' floors since a mark: a *floor* is the least value from its mark on, what never came back.
fn floors(t: &Track, onset: u32, rises: &mut Vec<(u32, Point)>) {
    rises.clear();
    let mut floor: Option<Point> = None;
    for (mark, p) in points(t).rev().take_while(|(mark, _)| *mark >= onset) {
        let f = floor.map_or(p, |f| Point { blocks: f.blocks.min(p.blocks), bytes: f.bytes.min(p.bytes) });
        // Going back in time: where the floor changes, the mark after it was a rise.
        match rises.last_mut() {
            Some(last) if last.1 == f => last.0 = mark,
            _ => rises.push((mark, f)),
        }
        floor = Some(f);
    }
    rises.reverse();
}

/// Growth after the middle of the time since the first rise, as a part of that before it.
fn later_half(rises: &[(u32, Point)], mark: u32) -> f64 {
    let (Some(first), Some(last)) = (rises.first(), rises.last()) else { return 1.0 };
    let middle = first.0 + mark.saturating_sub(first.0) / 2;
    let half = rises.get(rises.partition_point(|r| r.0 <= middle).saturating_sub(1)).unwrap_or(first);
    let (early, late) =
        (half.1.bytes.saturating_sub(first.1.bytes), last.1.bytes.saturating_sub(half.1.bytes));
    match early {
        0 => f64::from(u8::from(late > 0)),
        early => late as f64 / early as f64,
    }
}
