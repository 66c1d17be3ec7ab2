//! Words that judgements share.

use super::amounts::{numbered, plural, size, thousands};
use super::check::Grown;
use super::finding::Finding;
use crate::replay::SiteKind;

/// The lines that allocate what is told: "this line", "3 lines"; where a recording has no stacks, "unknown lines".
pub(super) fn lines(g: &Grown<'_>) -> String {
    match g.finding.sites.len() {
        _ if are_unknown(g) => UNKNOWN.to_owned(),
        1 if is_native(g) => "this function".to_owned(),
        1 => "this line".to_owned(),
        n => plural(n as u64, "line"),
    }
}

/// The same where they were told before: of several, "these".
pub(super) fn these_lines(g: &Grown<'_>) -> String {
    match g.finding.sites.len() {
        n if n > 1 && !are_unknown(g) => format!("these {}", numbered(n as u64, "line")),
        _ => lines(g),
    }
}

const UNKNOWN: &str = "unknown lines";

fn are_unknown(g: &Grown<'_>) -> bool {
    kind(g) == Some(SiteKind::Unknown)
}

fn is_native(g: &Grown<'_>) -> bool {
    kind(g) == Some(SiteKind::Native)
}

/// Of the line that has most of it.
fn kind(g: &Grown<'_>) -> Option<SiteKind> {
    Some(g.replay.site(g.finding.sites.first()?.site)?.kind)
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
        lines(g),
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
