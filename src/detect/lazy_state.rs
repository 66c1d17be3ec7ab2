//! Memory that an optimizer made when it first stepped: it looks like growth from one step to the next, and stays.

use super::explain::{plural, size};
use super::finding::Kind;
use super::note::{Note, Sites, worth};
use super::resident_on_side_stream::stays;
use crate::replay::{Device, GRACE, Replay};

/// At most one note for a device.
pub(super) fn check<'a>(replay: &Replay, d: &'a Device) -> Option<Note<'a>> {
    let mut sites = Sites::default();
    let mut first = u32::MAX;
    for c in replay.cohorts().iter().filter(|c| c.key.device == d.id && c.in_optimizer * 2 > c.allocs) {
        if stays(c) {
            sites.add(c.key.site, c.steps.at_mark.bytes, c.steps.at_mark.blocks);
            first = first.min(c.steps.series.first_mark().saturating_sub(GRACE));
        }
    }
    (sites.bytes() >= worth(d)).then(|| Note {
        kind: Kind::LazyState,
        device: d,
        stream: None,
        first_step: first,
        rate: 0.0,
        explain: format!(
            "the optimizer made {} of state ({}) when it first stepped, and has made none since: no leak",
            size(sites.bytes()),
            plural(sites.blocks(), "block"),
        ),
        sites,
    })
}
