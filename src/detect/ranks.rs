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
