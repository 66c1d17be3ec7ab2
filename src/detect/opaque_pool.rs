//! Pools that nobody sees into: of captured graphs, whose replays make no event, and of frameworks that divide their memory
//! among arrays themselves.

use super::explain::{plural, size};
use super::finding::Kind;
use super::note::{Note, Sites, worth};
use crate::replay::{Device, Replay};

/// At most one note for a device.
pub(super) fn check<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    framework(replay, d).or_else(|| graphs(replay, d))
}

/// A framework's pool, as the recording's facts tell: whose, and what to set for it to have none.
fn told(replay: &Replay) -> Option<(&str, &str)> {
    let pool = replay.meta().get("pool")?;
    Some((pool.get("of")?.as_str()?, pool.get("setting")?.as_str()?))
}

/// Why such a pool keeps a recording from being judged, as a clause.
pub(super) fn blinds(replay: &Replay) -> Option<String> {
    if let Some((of, setting)) = told(replay) {
        return Some(format!(
            "{of} divides its memory among its arrays itself, which no call shows; with {setting} set it would show"
        ));
    }
    // CuPy tells of the pool's blocks.
    if replay.meta().get("inside_pool").and_then(|told| told.as_bool()) == Some(true) {
        return None;
    }
    let is_cupy = replay.meta().get("framework").and_then(|f| f.as_str()) == Some("CuPy");
    let keeps = |d: &Device| {
        let [came, went] = d.calls_at_mark();
        went.saturating_mul(2) < came
    };
    (is_cupy && replay.devices().any(keeps)).then(|| {
        "CuPy keeps what the program frees in a pool, inside which nothing is seen; \
         `import strandline; strandline.start()` behind `import cupy` would show it, and so would cupy.cuda.set_allocator(None)"
            .to_owned()
    })
}

fn framework<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    let (of, setting) = told(replay)?;
    if d.runtime.0 < worth(d) {
        return None;
    }
    let mut sites = Sites::default();
    sites.add(crate::event::SiteId(0), d.runtime.0, 0);
    Some(Note {
        kind: Kind::OpaquePool,
        device: d,
        stream: None,
        first_step: 1,
        sites,
        rate: 0.0,
        explain: format!(
            "{} were taken at once by {of}, which divides them among its arrays itself; {setting} makes it ask CUDA for each",
            size(d.runtime.0),
        ),
    })
}

/// The pools of captured graphs.
fn graphs<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
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
