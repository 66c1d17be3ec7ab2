//! Pools that nobody sees into: of captured graphs, whose replays make no event, and of frameworks that divide their memory
//! among arrays themselves.

use crate::detect::amounts::{plural, size};
use crate::detect::check::{Check, Entry, When};
use crate::detect::framework_pool::pool_of;
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{Note, Sites, worth};
use crate::event::total;
use crate::replay::{Device, Replay};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look { when: When::Due, all: |cx| cx.of_devices(|d| check(cx.replay, d)) },
};

const KIND: Kind = Kind::new(&KindInfo::named("opaque-pool", "memory pools whose blocks cannot be seen"));

/// At most one note for a device.
fn check<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    framework(replay, d).or_else(|| graphs(replay, d))
}

fn framework<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    let (of, setting) = pool_of(replay)?;
    if d.runtime.0 < worth(d) {
        return None;
    }
    let mut sites = Sites::default();
    sites.add(crate::event::SiteId(0), d.runtime.0, 0);
    Some(Note {
        sites,
        explain: format!(
            "{of} allocated {} in one piece and divides it among its arrays; {setting} makes it call CUDA for each array",
            size(d.runtime.0),
        ),
        ..Note::new(KIND, d)
    })
}

/// The pools of captured graphs.
fn graphs<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    let graphs = || replay.segments(d.id).filter(|s| s.pool.0 != 0);
    let bytes = total(graphs().map(|s| s.size.0));
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
        sites,
        explain: format!(
            "{} is in {} of captured CUDA graphs; replaying a graph makes no allocator events, so leaks in it cannot be seen",
            size(bytes),
            plural(pools.len() as u64, "pool"),
        ),
        ..Note::new(KIND, d)
    })
}
