//! Results that an evaluation collects on the GPU until it has ended.

use super::super::look::{Candidate, Kind, KindInfo, Look, by_site};
use super::super::timeline::{Cut, Life, Mark, NEVER, Timeline};
use crate::event::{SiteId, StackId};
use rustc_hash::FxHashMap;

pub(super) static KIND: Kind = Kind {
    info: KindInfo {
        name: "collected_in_evaluation",
        seen: "of results ({blocks}), computed under torch.no_grad(), are kept on the GPU",
        change: "move each result to the CPU as soon as it is computed (.cpu()), or keep only the numbers that you compute from it",
    },
    find,
};

/// So many results of one line are no accident.
const FEWEST: usize = 4;

fn find(look: &Look<'_>) -> Vec<Candidate> {
    let timeline = look.timeline;
    // The results of a stack and a size between two backwards: an evaluation, when training has begun.
    let mut rows: FxHashMap<(StackId, u64, u32), Vec<&Life>> = FxHashMap::default();
    for life in timeline.lives.iter().filter(|l| l.is_forward() && l.born_in.no_grad && l.stack.0 != 0) {
        let Some(since) = timeline.last(Mark::Backward, life.born) else { continue };
        rows.entry((life.stack, life.size, since)).or_default().push(life);
    }
    let mut cuts: Vec<(SiteId, Cut)> = rows.values().flat_map(|row| collected(timeline, row)).collect();
    cuts.sort_by_key(|(site, cut)| (*site, cut.from));
    by_site(cuts)
}

/// Each from when the next one is there: until then its variable has it. They are what stays until the last one has come, and goes with
/// nothing new in between, before training goes on.
fn collected(timeline: &Timeline, row: &[&Life]) -> Vec<(SiteId, Cut)> {
    let Some(last) = row.last() else { return Vec::new() };
    // Of layers that a loop calls from one line the others' outputs are in the row, too.
    let kept: Vec<&Life> = row.iter().copied().filter(|l| l.died > last.born).collect();
    let (first, end) = kept.iter().fold((NEVER, 0), |(first, end), l| (first.min(l.died), end.max(l.died)));
    let training = timeline.next(Mark::Backward, last.born).unwrap_or(NEVER);
    let goes_on = || timeline.lives.iter().any(|l| first < l.born && l.born < end && l.is_forward());
    if kept.len() < FEWEST || kept.iter().any(|l| l.lost) || end > training || (end != NEVER && goes_on()) {
        return Vec::new();
    }
    kept.windows(2).map(|w| (w[0].site, w[0].from(w[1].born + 1))).collect()
}
