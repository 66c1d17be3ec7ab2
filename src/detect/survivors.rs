//! Whether a line *keeps*: a judgement without the card and without a threshold of bytes.
//!
//! A block is a survivor where it has outlived by half every life that ever ended at its line. A line keeps where
//! survivors come from at least four different marks and their births are not dying away (Laplace's trend test): what
//! fills a cache comes ever more rarely, what leaks does not. Once that is established it falls only where those
//! survivors die, or no more of them come.

use super::births::{BESIDES, BIRTHS, Kept, Limits, Sum, are_few, beginning, comes_in_bursts, count, ticks};
use crate::replay::{Birth, GRACE, Point, Track, settles};

/// Mean marks between births from which on they are rare: one more is asked for, unless they come like clockwork. So it is where a
/// line sifts.
const RARE: f64 = 4.0;
/// Different marks that are asked for where growth had stopped before: more than it had then, and so many at most.
const AGAIN: u32 = 5;
/// By how much a survivor has outlived what ended before it.
const OUTLIVED: f64 = 1.5;
/// What that is multiplied by where survivors died after all, and its most.
const DOUBT: (f64, f64) = (2.0, 12.0);
/// The same where nothing had died before them.
const UNTRIED: f64 = 1.4;
/// The same at least, by at how many marks something had ended at the line: from one or two ends little is known of the next.
const FEW: [f64; 3] = [2.5, 2.0, 1.7];
/// When births die away: Laplace's statistic is below the first, and the last quarter of the time has had less than the second of the mean rate.
/// What comes more slowly than at first, but goes on, does not. Where they do nothing is established.
const FADES: Limits = (-2.0, 1.0 / 3.0);
/// The same for what was established, which falls then.
const FADED: Limits = (-3.0, 1.0 / 4.0);
/// Probability (as its logarithm) with which births that come no more often than before look like a new beginning.
const BEGINS: f64 = -6.9;
/// Mean gaps between births without one after which none is expected any more: one silence of twenty thousand is longer
/// where births come at random.
const SILENCE: f64 = 10.0;
/// Longest gaps for the same where births are as regular as clockwork.
const CLOCK: f64 = 1.8;
/// Births that come by chance are so evenly spaced only up to a few.
const EVEN: u32 = 6;
/// Mean marks between births from which on that is no chance of any.
const FAR: f64 = 10.0;
/// Marks since the first birth that are asked for where a line sifts ([`Nature::Sifts`]): five batches in a row that are kept may be
/// the first ones, and those alone.
const SIFTED: u32 = 12;
/// Marks that are always waited for; and where blocks of the line die of old age as well, but in a ring.
const PATIENCE: u32 = 8;
const PATIENCE_IN_USE: u32 = 25;
/// Growth that has gone on for a short time is waited for 1.5 times that time, but at most for so many marks; and for so many where it slows down.
const BRIEF: u32 = 12;
const BRIEF_EBB: u32 = 16;
/// Marks that are waited for beyond the longest time without a birth.
const SLACK: u32 = 3;
/// And a part of the time for which births came.
const PART: u32 = 4;
/// A part of the time since survivors were established that is a short while.
const LATELY: u32 = 8;
/// No time is waited for longer, in marks: a few such times still add up.
const LONGEST: u32 = u32::MAX / 8;

/// What becomes of the blocks of a line that are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// There are hardly any.
    Keeps,
    /// Some die of old age.
    InUse,
    /// They die young, and are as many as are kept, or more: a few batches of all are kept, at random.
    Sifts,
}

impl Nature {
    /// `frees`: of the line, so far.
    fn of(t: &Track, frees: u64) -> Nature {
        match t.died_old.blocks {
            0 if frees >= t.at_mark.blocks => Nature::Sifts,
            0 => Nature::Keeps,
            _ => Nature::InUse,
        }
    }
}

/// Marks after which, without more of it, it is over. A part of the time for which it went on, such as an evaluation, is no such silence.
fn patience(k: &Kept, line: Nature) -> u32 {
    // Of what comes at random, a few births look regular by chance, unless they lie far apart.
    let is_many = k.marks >= EVEN || k.pace() >= FAR;
    let is_even = is_many && f64::from(k.gap) <= k.pace() + 0.5;
    let marks = match (k.is_regular() || k.is_sparse()) && (line != Nature::Sifts || is_even) {
        true => CLOCK * f64::from(k.gap) + f64::from(SLACK),
        false => SILENCE * k.pace(),
    };
    let least = if line == Nature::InUse { PATIENCE_IN_USE } else { PATIENCE };
    whole(marks).max((k.last - k.first) / PART).max(pauses(k, BRIEF)).max(least)
}

/// Marks without a birth that say nothing yet, even where births come ever more rarely: a silence hardly longer than an earlier one, or no longer
/// than 1.5 times the time for which births came, of which at most `brief` marks count.
fn pauses(k: &Kept, brief: u32) -> u32 {
    let span = k.last - k.first;
    PATIENCE.max(k.gap.saturating_add(SLACK)).max(span.saturating_add(span / 2).min(brief)).min(LONGEST)
}

/// Survivors at a line that were established.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Named {
    /// As of the last mark.
    pub(super) kept: Kept,
    /// A block is one of them at this age.
    pub(super) age: u32,
    /// The longest life that had ended at the line when they were established.
    pub(super) life: u32,
    /// Most blocks of them that there ever were, and at which mark first.
    record: (u64, u32),
    /// The mark at which they were established, and what had died of old age at their line by then.
    since: (u32, u64),
    /// The mark of the last of their births then.
    by: u32,
}

impl Named {
    /// Blocks of their line that had died of old age when they were established.
    pub(super) fn died(&self) -> u64 {
        self.since.1
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fell {
    /// The survivors died.
    Died,
    /// None of those that established it is left: their line's blocks live long, and end.
    Ended,
    /// No more of them come.
    Stopped,
}

/// What is known of one line from mark to mark.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    pub(super) named: Option<Named>,
    /// How it ended, of what was named.
    pub(super) fell: Option<Fell>,
    /// How much longer than what ended a block must live: [`OUTLIVED`] times this.
    doubt: f64,
    /// The mark at which growth had stopped.
    stopped: u32,
    /// The births of what had stopped: the first and the last, and what had died of old age at the line when it was established.
    before: Option<(u32, u32, u64)>,
    /// The longest silence that it came back from.
    silence: u32,
    /// Most different marks that births had come from when growth stopped.
    reached: u32,
    /// Most blocks of whatever age at a mark, and at which one first.
    most: (u64, u32),
    /// The mark that was judged last.
    at: u32,
}

impl Watch {
    /// Judges a track as of `mark`, once. `frees`: blocks of the line that were freed, of whatever age.
    pub(super) fn look(&mut self, t: &Track, frees: u64, mark: u32) {
        if self.at == mark {
            return;
        }
        self.at = mark;
        if t.at_mark.blocks > self.most.0 {
            self.most = (t.at_mark.blocks, mark);
        }
        let line = Nature::of(t, frees);
        match self.named {
            Some(n) if !n.kept.is_sparse() => self.go_on(n, t, line, mark),
            // What is only a candidate is looked for anew.
            _ => {
                self.named = None;
                self.establish(t, line, mark);
            }
        }
    }

    fn establish(&mut self, t: &Track, line: Nature, mark: u32) {
        let age = self.age(t);
        let least =
            if self.stopped > 0 { self.reached.saturating_add(1).clamp(BIRTHS, AGAIN) } else { BIRTHS };
        let news = survivors(t, mark, age, self.stopped).filter(|k| k.marks >= least);
        let until = mark.saturating_sub(age);
        let again = self.again(t, until);
        let list = t.births.list();
        let since = || list.iter().filter(|b| b.first > self.stopped).map(|b| b.marks).sum::<u32>();
        let goes_on =
            |k: &Kept| comes_in_bursts(list, k) || since() >= AGAIN && !k.dies_away(t, until, FADED);
        let again = again.filter(goes_on);
        let is_new = self.stopped == 0 && self.doubt <= 1.0 && t.died_old.blocks == 0 && t.remembered == 0;
        let few = || ticks(list, until).filter(|_| is_new);
        let Some(kept) = again.or(news).or_else(few) else { return };
        let (sifts, is_regular) = (line == Nature::Sifts, kept.is_regular());
        let is_few = kept.marks == BIRTHS && (sifts || kept.pace() > RARE);
        let is_early = sifts && mark.saturating_sub(kept.first) < SIFTED;
        if !is_regular && (is_few || is_early) || replaces(t) {
            return;
        }
        if mark.saturating_sub(kept.last) > age + patience(&kept, line).max(self.pause(t, &kept)) {
            return;
        }
        if self.stopped > 0 {
            let back = list.iter().find(|b| b.first > self.stopped).map_or(kept.first, |b| b.first);
            self.silence = self.silence.max(back.saturating_sub(self.stopped)).min(LONGEST);
        }
        // Where it is judged late, as the state of an optimizer is, the last of them came long ago.
        let came = kept.last.saturating_add(age).min(mark);
        let (record, life) = ((kept.total.blocks, came), t.longest_life);
        self.named = Some(Named { kept, age, life, record, since: (mark, t.died_old.blocks), by: kept.last });
        self.fell = None;
    }

    /// What had stopped goes on, of which nothing has died since. A silence that is no longer than it came back from tells nothing of a trend.
    fn again(&self, t: &Track, until: u32) -> Option<Kept> {
        let (first, last, died) = self.before?;
        let kept = self.lasting(t, first, until)?;
        (t.died_old.blocks <= died && kept.last > last).then_some(kept)
    }

    /// Births from mark `from` to mark `until`; within a silence such as it has come back from, up to the last of them.
    fn lasting(&self, t: &Track, from: u32, until: u32) -> Option<Kept> {
        let kept = count(t.births.list(), from, until, BIRTHS)?;
        let is_silent = kept.last < until && until - kept.last <= self.pause(t, &kept);
        if is_silent { count(t.births.list(), from, kept.last, BIRTHS) } else { Some(kept) }
    }

    /// A silence that it may come back from: twice as long as it was given up for before, or, of bursts, half as long again as any between them.
    fn pause(&self, t: &Track, kept: &Kept) -> u32 {
        let between = if comes_in_bursts(t.births.list(), kept) { kept.gap + kept.gap / 2 } else { 0 };
        between.max(2 * self.silence)
    }

    fn go_on(&mut self, mut n: Named, t: &Track, line: Nature, mark: u32) {
        let died = t.died_old.blocks > n.since.1;
        let from = if died { beginning(t.births.list(), n.kept.first) } else { n.kept.first };
        let until = mark.saturating_sub(n.age);
        // Others that come and go as those did that established it are no survivors.
        let is_left = |b: &Birth| b.last >= n.kept.first && b.first <= n.by;
        if died && !t.births.list().iter().any(is_left) && !self.rises_still(&n, mark) {
            return self.fall(Fell::Ended, n, mark);
        }
        let Some(kept) = self.again(t, until).or_else(|| self.lasting(t, from, until)) else {
            return self.fall(Fell::Died, n, mark);
        };
        if kept.total.blocks.saturating_mul(2) < n.record.0 {
            return self.fall(Fell::Died, n, mark);
        }
        if kept.total.blocks > n.record.0 {
            n.record = (kept.total.blocks, mark);
        }
        // Of what has just grown no silence is waited for.
        let pause = if n.record.1 < mark { self.pause(t, &kept) } else { 0 };
        let patience = patience(&kept, line).max(pause);
        let is_over = mark.saturating_sub(n.record.1) > patience
            // Where the number of survivors has just risen, other blocks of the line may have become fewer.
            || mark.saturating_sub(n.record.1) > kept.gap && is_replaced(t, &n, mark, patience)
            || is_full(t, &n, mark);
        let is_quiet = || mark.saturating_sub(n.record.1) > pauses(&kept, BRIEF_EBB).max(pause);
        if is_over || is_quiet() && kept.dies_away(t, until, FADED) {
            return self.fall(Fell::Stopped, Named { kept, ..n }, mark);
        }
        self.named = Some(Named { kept, ..n });
    }

    fn fall(&mut self, how: Fell, n: Named, mark: u32) {
        (self.named, self.fell) = (None, Some(how));
        match how {
            // They had outlived all that had ended, and ended all the same: more is asked of those that come.
            Fell::Died | Fell::Ended => {
                self.before = None;
                let more = if n.life >= GRACE { DOUBT.0 } else { UNTRIED };
                self.doubt = (self.doubt.max(1.0) * more).min(DOUBT.1);
            }
            Fell::Stopped => {
                self.stopped = mark.max(n.kept.last);
                self.before = Some((n.kept.first, n.kept.last, n.since.1));
                self.reached = self.reached.max(n.kept.marks);
            }
        }
    }

    /// There were more than ever a short while ago.
    fn rises_still(&self, n: &Named, mark: u32) -> bool {
        mark.saturating_sub(self.most.1) <= PATIENCE.max(mark.saturating_sub(n.since.0) / LATELY)
    }

    /// The age of a survivor, by the lives that have ended at the line.
    fn age(&self, t: &Track) -> u32 {
        let few = FEW.get(t.ends.saturating_sub(1) as usize).copied().unwrap_or(1.0);
        outlives(t, if self.doubt > 1.0 { self.doubt.max(few) } else { 1.0 })
    }
}

/// The age at which a block has outlived what ended at its line, so many times more than by half.
fn outlives(t: &Track, doubt: f64) -> u32 {
    let outlived = f64::from(t.longest_life) * OUTLIVED * doubt;
    GRACE.max(if t.longest_life > 0 { whole(outlived) + 1 } else { 0 })
}

/// Marks, in whole ones: at most [`LONGEST`].
fn whole(marks: f64) -> u32 {
    (marks as u32).min(LONGEST)
}

/// Blocks of [`BESIDES`] different marks have come since there were as many as now: each has taken the place of another, as a
/// buffer that is replaced by a larger one.
fn replaces(t: &Track) -> bool {
    let later = t.births.list().iter().rev().take_while(|b| b.first > t.settled.0);
    t.died_old.blocks > 0 && later.map(|b| b.marks).sum::<u32>() >= BESIDES
}

/// What dies at the line since its survivors were established makes room for what comes: for as long as is waited for more of them
/// there were not more at any moment.
fn is_replaced(t: &Track, n: &Named, mark: u32, patience: u32) -> bool {
    // Random eviction leaves ever fewer survivors, further and further apart: half of the time since they were established is waited for at most.
    let patience = patience.min(PATIENCE_IN_USE.max(mark.saturating_sub(n.since.0) / 2));
    let wait = patience.max(t.series.width().saturating_mul(4));
    if t.died_old.blocks <= n.since.1 || mark.saturating_sub(n.since.0) < wait {
        return false;
    }
    let floor = |from: u32, to: u32| t.series.floor(from, to).blocks;
    floor(mark.saturating_sub(2), mark.saturating_add(1)) <= floor(mark - wait, mark.saturating_sub(2))
}

/// A buffer or cache that has become full: what has died since its survivors were established had lived for so long that hardly any of them has
/// outlived it, and for as long as is waited there were not more. In a ring none is older than that; it is clear once half of it was replaced.
/// Entries of a cache that are used again and again stay for ever: it is full once more blocks have come than there was room for, so that others
/// must have been freed for them.
fn is_full(t: &Track, n: &Named, mark: u32) -> bool {
    let (since, most) = t.settled;
    let ours = || t.births.list().iter().filter(|b| b.first >= n.kept.first);
    let replaced = ours().filter(|b| b.first > since).map(|b| b.marks).sum::<u32>();
    let is_ring = ours().next().is_none_or(|b| b.first.saturating_add(t.longest_life) >= mark)
        && replaced >= BIRTHS.max(t.longest_life / 2);
    let wait =
        if is_ring { PATIENCE } else { PATIENCE_IN_USE.max(since.saturating_sub(n.kept.first) / PART) };
    // More have come than would fit beside all the others, and for longer than twice the longest gap between survivors.
    let came = || ours().filter(|b| b.first > since).map(|b| b.total.blocks).sum::<u64>();
    let is_long = mark.saturating_sub(since) > n.kept.gap.saturating_mul(2);
    let made_room = || is_long && came() >= u64::from(BIRTHS) + settles(most);
    let all_died = || count(t.births.list(), 0, mark.saturating_sub(outlives(t, 1.0)), BIRTHS).is_none();
    t.died_old.blocks > n.since.1 && mark.saturating_sub(since) >= wait && (all_died() || made_room())
}

/// Survivors of a track that establish something, if there are: blocks of this age, from different marks, that are not dying
/// away. What was born up to mark `after` is no news, nor is what a checkpoint had: its line's earlier deaths are not known.
fn survivors(t: &Track, mark: u32, age: u32, after: u32) -> Option<Kept> {
    let list = t.births.list();
    if list.len() < BIRTHS as usize {
        return None;
    }
    let until = mark.saturating_sub(age);
    let end = list.partition_point(|b| b.last <= until && b.last > 0);
    let list = list.get(..end)?;
    let witnessed = |list: &[Birth]| {
        let new = list.iter().filter(|b| b.first > t.remembered).map(|b| b.marks).sum::<u32>();
        t.remembered == 0 || new >= BIRTHS
    };
    if !witnessed(list) {
        return None;
    }
    // From which birth on it goes on like this: the earliest one. One or two before a beginning are no part of it: a workspace of cuBLAS that
    // the line made long before.
    let (mut found, mut sum) = (None::<(u32, u32)>, Sum::default());
    for (i, b) in list.iter().enumerate().rev().take_while(|(_, b)| b.first > after) {
        sum.add(b);
        if sum.marks < BIRTHS {
            continue;
        }
        let span = f64::from(until.saturating_sub(b.first)) + 1.0;
        let begins = i.checked_sub(1).and_then(|i| list.get(i)).is_none_or(|before| {
            let gap = f64::from(b.first - before.last);
            f64::from(sum.marks) * (span / (span + gap)).ln() < BEGINS
        });
        let is_more = found.is_none_or(|(_, marks)| sum.marks > marks.saturating_add(BESIDES));
        if begins && is_more && (sum.trend(b, until) > FADES.0 || !are_few(list, b.first, until, FADES)) {
            found = Some((b.first, sum.marks));
        }
    }
    count(list, found?.0, until, BIRTHS)
}

/// How what is kept has grown: at each mark at which more of it was old, so much.
pub(super) fn rises(t: &Track, k: &Kept, out: &mut Vec<(u32, Point)>) {
    out.clear();
    let mut total = Point::default();
    for b in t.births.list().iter().filter(|b| b.first >= k.first && b.last <= k.last) {
        total = Point {
            blocks: total.blocks.saturating_add(b.total.blocks),
            bytes: total.bytes.saturating_add(b.total.bytes),
        };
        out.push((b.last.saturating_add(GRACE), total));
    }
}
