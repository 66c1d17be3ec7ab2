//! Blocks that pile up over steps and then vanish all at once, again and again: what waits for Python's collector looks
//! like that. So does a buffer that is emptied now and then; the recording does not say when collections ran.

use super::explain::{number, size};
use super::finding::Kind;
use super::note::{Note, Sites, worth};
use crate::replay::{Device, GRACE, Replay, Series};

/// Old blocks that must vanish at one mark.
const BLOCKS: u64 = 4;
/// How often that must be seen.
const FALLS: usize = 2;

/// One note for each line.
pub(super) fn check<'a>(replay: &Replay, d: &'a Device) -> Vec<Note<'a>> {
    let mut notes = Vec::new();
    for c in replay.cohorts().iter().filter(|c| c.key.device == d.id) {
        let Some((falls, most)) = falls(&c.steps.series).filter(|(_, most)| *most >= worth(d)) else {
            continue;
        };
        let mut sites = Sites::default();
        sites.add(c.key.site, c.steps.at_mark.bytes, c.steps.at_mark.blocks);
        notes.push(Note {
            kind: Kind::CycleGarbage,
            device: d,
            stream: Some(c.key.stream),
            first_step: c.steps.series.first_mark().saturating_sub(GRACE),
            sites,
            rate: 0.0,
            explain: format!(
                "what this line allocates piles up to {} and then vanishes at once, {} times so far: reference cycles \
                 that wait for Python's collector, or a buffer that is emptied now and then",
                size(most),
                number(falls as u64)
            ),
        });
    }
    notes
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
