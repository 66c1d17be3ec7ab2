//! Blocks of a side stream that stay, and do not become more: an average of the weights, a communication buffer.

use crate::detect::amounts::{plural, size};
use crate::detect::check::{Check, Entry, When};
use crate::detect::finding::Finding;
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{FLAT, Note, Sites, stays, worth};
use crate::replay::{Cohort, Device, GRACE, Replay};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look { when: When::Due, all: |cx| cx.of_devices(|d| check(cx.replay, d, cx.accused)) },
};

const KIND: Kind =
    Kind::new(&KindInfo::named("resident-on-side-stream", "memory that stays on a side stream"));

/// One note for each side stream.
fn check<'a>(replay: &Replay, d: &'a Device, accused: &[&Finding]) -> Vec<Note<'a>> {
    let mut notes = Vec::new();
    for s in replay.streams().iter().filter(|s| s.device == d.id && replay.is_side(s.id)) {
        let told = |c: &&Cohort| {
            accused.iter().any(|f| {
                f.stream.is_some_and(|t| t.id == s.id) && f.sites.iter().any(|site| site.site == c.key.site)
            })
        };
        let mut sites = Sites::default();
        let mut first = u32::MAX;
        let ours = replay.cohorts().iter().filter(|c| c.key.stream == s.id && !c.key.private_pool);
        for c in ours.filter(|c| stays(c)).filter(|c| !told(c)) {
            sites.add(c.key.site, c.steps.at_mark.bytes, c.steps.at_mark.blocks);
            first = first.min(c.steps.series.first_mark().saturating_sub(GRACE));
        }
        if sites.bytes() < worth(d) {
            continue;
        }
        notes.push(Note {
            stream: Some(s.id),
            first_step: first,
            explain: format!(
                "{} of {} stay allocated on this side stream; their number has not grown for {}, so this is not a leak",
                plural(sites.blocks(), "block"),
                size(sites.bytes()),
                plural(u64::from(FLAT), "step"),
            ),
            sites,
            ..Note::new(KIND, d)
        });
    }
    notes
}
