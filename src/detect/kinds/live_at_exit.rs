//! What was still allocated when the recording ended: all that can be told of a job that made too few steps to be judged.

use crate::detect::amounts::{plural, size};
use crate::detect::check::{Check, Entry, When};
use crate::detect::growth::MIN_MARKS;
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{Note, Sites, worth};
use crate::detect::oom::final_oom;
use crate::replay::{Device, Replay};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look { when: When::DueAndAtTheEnd, all: |cx| cx.of_devices(|d| check(cx.replay, d)) },
};

const KIND: Kind = Kind::new(&KindInfo::named("live-at-exit", "memory still allocated at the end"));

/// At most one note for a device.
fn check<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    replay.ended()?;
    // What memory was used for when it ran out is told of the failure.
    if replay.steps().max(replay.microbatches()) >= MIN_MARKS || final_oom(replay).is_some() {
        return None;
    }
    let mut sites = Sites::default();
    for h in replay.blocks(d.id).filter(|h| !h.pending && !h.unverified) {
        sites.add(h.site, h.block.rounded.0, 1);
    }
    // What it freed on its way out was there when its last step ended.
    for (c, bytes) in replay.torn_down().filter(|(c, _)| c.key.device == d.id) {
        sites.add(c.key.site, bytes, 1);
    }
    (sites.bytes() >= worth(d)).then(|| Note {
        explain: format!(
            "{} ({}) were allocated when the job began to end; too few steps were recorded to say whether any of them leaks",
            plural(sites.blocks(), "block"),
            size(sites.bytes()),
        ),
        sites,
        ..Note::new(KIND, d)
    })
}
