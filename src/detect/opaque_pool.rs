//! Pools of captured graphs: what their replays do inside is not seen.

use super::explain::{plural, size};
use super::finding::Kind;
use super::note::{Note, Sites, worth};
use crate::replay::{Device, Replay};

/// At most one note for a device.
pub(super) fn check<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    let graphs = || replay.segments(d.id).filter(|s| s.pool.0 != 0);
    let bytes: u64 = graphs().map(|s| s.size.0).fold(0, u64::saturating_add);
    if bytes < worth(d) {
        return None;
    }
    let mut pools: Vec<_> = graphs().map(|s| s.pool).collect();
    pools.sort_unstable();
    pools.dedup();
    let mut sites = Sites::default();
    for h in replay.blocks(d.id).filter(|h| h.block.pool.0 != 0) {
        sites.add(h.site, h.block.rounded.0, 1);
    }
    // What no block of now accounts for belongs to the lines that captured: they are not known any more.
    sites.add(crate::event::SiteId(0), bytes.saturating_sub(sites.bytes()), 0);
    Some(Note {
        kind: Kind::OpaquePool,
        device: d,
        stream: None,
        first_step: 1,
        sites,
        rate: 0.0,
        explain: format!(
            "{} lie in {} of captured graphs; what a replay does there makes no event, so nothing is said about it",
            size(bytes),
            plural(pools.len() as u64, "pool"),
        ),
    })
}
