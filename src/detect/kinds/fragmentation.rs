//! Segments that can be neither given back nor joined, because small old blocks lie in them.

use crate::detect::amounts::{plural, size, thousands};
use crate::detect::check::{Check, Entry, When};
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{Note, Sites, worth};
use crate::event::total;
use crate::replay::{Device, GRACE, Held, Replay};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look { when: When::Due, all: |cx| cx.of_devices(|d| check(cx.replay, d)) },
};

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some("start the job with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
    ..KindInfo::named("fragmentation", "free memory split up by old blocks")
});

/// Steps whose peaks must all leave it unused.
const STEPS: usize = 8;

/// At most one note for a device.
fn check<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    let recent = d.rows.get(d.rows.len().checked_sub(STEPS)?..)?;
    let unused =
        recent.iter().map(|r| r.reserved.0.saturating_sub(r.peak.0).saturating_sub(r.pending.0)).min()?;
    let least = worth(d).max(d.reserved.0 / 5);
    if unused < least {
        return None;
    }
    let mut blocks: Vec<&Held> = replay.blocks(d.id).collect();
    blocks.sort_unstable_by_key(|h| h.block.addr);
    let mut blocks = blocks.into_iter().peekable();
    let (mut sites, mut held, mut segments, mut oldest) = (Sites::default(), 0u64, 0u64, u32::MAX);
    for s in replay.segments(d.id) {
        let end = s.addr.end(s.size);
        let inside: Vec<&Held> = std::iter::from_fn(|| blocks.next_if(|h| h.block.addr < end)).collect();
        let used = total(inside.iter().map(|h| h.block.rounded.0));
        let old = inside.iter().all(|h| h.step + GRACE <= replay.steps());
        // Expandable segments give back what is between blocks.
        let Some(largest) = inside.iter().max_by_key(|h| h.block.rounded) else { continue };
        if s.expandable || s.pool.is_private() || !old || used > s.size.0 / 4 {
            continue;
        }
        sites.add(largest.site, s.size.0 - used, inside.len() as u64);
        (held, segments) = (held.saturating_add(used), segments + 1);
        oldest = inside.iter().map(|h| h.step).fold(oldest, u32::min);
    }
    let pinned = sites.bytes();
    (pinned >= least).then(|| Note {
        first_step: oldest,
        explain: format!(
            "{} ({}) in {} split up the {} of free memory in between: a large request cannot use it, and PyTorch cannot give it back \
             to the driver",
            plural(sites.blocks(), "old block"),
            size(held),
            plural(segments, "segment"),
            size(pinned),
        ) + &format!(
            "; in total, PyTorch reserved {} more than it needed at any moment of the last {} steps, in these segments and in others",
            size(unused),
            thousands(STEPS as u64)
        ),
        sites,
        ..Note::new(KIND, d)
    })
}
