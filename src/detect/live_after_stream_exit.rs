//! Blocks of a side stream that stay live after the stream was left, more of them with every mark.
//!
//! Conditions (facts measured on TRL #5700): the stream is not the one that trains; its scope was left; the
//! blocks have outlived two further marks; their number and bytes keep rising. That the stream is idle is
//! said where it is proved.

use super::case::Member;
use super::explain::{lines, number, oldest, plural};
use super::finding::Finding;
use crate::replay::{Cohort, Quiet, Replay};

/// Whether growth of this cohort is of this kind.
pub(super) fn applies(replay: &Replay, c: &Cohort) -> bool {
    let s = c.key.stream;
    !c.key.private_pool
        && replay.is_side(s)
        && replay.stream(s).is_some_and(|s| s.quiet_old != Quiet::Disproven)
}

/// Why, in one sentence.
pub(super) fn explain(replay: &Replay, f: &Finding, members: &[Member], mark: u32) -> String {
    let (mut allocs, mut live) = (0, 0);
    for m in members {
        let c = &replay.cohorts()[m.id.0 as usize];
        allocs += c.at_mark.0;
        live += c.at_mark.0.saturating_sub(c.at_mark.1);
    }
    let stream = f.stream.and_then(|s| replay.stream(s.id));
    let left = match stream {
        Some(s) if s.destroyed.is_some() => "the stream was destroyed".to_string(),
        Some(s) if s.left > 0 => format!("the stream was left {}", plural(s.left, "time")),
        _ => "no switch of streams was recorded".to_string(),
    };
    let idle = match stream.map(|s| s.quiet_old) {
        Some(Quiet::Proven) => "it is known to be done with them",
        _ => "that it is idle is not provable, since nothing was seen to wait for it",
    };
    format!(
        "{} of {} allocated by {} are still live, the oldest for {}, {} more every {}; {left}, and {idle}",
        number(live),
        plural(allocs, "block"),
        lines(f.sites.len()),
        oldest(f, mark),
        number(f.blocks_per_step.round() as u64),
        f.grain.noun(),
    )
}
