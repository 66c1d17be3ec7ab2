//! Blocks that pile up over steps until Python's collector frees them: reference cycles keep them. Recordings say of every free
//! whether the collector was at work (CPython 3.11 to 3.14); only where that is not known, blocks that pile up and then vanish all at
//! once, again and again, are told: they look like it. So does a buffer that is emptied now and then.

use crate::detect::amounts::{plural, size};
use crate::detect::check::{Check, Entry, When};
use crate::detect::kind::{Kind, KindInfo};
use crate::detect::note::{LEAST, Note, Sites, worth};
use crate::replay::{Cohort, Device, GRACE, Replay, Series};

pub(super) const DETECTOR: Entry = Entry {
    kind: KIND,
    check: Check::Look { when: When::Due, all: |cx| cx.of_devices(|d| check(cx.replay, d)) },
};

const KIND: Kind = Kind::new(&KindInfo {
    remedy: BREAK_IT,
    remedy_without_torch: BREAK_IT,
    has_holder: true,
    ..KindInfo::named("cycle-garbage", "memory piles up and is then freed all at once")
});

const BREAK_IT: Option<&str> =
    Some("break the cycle, for example with weakref, or call gc.collect() every few steps");

/// Old blocks that must vanish at one mark.
const BLOCKS: u64 = 4;
/// How often that must be seen.
const FALLS: usize = 2;

/// One note for each line.
fn check<'a>(replay: &Replay, d: &'a Device) -> Vec<Note<'a>> {
    let mut notes = Vec::new();
    let is_known = replay.last_full_collection().is_some();
    for c in replay.cohorts().iter().filter(|c| c.key.device == d.id) {
        let Some(explain) = collected(c).or_else(|| seems(c, d).filter(|_| !is_known)) else { continue };
        let mut sites = Sites::default();
        sites.add(c.key.site, c.steps.at_mark.bytes, c.steps.at_mark.blocks);
        notes.push(Note {
            stream: Some(c.key.stream),
            first_step: c.steps.series.first_mark().saturating_sub(GRACE),
            sites,
            explain,
            ..Note::new(KIND, d)
        });
    }
    notes
}

/// What the collector itself was seen to free.
fn collected(c: &Cohort) -> Option<String> {
    let t = &c.steps;
    (t.is_cycle_garbage() && t.collected_at_once.bytes >= LEAST).then(|| {
        format!(
            "reference cycles keep what this line allocates until Python's garbage collector runs: the collector freed {} ({}) that were older than two steps, up to {} at once",
            plural(t.collected_old.blocks, "block"),
            size(t.collected_old.bytes),
            size(t.collected_at_once.bytes),
        )
    })
}

/// What looks like it.
fn seems(c: &Cohort, d: &Device) -> Option<String> {
    let (falls, most) = falls(&c.steps.series).filter(|(_, most)| *most >= worth(d))?;
    Some(format!(
        "the memory of this line grew to {} and was then freed all at once, {} so far: the cause may be reference cycles that wait for Python's garbage collector, or a buffer that is emptied from time to time",
        size(most),
        plural(falls as u64, "time")
    ))
}

/// How often the old blocks of a series vanished, and how many bytes they were at most; `None` where that is no habit.
fn falls(s: &Series) -> Option<(usize, u64)> {
    if s.width() != 1 || s.last_mark() == 0 {
        return None;
    }
    let points: Vec<_> = s.buckets().map(|b| b.1).collect();
    let fell = |w: &&[crate::replay::Point]| w[0].blocks >= BLOCKS && w[1].blocks * 10 <= w[0].blocks;
    let falls: Vec<u64> = points.windows(2).filter(fell).map(|w| w[0].bytes).collect();
    (falls.len() >= FALLS).then(|| (falls.len(), falls.into_iter().max().unwrap_or(0)))
}
