//! Gradients that live on when the optimizer has used them: through the next forward, where it is the largest, they are of no use.

use super::super::look::{Candidate, Kind, KindInfo, Look};
use super::super::timeline::{Cut, Life, Mark, NEVER, Time, Timeline};
use crate::event::total;

pub(super) static KIND: Kind = Kind {
    info: KindInfo {
        name: "late_zero_grad",
        seen: "of gradients ({blocks}) stay allocated after optimizer.step() and during the next forward pass",
        change: "call optimizer.zero_grad(set_to_none=True) right after optimizer.step()",
    },
    find,
};

fn find(look: &Look<'_>) -> Vec<Candidate> {
    let timeline = look.timeline;
    let last = timeline.last_of_all().unwrap_or(0);
    let weights = weights(look, last);
    // A gradient is as large as its weight; what else a backward leaves (cuBLAS' workspace) is none.
    let is_gradient = |l: &&Life| {
        l.born_in.backward && !l.born_in.optimizer && !l.lost && weights.iter().any(|w| w.size == l.size)
    };
    let all: Vec<&Life> = timeline.lives.iter().filter(is_gradient).collect();
    // Where gradients stay for good, those of most weights do.
    let sum = |lives: &mut dyn Iterator<Item = &&Life>| total(lives.map(|l| l.rounded));
    let stay = sum(&mut all.iter().filter(|l| l.died > last)) * 2 > sum(&mut weights.iter());
    let cuts: Vec<(&Life, Vec<Cut>)> =
        all.into_iter().filter(|l| stay || l.died <= last).map(|l| (l, unused(timeline, l))).collect();
    let used = cuts.iter().filter(|(_, cuts)| !cuts.is_empty());
    let Some(site) = used.max_by_key(|(l, _)| l.rounded).map(|(l, _)| l.site) else { return Vec::new() };
    vec![Candidate { site, cuts: cuts.into_iter().flat_map(|(_, cuts)| cuts).collect() }]
}

/// Blocks that were there before the first backward and stayed to the end, but for what a module's call made.
fn weights<'a>(look: &Look<'a>, last: Time) -> Vec<&'a Life> {
    let timeline = look.timeline;
    let first = timeline.next(Mark::Backward, 0).unwrap_or(NEVER);
    let stayed = timeline.lives.iter().filter(|l| l.born < first && l.died > last);
    stayed.filter(|l| !look.leads_through(l.stack, |name, _| name.ends_with("_call_impl"))).collect()
}

/// From each optimizer's end to the next backward, or to the gradient's own end.
fn unused(timeline: &Timeline, life: &Life) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut after = life.born;
    while let Some(end) = timeline.next(Mark::OptimizerEnd, after).filter(|t| *t < life.died) {
        after = end;
        let backward = timeline.next(Mark::Backward, end).unwrap_or(NEVER);
        // One that stays for a further backward may be needed there by another optimizer.
        let is_needed = backward < life.died && timeline.optimizers.len() != 1;
        if !is_needed && !timeline.between(Mark::Optimizer, end, backward.min(life.died)) {
            cuts.push(Cut { from: end, to: life.died.min(backward), bytes: life.rounded });
        }
    }
    cuts
}
