//! Freed memory in the pools of streams that allocate no more: only they could use it again.

use crate::detect::amounts::{plural, size};
use crate::detect::certainty::{Bound, Certainty, Evidence};
use crate::detect::check::{Check, Context, Entry, When};
use crate::detect::finding::Finding;
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{LEAST, Note, Sites};
use crate::event::{SiteId, StreamId, total};
use crate::replay::{Device, Replay};
use rustc_hash::FxHashMap;

pub(super) const DETECTOR: Entry = Entry { kind: KIND, check: Check::Look { when: When::Due, all } };

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some(
        "create the stream once and reuse it: PyTorch reuses cached memory only on the stream on which it was allocated",
    ),
    ..KindInfo::named("stranded-cache", "memory cached for streams that are no longer used")
});

/// Steps in which a stream must not have allocated.
const IDLE: u32 = 8;

/// What one idle stream keeps in its default or its private pools.
struct Kept {
    stream: StreamId,
    free: u64,
    last: u32,
    site: SiteId,
    /// The stream was entered a single time.
    once: bool,
}

/// Streams that PyTorch makes for each device and priority; the next one asked for is the first again.
const POOLED: u32 = 32;
/// Different steps in which such streams were used that make it growth.
const STEPS: usize = 4;

/// What grows with each stream that is used once, and where that ends.
struct Growing {
    evidence: Vec<Evidence>,
    bound: Bound,
}

/// Streams that were used once and left, one after the other, until now.
fn growing(now: u32, kept: &[Kept], free: u64) -> Option<Growing> {
    let mut steps: Vec<u32> = kept.iter().filter(|k| k.once).map(|k| k.last).collect();
    steps.sort_unstable();
    steps.dedup();
    let (first, last, n) = (*steps.first()?, *steps.last()?, steps.len());
    if n < STEPS || n * 2 < kept.len() {
        return None;
    }
    let pace = f64::from(last - first) / (n - 1) as f64;
    // The next one would have been idle for long enough to be seen.
    if f64::from(now - last.min(now)) > f64::from(IDLE) + 2.0 * pace + 1.0 {
        return None;
    }
    let streams = kept.len() as u64;
    let at_step = f64::from(first) + f64::from(POOLED - 1) * pace * n as f64 / streams as f64;
    let bound = Bound {
        bytes: Some(free / streams * u64::from(POOLED)),
        at_step: Some(at_step as u32),
        source: format!("PyTorch's {POOLED} pooled streams per device and priority"),
    };
    Some(Growing {
        evidence: vec![Evidence::new("streams that were used once, each in a different step", n as f64)],
        bound,
    })
}

/// What grows is said to, with where that ends.
fn all(cx: &Context<'_>) -> Vec<Finding> {
    let of = |(note, growing): (Note<'_>, Option<Growing>)| {
        let note = cx.finding(note);
        match growing {
            Some(g) => {
                Finding { certainty: Certainty::Growing, evidence: g.evidence, bound: Some(g.bound), ..note }
            }
            None => note,
        }
    };
    cx.replay.devices().flat_map(|d| check(cx.replay, d)).map(of).collect()
}

/// One note per line that allocated the largest block of such streams.
fn check<'a>(replay: &Replay, d: &'a Device) -> Vec<(Note<'a>, Option<Growing>)> {
    let mut by_site: FxHashMap<u32, Vec<Kept>> = FxHashMap::default();
    for k in kept(replay, d) {
        by_site.entry(k.site.0).or_default().push(k);
    }
    let mut notes = Vec::new();
    for (site, kept) in by_site {
        let free = total(kept.iter().map(|k| k.free));
        if free < LEAST {
            continue;
        }
        let first = kept.iter().map(|k| k.last).min().unwrap_or(0);
        let last = kept.iter().map(|k| k.last).max().unwrap_or(0);
        let streams: Vec<StreamId> = kept.iter().map(|k| k.stream).collect();
        let mut sites = Sites::default();
        sites.add(SiteId(site), free, kept.len() as u64);
        let once = if kept.iter().all(|k| k.once) { "each used once, " } else { "" };
        let each = match kept.len() {
            1 => String::new(),
            n => format!(", {once}{} each", size(free / n as u64)),
        };
        let growing = growing(replay.steps(), &kept, free);
        // Streams that are used one after the other: so much more with each.
        let rate = growing.as_ref().map_or(0.0, |_| free as f64 / f64::from(last - first + 1));
        let note = Note {
            kind: KIND,
            device: d,
            stream: (streams.len() == 1).then(|| streams[0]),
            first_step: first,
            sites,
            rate,
            explain: format!(
                "{} that this line allocated on, unused since step {last}, {} {} of freed memory that no other stream can \
                 use{each}; PyTorch may return it to the driver when memory runs short",
                plural(streams.len() as u64, "stream"),
                if streams.len() == 1 { "keeps" } else { "keep" },
                size(free),
            ) + &growing.as_ref().map_or_else(String::new, |g| {
                format!(
                    "; the growth stops by itself when all of PyTorch's {POOLED} pooled streams have been used, at about {} in total",
                    size(g.bound.bytes.unwrap_or(0))
                )
            }),
        };
        notes.push((note, growing));
    }
    notes.sort_by_key(|(n, _)| std::cmp::Reverse(n.sites.bytes()));
    notes
}

/// What idle streams keep. Blocks are only looked at where idle streams have segments worth a note.
fn kept(replay: &Replay, d: &Device) -> Vec<Kept> {
    // Where none allocates any more, none lacks what others keep.
    let of_device = || replay.streams().iter().filter(|s| s.device == d.id);
    let now = of_device().flat_map(|s| s.pools).map(|p| p.last_step).max().unwrap_or(0);
    let mut all: FxHashMap<(u32, bool), Kept> = FxHashMap::default();
    let idle = |s: &crate::replay::Stream, private: bool| {
        let u = s.pools[usize::from(private)];
        s.device == d.id && u.allocs > 0 && now >= u.last_step.saturating_add(IDLE)
    };
    let streams: FxHashMap<u64, &crate::replay::Stream> = of_device().map(|s| (s.handle.0, s)).collect();
    for segment in replay.segments(d.id) {
        // What is free in a captured graph's pool is used by its replays.
        if segment.pool.0 != 0 {
            continue;
        }
        let private = segment.pool.is_private();
        let Some(s) = streams.get(&segment.stream.0).filter(|s| idle(s, private)) else { continue };
        let u = s.pools[usize::from(private)];
        let none = Kept { stream: s.id, free: 0, last: u.last_step, site: u.largest.1, once: s.entered == 1 };
        let k = all.entry((s.id.0, private)).or_insert(none);
        k.free = k.free.saturating_add(segment.size.0);
    }
    if total(all.values().map(|k| k.free)) < LEAST {
        return Vec::new();
    }
    for h in replay.blocks(d.id) {
        if let Some(k) = all.get_mut(&(h.stream.0, h.block.pool.is_private())) {
            k.free = k.free.saturating_sub(h.block.rounded.0);
        }
    }
    all.into_values().filter(|k| k.free > 0).collect()
}
