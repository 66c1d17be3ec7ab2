//! What an optimizer that works on all parameters at once makes for the time of its step: the fused one makes none of it.

use super::super::look::{Candidate, Kind, KindInfo, Look};
use super::super::timeline::{Life, Mark};
use crate::event::StackId;
use rustc_hash::FxHashMap;

pub(super) static KIND: Kind = Kind {
    info: KindInfo {
        name: "optimizer_temporaries",
        seen: "({blocks}) is temporary memory of the optimizer (foreach=True)",
        change: "pass fused=True to the optimizer",
    },
    find,
};

/// Functions of `torch/optim` whose optimizers can be fused.
const CAN_BE_FUSED: [&str; 4] =
    ["_multi_tensor_adam", "_multi_tensor_adamw", "_multi_tensor_sgd", "_multi_tensor_adagrad"];

fn find(look: &Look<'_>) -> Vec<Candidate> {
    let timeline = look.timeline;
    let mut known: FxHashMap<StackId, bool> = FxHashMap::default();
    let mut is_foreach = |stack| {
        *known.entry(stack).or_insert_with(|| {
            look.leads_through(stack, |name, file| {
                CAN_BE_FUSED.contains(&name) && file.contains("torch/optim/")
            })
        })
    };
    let is_temporary = |l: &Life| {
        let end = timeline.next(Mark::OptimizerEnd, l.born);
        l.born_in.optimizer && !l.lost && end.is_some_and(|end| l.died <= end)
    };
    let all: Vec<&Life> = timeline.lives.iter().filter(|l| is_temporary(l) && is_foreach(l.stack)).collect();
    let Some(largest) = all.iter().max_by_key(|l| l.rounded) else { return Vec::new() };
    vec![Candidate { site: largest.site, cuts: all.iter().map(|l| l.from(l.born)).collect() }]
}
