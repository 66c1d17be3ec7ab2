//! What a line made in the step before, and which lives until the same line has made the next one: `logits = model(x)` frees the old
//! logits only when the new ones are there.

use super::super::look::{Candidate, Kind, KindInfo, Look, by_site};
use super::super::timeline::{Cut, Life, Mark, NEVER, Timeline};
use crate::event::{SiteId, StackId};
use rustc_hash::FxHashMap;

pub(super) static KIND: Kind = Kind {
    info: KindInfo {
        name: "kept_from_step_before",
        seen: "({blocks}) from the previous step stays allocated until this line has computed its new value",
        change: "if the next step does not read this variable, delete it (and what is computed from it) at the end of each step: del NAME",
    },
    find,
};

fn find(look: &Look<'_>) -> Vec<Candidate> {
    let timeline = look.timeline;
    // The blocks of a stack and a size, in the order in which they came.
    let mut rows: FxHashMap<(StackId, u64), Vec<&Life>> = FxHashMap::default();
    for life in timeline.lives.iter().filter(|l| l.is_forward() && !l.born_in.no_grad && l.stack.0 != 0) {
        rows.entry((life.stack, life.size)).or_default().push(life);
    }
    let mut cuts: Vec<(SiteId, Cut)> = Vec::new();
    for row in rows.values() {
        cuts.extend(row.windows(2).filter_map(|w| Some((w[0].site, until_next(timeline, w[0], w[1])?))));
    }
    cuts.sort_by_key(|(site, cut)| (*site, cut.from));
    by_site(cuts)
}

/// From the end of its step until it was freed, soon after `next` had come.
fn until_next(timeline: &Timeline, life: &Life, next: &Life) -> Option<Cut> {
    let end = timeline.next(Mark::OptimizerEnd, life.born)?;
    let backward = timeline.next(Mark::Backward, next.born).unwrap_or(NEVER);
    // What lives for two steps was made for the next one: a batch that is fetched in advance.
    let for_one_step = timeline.next(Mark::OptimizerEnd, end).unwrap_or(NEVER) > life.died;
    // It was there before its own step's backward, and is freed by the next step's forward.
    let in_step = timeline.between(Mark::Backward, life.born, end) && end < next.born;
    let is_rebound = !life.lost && next.born < life.died && life.died < backward && next.died > life.died;
    (for_one_step && in_step && is_rebound).then(|| life.from(end))
}
