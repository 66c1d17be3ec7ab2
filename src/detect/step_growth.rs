//! Blocks of the stream that trains (or of a private pool) that stay live, more of them with every mark.

use super::detector::Member;
use super::explain::{lines, number, oldest, plural, size};
use super::finding::Finding;
use crate::replay::Replay;

/// Why, in one sentence.
pub(super) fn explain(_replay: &Replay, f: &Finding, members: &[Member], mark: u32) -> String {
    let since = members.iter().map(|m| m.growth.base).fold((0, 0), |a, p| (a.0 + p.blocks, a.1 + p.bytes));
    format!(
        "blocks of {} that outlive two {}s rose from {} ({}) to {} ({}), the oldest has been live for {}, \
         and what is left at the lowest point of each part of the run is more than in the part before",
        lines(f.sites.len()),
        f.grain.name(),
        number(since.0),
        size(since.1),
        plural(f.blocks_now, "block"),
        size(f.bytes_now),
        oldest(f, mark),
    )
}
