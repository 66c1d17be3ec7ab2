//! Which ranks of a job differ from the rest. Every rank of a data-parallel job does the same, so one that stands apart is worth a look, leak
//! or not: a difference is no verdict, and changes none.
//!
//! No distribution is assumed: stages of a pipeline make groups. A rank stands apart where there is a gap between it and the range of the
//! others, larger than that range itself; and no more than one rank in sixteen may.

use crate::event::{StepRow, named};

/// Fewer ranks have no rest to differ from.
const FEWEST: usize = 8;
/// At each end of the range one rank in so many may stand apart.
const ONE_IN: usize = 16;
/// A gap is at least so much of what the rank in the middle has, and so many bytes.
const GAP: f64 = 0.1;
const LEAST: u64 = 16 << 20;
/// A gap of steps.
const STEPS: u64 = 2;

named! {
    /// What ranks are compared in.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Measure {
        /// Bytes allocated at the end of a step.
        Held = "allocated_bytes",
        /// Bytes reserved at the end of a step.
        Reserved = "reserved_bytes",
        /// Most bytes allocated within a step.
        Peak = "peak_bytes",
        /// Steps that have ended.
        Steps = "steps",
    }
}

impl Measure {
    fn of(self, row: &StepRow) -> u64 {
        match self {
            Measure::Held => row.allocated.0,
            Measure::Reserved => row.reserved.0,
            Measure::Peak => row.peak.0,
            Measure::Steps => row.step.into(),
        }
    }
}

/// A rank that is compared.
#[derive(Clone, Copy, Debug)]
pub struct RankSeries<'a> {
    /// Steps that have ended.
    pub steps: u32,
    /// The rows of the device that it uses most, in order.
    pub rows: &'a [StepRow],
}

/// A rank that stands apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Apart {
    /// Which, as an index of what [`apart`] was given.
    pub rank: usize,
    /// In what.
    pub measure: Measure,
    /// What it has: at its last step; of a peak, the highest.
    pub value: u64,
    /// What the others have, then: the least and the most.
    pub others: (u64, u64),
    /// From which step on; `None` for steps.
    pub since: Option<u32>,
}

/// What is usual at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    low: u64,
    high: u64,
    gap: u64,
}

impl Usual {
    /// Of these values; `None` where there are too few.
    fn of(values: &mut [u64], least: u64) -> Option<Usual> {
        if values.len() < FEWEST {
            return None;
        }
        values.sort_unstable();
        let cut = (values.len() / ONE_IN).max(1);
        let middle = values[values.len() / 2];
        let gap = |low: u64, high: u64| (high - low).max((middle as f64 * GAP) as u64).max(least);
        // The range without those that may stand apart, then as far as there is no gap.
        let (mut from, mut to) = (cut, values.len() - 1 - cut);
        while from > 0 && values[from] - values[from - 1] <= gap(values[from], values[to]) {
            from -= 1;
        }
        while to + 1 < values.len() && values[to + 1] - values[to] <= gap(values[from], values[to]) {
            to += 1;
        }
        let (low, high) = (values[from], values[to]);
        Some(Usual { low, high, gap: gap(low, high) })
    }

    /// How far a value is from the range, where that is more than a gap.
    fn distance(self, value: u64) -> Option<u64> {
        let far = self.low.saturating_sub(value).max(value.saturating_sub(self.high));
        (far > self.gap).then_some(far)
    }
}

/// The ranks that stand apart, the farthest first; of one rank its steps, and of its bytes what says most.
pub fn apart(ranks: &[RankSeries<'_>]) -> Vec<Apart> {
    let mut found: Vec<(f64, Apart)> = Vec::new();
    let mut steps: Vec<u64> = ranks.iter().map(|r| r.steps.into()).collect();
    if let Some(usual) = Usual::of(&mut steps, STEPS) {
        for (rank, r) in ranks.iter().enumerate() {
            let value = u64::from(r.steps);
            if let Some(far) = usual.distance(value) {
                let others = (usual.low, usual.high);
                let of = far as f64 / usual.high.max(1) as f64;
                found.push((of, Apart { rank, measure: Measure::Steps, value, others, since: None }));
            }
        }
    }
    let all = [Measure::Held, Measure::Reserved, Measure::Peak].map(|m| by_bytes(ranks, m));
    let [held, reserved, peak] = &all;
    for rank in 0..ranks.len() {
        let of = |list: &[(u64, Apart)]| list.iter().find(|(_, a)| a.rank == rank).cloned();
        // A peak is reserved as well, and what is held is part of both.
        let (held, reserved, peak) = (of(held), of(reserved), of(peak));
        let beyond = |a: &Option<(u64, Apart)>| a.as_ref().map_or(0, |(far, _)| *far);
        let keeps = beyond(&reserved) > 2 * beyond(&peak);
        let Some((far, apart)) = held.or(if keeps { reserved.or(peak) } else { peak.or(reserved) }) else {
            continue;
        };
        found.push((far as f64 / apart.others.1.max(1) as f64, apart));
    }
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    found.into_iter().map(|(_, apart)| apart).collect()
}

/// Those that stand apart in this, and how far.
fn by_bytes(ranks: &[RankSeries<'_>], measure: Measure) -> Vec<(u64, Apart)> {
    // The steps of whoever has most rows are asked about; rows of a long run may stand for several steps.
    let Some(longest) = ranks.iter().map(|r| r.rows).max_by_key(|rows| rows.len()) else { return Vec::new() };
    let mut since: Vec<Option<(u32, u64, Usual)>> = vec![None; ranks.len()];
    let mut highest: Vec<u64> = vec![0; ranks.len()];
    let (mut values, mut at) = (Vec::new(), vec![0usize; ranks.len()]);
    for StepRow { step, .. } in longest {
        values.clear();
        let mut there = Vec::with_capacity(ranks.len());
        for (rank, r) in ranks.iter().enumerate() {
            while r.rows.get(at[rank]).is_some_and(|row| row.step < *step) {
                at[rank] += 1;
            }
            if let Some(row) = r.rows.get(at[rank]) {
                there.push((rank, measure.of(row)));
                values.push(measure.of(row));
            }
        }
        let Some(usual) = Usual::of(&mut values, LEAST) else { break };
        for (rank, value) in there {
            highest[rank] = highest[rank].max(value);
            since[rank] = match (usual.distance(value), since[rank]) {
                (Some(far), None) => Some((*step, far, usual)),
                (Some(far), Some((first, _, _))) => Some((first, far, usual)),
                // One step with a high peak is what a job runs out of memory by.
                (None, Some(before)) if measure == Measure::Peak => Some(before),
                (None, _) => None,
            };
        }
    }
    let found = since.into_iter().enumerate().filter_map(|(rank, since)| {
        let (first, far, usual) = since?;
        let last = ranks[rank].rows.last().map_or(0, |row| measure.of(row));
        let value = if measure == Measure::Peak { highest[rank] } else { last };
        let others = (usual.low, usual.high);
        Some((far, Apart { rank, measure, value, others, since: Some(first) }))
    });
    found.collect()
}

/// Ranks that hold the same, and not what those of other groups hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Which, as indexes of what [`groups`] was given, in order.
    pub ranks: Vec<usize>,
    /// Bytes allocated at the end of a step in the middle of all steps: the least and the most.
    pub held: (u64, u64),
}

/// The groups that ranks form by what they hold at the end of a step, as stages of a pipeline do, or ranks that have an expert of their own;
/// none where there are no clear ones. `out`: ranks that are in none. The group of the first rank comes first.
pub fn groups(ranks: &[RankSeries<'_>], out: &[usize]) -> Vec<Group> {
    let middle = |rows: &[StepRow]| {
        let mut held: Vec<u64> = rows.iter().map(|row| row.allocated.0).collect();
        held.sort_unstable();
        held.get(held.len() / 2).copied()
    };
    let there = ranks.iter().enumerate().filter(|(rank, _)| !out.contains(rank));
    let mut all: Vec<(u64, usize)> = there.filter_map(|(rank, r)| Some((middle(r.rows)?, rank))).collect();
    all.sort_unstable();
    let is_gap = |a: u64, b: u64| b - a > ((b as f64 * GAP) as u64).max(LEAST);
    let parts: Vec<&[(u64, usize)]> = all.chunk_by(|a, b| !is_gap(a.0, b.0)).collect();
    let ends = |part: &[(u64, usize)]| Some((part.first()?.0, part.last()?.0));
    let mut held = Vec::with_capacity(parts.len());
    for part in &parts {
        // One rank alone is no group, and neither are those whose groups would be none without it.
        match ends(part) {
            Some(ends) if part.len() > 1 => held.push(ends),
            _ => return Vec::new(),
        }
    }
    let gaps = held.windows(2).map(|w| w[1].0 - w[0].1);
    let Some(gap) = gaps.min() else { return Vec::new() };
    if held.iter().any(|(low, high)| (high - low) * 2 > gap) {
        return Vec::new();
    }
    let group = |(part, held): (&&[(u64, usize)], (u64, u64))| {
        let mut ranks: Vec<usize> = part.iter().map(|(_, rank)| *rank).collect();
        ranks.sort_unstable();
        Group { ranks, held }
    };
    let mut groups: Vec<Group> = parts.iter().zip(held).map(group).collect();
    groups.sort_by_key(|g| g.ranks.first().copied());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bytes, Nanos};

    const MIB: u64 = 1 << 20;

    /// What a rank has at a step: held, reserved, peak, in MiB.
    fn rows(steps: u32, of: impl Fn(u32) -> [u64; 3]) -> Vec<StepRow> {
        let row = |step| {
            let [held, reserved, peak] = of(step).map(|m| Bytes(m * MIB));
            let (pending, blocks) = (Bytes(0), 0);
            StepRow { step, time: Nanos(step.into()), allocated: held, reserved, pending, peak, blocks }
        };
        (1..=steps).map(row).collect()
    }

    fn told(all: &[Vec<StepRow>]) -> Vec<(usize, &'static str, Option<u32>)> {
        let series: Vec<RankSeries<'_>> =
            all.iter().map(|rows| RankSeries { steps: rows.len() as u32, rows }).collect();
        apart(&series).iter().map(|a| (a.rank, a.measure.name(), a.since)).collect()
    }

    /// Ranks that are alike but for noise, 1,000 to 1,030 MiB.
    fn alike(n: usize) -> Vec<Vec<StepRow>> {
        let of = |rank: usize| {
            move |step: u32| [1000, 1400, 1200].map(|m| m + (rank as u64 * 7 + u64::from(step) * 3) % 31)
        };
        (0..n).map(|rank| rows(20, of(rank))).collect()
    }

    #[test]
    fn ranks_that_are_alike_or_form_groups_do_not_differ() {
        assert_eq!(told(&alike(1024)), []);
        assert_eq!(told(&alike(2)), []);
        // Stages of a pipeline: eight groups, each with a size of its own.
        let staged: Vec<_> =
            (0..64).map(|r| rows(20, |_| [500 * (r / 8), 600 * (r / 8), 550 * (r / 8)])).collect();
        assert_eq!(told(&staged), []);
        // A few steps are no difference of those that are still at work.
        let mut all = alike(16);
        all[3].truncate(18);
        assert_eq!(told(&all), []);
    }

    #[test]
    fn ranks_that_hold_the_same_form_groups() {
        let of = |all: &[Vec<StepRow>], out: &[usize]| {
            let series: Vec<_> = all.iter().map(|rows| RankSeries { steps: 20, rows }).collect();
            let groups = groups(&series, out);
            groups.into_iter().map(|g| (g.ranks, g.held.0 / MIB, g.held.1 / MIB)).collect::<Vec<_>>()
        };
        let held = |held: &[u64]| -> Vec<_> { held.iter().map(|h| rows(20, |_| [*h, 0, 0])).collect() };
        // Two stages of a pipeline, whose ranks alternate.
        let stages = [20_000, 12_000, 20_010, 12_020, 20_005, 12_001, 20_000, 12_000];
        let two = [(vec![0, 2, 4, 6], 20_000, 20_010), (vec![1, 3, 5, 7], 12_000, 12_020)];
        assert_eq!(of(&held(&stages), &[]), two);
        // One that stands apart is in none, and one that nobody knows to stand apart leaves no clear groups.
        let more = [&stages[..], &[40_000]].concat();
        assert_eq!((of(&held(&more), &[8]), of(&held(&more), &[])), (two.to_vec(), Vec::new()));
        // All alike, a slope, gaps that are no larger than the groups are wide, a few MiB.
        assert_eq!(of(&alike(64), &[]), []);
        assert_eq!(of(&held(&[1000, 1050, 1100, 1150, 1200, 1250]), &[]), []);
        assert_eq!(of(&held(&[1000, 1090, 1180, 1400, 1500, 1600]), &[]), []);
        assert_eq!(of(&held(&[10, 10, 20, 20]), &[]), []);
        assert_eq!(of(&held(&[100, 200]), &[]), []);
        assert_eq!(of(&[rows(0, |_| [0; 3]), rows(0, |_| [0; 3])], &[]), []);
    }

    #[test]
    fn what_stands_apart_is_told_with_its_first_step() {
        let mut all = alike(128);
        all[5] = rows(20, |s| [1000 + 40 * u64::from(s), 1400 + 40 * u64::from(s), 1200 + 40 * u64::from(s)]);
        all[6] = rows(20, |s| [1000, 1400 + 100 * u64::from(s.saturating_sub(9)), 1200]);
        all[7] = rows(20, |s| [1000, 1700, if s == 4 { 1500 } else { 1200 }]);
        all[8].truncate(12);
        let found = told(&all);
        assert_eq!(found.len(), 4, "{found:?}");
        for one in [
            (5, "allocated_bytes", Some(4)),
            (6, "reserved_bytes", Some(11)),
            (7, "peak_bytes", Some(4)),
            (8, "steps", None),
        ] {
            assert!(found.contains(&one), "{one:?}: {found:?}");
        }
    }
}
