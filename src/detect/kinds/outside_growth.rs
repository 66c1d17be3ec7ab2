//! Device memory that other libraries take from CUDA themselves, and that grows with every step: no block of PyTorch's tells of it.

use crate::detect::amounts::{plural, size, thousands};
use crate::detect::call_lines::{Grown, grown};
use crate::detect::certainty::Evidence;
use crate::detect::check::{Check, Context, Entry, When};
use crate::detect::finding::{Finding, GrainName};
use crate::detect::forecast::headroom;
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::Note;
use crate::detect::steady;
use crate::event::Bytes;
use crate::replay::{Coverage, Device, Grain};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look {
        when: When::DueAndAtTheEnd,
        all: |cx| cx.replay.devices().filter_map(|d| check(cx, d)).collect(),
    },
};

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some(
        "find objects that are created again and again and never destroyed: process groups, library handles, contexts, buffers of a CUDA extension",
    ),
    ..KindInfo::named("outside-growth", "memory outside PyTorch grows every {grain}")
});

/// Libraries that are named.
const NAMED: usize = 3;

/// At most one finding for a device, of all lines that grow.
fn check(cx: &Context<'_>, d: &Device) -> Option<Finding> {
    let (replay, calls) = (cx.replay, cx.replay.calls());
    // Without blocks, what a library takes may be what PyTorch asked it for: a pluggable allocator.
    if replay.coverage() != Coverage::Blocks {
        return None;
    }
    let lines = calls.library_lines().filter(|c| c.key.device == d.id);
    let Grown { sites, first, marks, rate } = grown(lines, replay.steps())?;
    let noun = GrainName::of(replay, Grain::Step).noun();
    let holds = |(name, bytes): (String, Bytes)| format!("{name} {}", size(bytes.0));
    let libraries: Vec<String> = calls.on(d.id).into_iter().take(NAMED).map(holds).collect();
    let explain = format!(
        "{} ({}) that other libraries took from CUDA in {} different {noun}s since {noun} {} were never freed; this grows by {} every {noun}",
        plural(sites.blocks(), "block"),
        size(sites.bytes()),
        thousands(marks.into()),
        thousands(first.into()),
        size(rate as u64),
    ) + &if libraries.is_empty() {
        String::new()
    } else {
        format!("; these libraries hold most of it: {}", libraries.join(", "))
    };
    let note = cx.finding(Note { first_step: first, rate, explain, sites, ..Note::new(KIND, d) });
    let evidence = Evidence::new("different steps that left memory allocated outside PyTorch", marks.into());
    Some(steady::growing(replay, note, &headroom(replay, d.id, 0), evidence))
}
