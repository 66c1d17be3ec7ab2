//! Pinned memory of the host that grows with every step. PyTorch keeps what it has pinned for good and uses it again, so that a job
//! which lets go of its batches asks ever more rarely; one that keeps them asks with every step, and in the end the host is full.
//! It is judged by the rule for blocks of a device, and is a note: the verdict is about the memory of GPUs.

use crate::detect::amounts::{plural, size, thousands};
use crate::detect::call_lines::{Grown, grown};
use crate::detect::check::{Check, Entry, When};
use crate::detect::finding::GrainName;
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{LEAST, Note};
use crate::replay::{Grain, Replay};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look {
        when: When::DueAndAtTheEnd,
        all: |cx| check(cx.replay).map(|n| cx.finding(n)).into_iter().collect(),
    },
};

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some(
        "release pinned tensors when their step is over. To keep a batch of a DataLoader(pin_memory=True), keep its .clone(), which is not pinned. If the job uses save_on_cpu(pin_memory=True), keep loss.item() instead of loss",
    ),
    remedy_without_torch: Some(
        "free pinned memory with cudaFreeHost when the copy that needed it is done, or pin a few buffers once and reuse them",
    ),
    is_leak: true,
    ..KindInfo::named("pinned-growth", "pinned host memory grows with every {grain}")
});

/// At most one note, of all lines that grow.
fn check(replay: &Replay) -> Option<Note<'_>> {
    let Grown { sites, first, marks, rate } = grown(replay.calls().pinned_lines(), replay.steps())?;
    let noun = GrainName::of(replay, Grain::Step).noun();
    (sites.bytes() >= LEAST).then_some(())?;
    Some(Note {
        kind: KIND,
        // It is no device's: that of the first one stands for all.
        device: replay.devices().next()?,
        stream: None,
        first_step: first,
        rate,
        explain: format!(
            "{} ({}), pinned in {} {noun}s since {noun} {}, were never freed, and this has not slowed down. Pinned memory is host RAM, not GPU memory; its peak was {}",
            plural(sites.blocks(), "block"),
            size(sites.bytes()),
            thousands(marks.into()),
            thousands(first.into()),
            size(replay.calls().pinned.peak.0),
        ),
        sites,
    })
}
