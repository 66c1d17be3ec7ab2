//! Blocks of a side stream that stay live after the stream was left, more of them with every mark.
//!
//! Conditions (facts measured on TRL #5700): the stream is not the one that trains; its scope was left; the
//! blocks have outlived two further marks; their number and bytes keep rising. That the stream is idle is
//! said where it is proved.

use crate::detect::amounts::{plural, thousands};
use crate::detect::check::{Check, Entry, Grown};
use crate::detect::explain::{lines, oldest, remade};
use crate::detect::growth::Rule;
use crate::detect::kind::{Kind, KindInfo};
use crate::replay::{Cohort, Quiet, Replay};

pub(super) const DETECTOR: Entry = Entry { kind: KIND, check: Check::Growth { claims, explain } };

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some("find where these tensors are stored, and drop them when the step that uses them is over"),
    remedy_without_torch: Some(
        "free each array when it is no longer needed, limit how many are kept, or keep numbers instead of arrays: float(x)",
    ),
    is_leak: true,
    has_holder: true,
    ..KindInfo::named("live-after-stream-exit", "memory allocated on a side stream grows every {grain}")
});

/// Whether growth of this cohort is of this kind.
fn claims(replay: &Replay, c: &Cohort) -> bool {
    let s = c.key.stream;
    !c.key.private_pool
        && replay.is_side(s)
        && replay.stream(s).is_some_and(|s| s.quiet_old != Quiet::Disproven)
}

/// Why, in one sentence.
fn explain(g: &Grown<'_>) -> String {
    if let Some(Rule::Remade { rises, .. }) = g.members.first().map(|m| m.growth.rule) {
        return remade(g, rises);
    }
    let (replay, f) = (g.replay, g.finding);
    let (mut allocs, mut live) = (0, 0);
    for m in g.members {
        let c = &replay.cohorts()[m.id.0 as usize];
        allocs += c.at_mark.0;
        live += c.at_mark.0.saturating_sub(c.at_mark.1);
    }
    let stream = f.stream.and_then(|s| replay.stream(s.id));
    let destroyed = match stream.is_some_and(|s| s.destroyed.is_some()) {
        true => "their stream was destroyed; ",
        false => "",
    };
    let idle = match stream.map(|s| s.quiet_old) {
        Some(Quiet::Proven) => "the GPU has finished with all of them",
        _ => "whether the side stream has finished with them is not known",
    };
    format!(
        "{} of {} allocated by {} were still live at the end of {} {}, the oldest for {}; {destroyed}{idle}",
        thousands(live),
        plural(allocs, "block"),
        lines(g),
        f.grain.noun(),
        thousands(g.mark.into()),
        oldest(f, g.mark),
    )
}
