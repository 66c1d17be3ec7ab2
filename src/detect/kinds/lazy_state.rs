//! Memory that an optimizer made when it first stepped: it looks like growth from one step to the next, and stays.

use crate::detect::amounts::{plural, size};
use crate::detect::check::{Check, Entry, When};
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{Note, Sites, stays, worth};
use crate::replay::{Device, GRACE, Replay};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look { when: When::Due, all: |cx| cx.of_devices(|d| check(cx.replay, d)) },
};

const KIND: Kind = Kind::new(&KindInfo::named("lazy-state", "optimizer state"));

/// At most one note for a device.
fn check<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    let mut sites = Sites::default();
    let mut first = u32::MAX;
    for c in replay.cohorts().iter().filter(|c| c.key.device == d.id && c.in_optimizer * 2 > c.allocs) {
        if stays(c) {
            sites.add(c.key.site, c.steps.at_mark.bytes, c.steps.at_mark.blocks);
            first = first.min(c.steps.series.first_mark().saturating_sub(GRACE));
        }
    }
    if sites.bytes() < worth(d) {
        return None;
    }
    sites.find_stacks(replay, d, |h| h.block.phase.optimizer && !h.pending);
    let bytes = format!("{} of state ({})", size(sites.bytes()), plural(sites.blocks(), "block"));
    let what = match sites.lines() {
        1 => format!("the optimizer allocated {bytes} and has stopped"),
        n => format!("optimizers allocated {bytes} at {n} lines, most of it at this one, and have stopped"),
    };
    Some(Note {
        first_step: first,
        explain: format!("{what} allocating more, so this is not a leak"),
        sites,
        ..Note::new(KIND, d)
    })
}
