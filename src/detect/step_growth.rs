//! Blocks of the stream that trains (or of a private pool) that stay live, more of them with every mark.

use super::detector::Member;
use super::explain::{lines, number, oldest, plural, size};
use super::finding::Finding;
use crate::replay::Replay;

/// Why, in one sentence.
pub(super) fn explain(_replay: &Replay, f: &Finding, members: &[Member], mark: u32) -> String {
    let since = members.iter().map(|m| m.growth.base).fold((0, 0), |a, p| (a.0 + p.blocks, a.1 + p.bytes));
    let then = if since.0 == 0 { "none".into() } else { format!("{} ({})", number(since.0), size(since.1)) };
    let rises = match f.established {
        true => ", and at its lowest each part of the run leaves more than the part before",
        false => "",
    };
    format!(
        "{} ({}) of {} have outlived two {}s and are still live, the oldest for {}; there were {then} when this began{rises}",
        plural(f.blocks_now, "block"),
        size(f.bytes_now),
        lines(f.sites.len()),
        f.grain.noun(),
        oldest(f, mark),
    )
}
