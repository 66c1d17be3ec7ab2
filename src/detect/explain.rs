//! Words that judgements share.

use super::amounts::{plural, size, thousands};
use super::check::Grown;
use super::finding::Finding;

/// "this line", "3 lines".
pub(super) fn lines(n: usize) -> String {
    if n == 1 { "this line".to_string() } else { plural(n as u64, "line") }
}

/// Why, of blocks that are made anew, and larger or more of them each time.
pub(super) fn remade(g: &Grown<'_>, rises: u32) -> String {
    let f = g.finding;
    let (blocks, verb) = (plural(f.blocks_now, "block"), if f.blocks_now == 1 { "is" } else { "are" });
    let lead = g.members.first().and_then(|m| g.replay.cohorts().get(m.id.0 as usize));
    let beside = match lead.is_some_and(|c| c.beside) {
        true => {
            "; the new block is allocated before the old one is freed, so both are in memory for a moment"
        }
        false => "",
    };
    format!(
        "{blocks} from {} {verb} freed and allocated again, {} each time: in {} since {} {}, this added {}{beside}",
        lines(f.sites.len()),
        if g.members.iter().any(|m| m.growth.now.blocks > m.growth.base.blocks) {
            "more of them"
        } else {
            "larger"
        },
        plural(rises.into(), f.grain.noun()),
        f.grain.noun(),
        thousands(f.first_step.into()),
        size(f.bytes_now)
    )
}

/// For how many marks the oldest block of a finding has been live.
pub(super) fn oldest(f: &Finding, mark: u32) -> String {
    plural(u64::from(mark.saturating_sub(f.first_step)), f.grain.noun())
}
