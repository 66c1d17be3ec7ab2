//! Lines that ask CUDA itself for memory, and keep ever more of it: what kinds about such memory share.

use super::births::Kept;
use super::growth::MIN_MARKS;
use super::note::Sites;
use super::survivors::Watch;
use crate::replay::Cohort;

/// What grows, of all lines.
pub(super) struct Grown {
    pub(super) sites: Sites,
    /// The first mark that left some.
    pub(super) first: u32,
    /// Different marks that did, of the line with the most.
    pub(super) marks: u32,
    /// Bytes per mark.
    pub(super) rate: f64,
}

/// What of these lines grows, as of `mark`; `None` where nothing does.
pub(super) fn grown<'a>(lines: impl Iterator<Item = &'a Cohort>, mark: u32) -> Option<Grown> {
    let mut all = Grown { sites: Sites::default(), first: u32::MAX, marks: 0, rate: 0.0 };
    for (c, kept) in lines.filter_map(|c| Some((c, kept(c, mark)?))) {
        all.sites.add(c.key.site, kept.total.bytes, kept.total.blocks);
        all.first = all.first.min(kept.first);
        all.marks = all.marks.max(kept.marks);
        all.rate += kept.total.bytes as f64 / f64::from(kept.last - kept.first + 1);
    }
    (all.marks > 0).then_some(all)
}

/// What a line keeps, where it grows. A cache that fills has its births early: that a job holds more at once than ever before happens
/// ever more rarely. A dozen different steps of the later half of the time are too many for that.
fn kept(c: &Cohort, mark: u32) -> Option<Kept> {
    let mut watch = Watch::default();
    watch.look(&c.steps, c.frees, mark);
    let kept = watch.named?.kept;
    let births = c.steps.births.list();
    let first = births.first().map_or(kept.first, |b| b.first);
    let middle = first + mark.saturating_sub(first) / 2;
    let late: u32 = births.iter().filter(|b| b.first > middle).map(|b| b.marks).sum();
    (late >= MIN_MARKS).then_some(kept)
}
