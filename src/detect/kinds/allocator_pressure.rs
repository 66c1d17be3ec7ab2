//! Memory that goes to the driver and comes back with every step: each time costs a synchronization.

use crate::detect::amounts::{size, thousands};
use crate::detect::check::{Check, Entry, When};
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{Note, Sites, worth};
use crate::event::SiteId;
use crate::replay::{Device, Replay};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look { when: When::Due, all: |cx| cx.of_devices(|d| check(cx.replay, d)) },
};

const KIND: Kind = Kind::new(&KindInfo {
    remedy: Some("if the loop calls torch.cuda.empty_cache(), leave that out"),
    ..KindInfo::named("allocator-pressure", "memory is returned to the driver and allocated again")
});

/// Part of the device that torch must have reserved for that to be need.
const NEARLY_FULL: f64 = 0.8;
/// Steps, of those that are remembered, in which it must have happened.
const STEPS: usize = 6;

/// At most one note for a device.
fn check<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    let much: Vec<u64> = d.given_back.iter().map(|b| b.0).filter(|b| *b >= worth(d)).collect();
    if much.len() < STEPS {
        return None;
    }
    let mean = much.iter().sum::<u64>() / much.len() as u64;
    // Beside what it can have, not the device's size: what others hold is full as well.
    let full = d.capacity.zip(replay.usable(d.id)).is_some_and(|(c, usable)| {
        let closed = c.total.0.saturating_sub(usable.0);
        d.peak_reserved.bytes.0.saturating_add(closed) as f64 >= NEARLY_FULL * c.total.0 as f64
    });
    let why = match full {
        true => {
            "because the card is nearly full; the job waits for the GPU each time. A slightly smaller batch avoids this"
        }
        false => {
            "although the card is not full: this comes from torch.cuda.empty_cache() in the loop, or from code that calls it, and costs time"
        }
    };
    let mut sites = Sites::default();
    sites.add(SiteId(0), mean, 0);
    Some(Note {
        first_step: replay.steps().saturating_sub(d.given_back.len() as u32),
        sites,
        explain: format!(
            "in {} of the last {} steps PyTorch released about {} to the driver and allocated it again, {why}",
            thousands(much.len() as u64),
            thousands(d.given_back.len() as u64),
            size(mean)
        ),
        ..Note::new(KIND, d)
    })
}
