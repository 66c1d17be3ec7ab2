//! The ranks of a job beside each other: which differ from the rest and in what, which have no recording, which still run, which were
//! started again. Text, page and JSON read this.

use super::model::{Ended, Facts, Process, Report, used};
use super::processes::is_last_start;
use super::text::clause;
use super::units::{plural, size, thousands};
use crate::detect::{Apart, Group, Measure, RankSeries, apart, groups};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Ranks with a line of their own in the text.
const TOLD: usize = 8;
/// Ranks named in the first line.
const NAMED: usize = 4;
/// Ranges of missing ranks that are told.
const RANGES: usize = 8;
/// A larger job than anybody has: what a recording says may be anything.
const MOST: u64 = 1 << 20;

/// What is to be said of the ranks of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    /// Ranks of the job, as a launcher told them; 0 where none did.
    world: u64,
    /// Those that have no recording here.
    missing: Vec<u64>,
    /// Recordings that still grow.
    running: usize,
    /// Ranks that were started again, and the highest number of their starts beyond the first.
    restarted: usize,
    restarts: u64,
    /// Those that differ, of the last start of each; `rank` is an index of the report's processes.
    pub(super) apart: Vec<Apart>,
    /// The groups that they form by what they hold: their ranks' numbers, and the processes.
    groups: Vec<(Vec<u64>, Group)>,
}

impl Ranks {
    /// Of a job of several processes.
    pub(super) fn of(r: &Report<'_>) -> Option<Ranks> {
        (r.processes.len() > 1).then(|| Ranks::known(r))
    }

    /// What is known of the ranks, also where one process is all there is.
    pub(super) fn known(r: &Report<'_>) -> Ranks {
        let facts = || r.processes.iter().map(|p| Facts::of(p.replay));
        let world = facts().filter_map(|f| f.number("world_size")).filter(|n| *n <= MOST).max().unwrap_or(0);
        let seen: BTreeSet<u64> = facts().filter_map(Facts::rank).collect();
        let missing = (0..world).filter(|rank| !seen.contains(rank)).collect();
        let last = r.last_starts();
        let restarts = last.values().copied().max().map_or(0, |start| start - 1);
        // A rank's own helpers, which use no GPU, are no ranks.
        let compared: Vec<usize> = (0..r.processes.len())
            .filter(|i| !r.processes[*i].is_idle() && is_last_start(&last, &r.processes[*i]))
            .collect();
        let series: Vec<RankSeries<'_>> = compared.iter().map(|i| series(&r.processes[*i])).collect();
        let mut apart = apart(&series);
        let out: Vec<usize> = apart.iter().filter(|a| a.measure != Measure::Steps).map(|a| a.rank).collect();
        let mut groups = groups(&series, &out);
        apart.iter_mut().for_each(|a| a.rank = compared[a.rank]);
        groups.iter_mut().flat_map(|g| &mut g.ranks).for_each(|rank| *rank = compared[*rank]);
        let number = |process: &usize| Facts::of(r.processes[*process].replay).rank();
        let numbered = |g: Group| {
            let mut numbers = g.ranks.iter().map(number).collect::<Option<Vec<u64>>>()?;
            numbers.sort_unstable();
            Some((numbers, g))
        };
        // Processes without a number are no ranks.
        let groups = groups.into_iter().map(numbered).collect::<Option<Vec<_>>>().unwrap_or_default();
        Ranks {
            world,
            missing,
            running: r.processes.iter().filter(|p| p.ended == Ended::Running).count(),
            restarted: last.values().filter(|n| **n > 1).count(),
            restarts,
            apart,
            groups,
        }
    }

    /// As JSON has it.
    pub(super) fn value(&self, r: &Report<'_>) -> Value {
        let one = |a: &Apart| {
            let f = Facts::of(r.processes[a.rank].replay);
            json!({
                "process": a.rank, "rank": f.rank(), "host": f.text("host"), "measure": a.measure.name(),
                "value": a.value, "others_low": a.others.0, "others_high": a.others.1, "since_step": a.since,
            })
        };
        json!({
            "world_size": (self.world > 0).then_some(self.world),
            "missing": self.missing,
            "running": self.running,
            "restarts": self.restarts,
            "differ": self.apart.iter().map(one).collect::<Vec<_>>(),
            "groups": self.groups.iter().map(|(ranks, g)| json!({
                "ranks": ranks, "processes": g.ranks, "allocated_low": g.held.0, "allocated_high": g.held.1,
            })).collect::<Vec<_>>(),
        })
    }

    /// For the first line: who differs.
    pub(super) fn summary(&self, r: &Report<'_>) -> Option<String> {
        let mut named: Vec<String> = Vec::new();
        let all: BTreeSet<usize> = self.apart.iter().map(|a| a.rank).collect();
        for a in &self.apart {
            let name = r.name(&r.processes[a.rank]);
            if !named.contains(&name) && named.len() < NAMED {
                named.push(name);
            }
        }
        let verb = if all.len() == 1 { "differs" } else { "differ" };
        match all.len().saturating_sub(named.len()) {
            0 => {}
            n => named.push(format!("{} more", thousands(n as u64))),
        }
        let (last, first) = named.split_last()?;
        let who = if first.is_empty() { last.clone() } else { format!("{} and {last}", first.join(", ")) };
        let is_rank = |p: &Process<'_>| Facts::of(p.replay).number("rank").is_some();
        let others = if r.processes.iter().any(is_rank) { "ranks" } else { "processes" };
        Some(format!("{}.", clause(&format!("{who} {verb} from the other {others}"))))
    }

    /// One sentence each: what differs, what is missing, what was started again, what still runs.
    pub(super) fn sentences(&self, r: &Report<'_>) -> Vec<String> {
        let mut all: Vec<String> = self.apart.iter().take(TOLD).map(|a| sentence(r, a)).collect();
        if let Some(more) = self.apart.len().checked_sub(TOLD).filter(|n| *n > 0) {
            all.push(format!(
                "{} like these; --format json shows all",
                plural(more as u64, "more difference")
            ));
        }
        all.extend(self.grouped());
        if !self.missing.is_empty() {
            let seen = self.world - self.missing.len() as u64;
            all.push(format!(
                "{} of {} ranks have a recording here; there is none for rank {}",
                thousands(seen),
                thousands(self.world),
                ranges(&self.missing)
            ));
        }
        if self.restarted > 0 {
            let verb = if self.restarted == 1 { "was" } else { "were" };
            let ranks = plural(self.restarted as u64, "rank");
            all.push(format!("{ranks} {verb} restarted; the last start of each is compared"));
        }
        if self.running > 0 && self.running < r.processes.len() {
            let verb = if self.running == 1 { "is" } else { "are" };
            all.push(format!("{} {verb} still growing", plural(self.running as u64, "recording")));
        }
        all
    }

    /// `ranks form 2 groups: ranks 0 to 3 hold 20 GiB at the end of a step, ranks 4 to 7 12 GiB (the largest 1.7 times the smallest)`.
    fn grouped(&self) -> Option<String> {
        let one = |(i, (ranks, g)): (usize, &(Vec<u64>, Group))| {
            let held = if size(g.held.0) == size(g.held.1) {
                size(g.held.1)
            } else {
                format!("{} to {}", size(g.held.0), size(g.held.1))
            };
            let (verb, when) = if i == 0 { ("hold ", " at the end of a step") } else { ("", "") };
            format!("ranks {} {verb}{held}{when}", ranges(ranks))
        };
        let told: Vec<String> = self.groups.iter().enumerate().take(TOLD).map(one).collect();
        let more = match self.groups.len().saturating_sub(TOLD) {
            0 => String::new(),
            n => format!(" and {} more", thousands(n as u64)),
        };
        let most = self.groups.iter().map(|(_, g)| g.held.1).max()?;
        let least = self.groups.iter().map(|(_, g)| g.held.1).min()?;
        let times = most as f64 / least.max(1) as f64;
        let times =
            if least > 0 { format!(" (the largest {times:.1} times the smallest)") } else { String::new() };
        let groups = plural(self.groups.len() as u64, "group");
        Some(format!("ranks form {groups}: {}{more}{times}", told.join(", ")))
    }
}

fn series<'p>(p: &'p Process<'_>) -> RankSeries<'p> {
    let main = used(p).max_by_key(|d| d.peak_allocated.bytes);
    RankSeries { steps: p.replay.steps(), rows: main.map_or(&[][..], |d| &d.rows) }
}

/// `rank 300 on node-037: since step 5, 2.7 GiB reserved at the end of a step; the others have 86 to 130 MiB`.
fn sentence(r: &Report<'_>, a: &Apart) -> String {
    let p = &r.processes[a.rank];
    let host = Facts::of(p.replay).text("host").map(|h| format!(" on {h}")).unwrap_or_default();
    let range = |words: fn(u64) -> String| match a.others {
        (low, high) if words(low) == words(high) => words(low),
        (low, high) => format!("{} to {}", words(low), words(high)),
    };
    let what = match a.measure {
        Measure::Held => {
            format!("{} allocated at the end of a step; the others have {}", size(a.value), range(size))
        }
        Measure::Reserved => {
            format!("{} reserved at the end of a step; the others have {}", size(a.value), range(size))
        }
        Measure::Peak => {
            format!("a peak of {} within a step; the others have {}", size(a.value), range(size))
        }
        Measure::Steps => {
            format!(
                "{}; the others have {}",
                plural(a.value, p.replay.step_source().noun()),
                range(thousands)
            )
        }
    };
    let since = a.since.map(|s| format!("since step {}, ", thousands(s.into()))).unwrap_or_default();
    format!("{}{host}: {since}{what}", r.name(p))
}

/// `3, 8 to 15`.
fn ranges(numbers: &[u64]) -> String {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for n in numbers {
        match all.last_mut() {
            Some((_, last)) if *last + 1 == *n => *last = *n,
            _ => all.push((*n, *n)),
        }
    }
    let words = |(from, to): &(u64, u64)| match from == to {
        true => thousands(*from),
        false => format!("{} to {}", thousands(*from), thousands(*to)),
    };
    let shown: Vec<String> = all.iter().take(RANGES).map(words).collect();
    let more = if all.len() > RANGES { " and others; --format json shows all" } else { "" };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn missing_ranks_are_told_as_ranges() {
        assert_eq!(ranges(&[3, 8, 9, 10, 1023]), "3, 8 to 10, 1,023");
        let many: Vec<u64> = (0..40).map(|n| 2 * n).collect();
        assert_eq!(ranges(&many), "0, 2, 4, 6, 8, 10, 12, 14 and others; --format json shows all");
    }
}
