//! Copies of a value in a type of twice its size, made by a line that says so: `logits.float()`.

use super::super::look::{Candidate, Kind, KindInfo, Look, by_site};
use super::super::timeline::{Cut, Life, Mark, NEVER, Timeline};
use crate::event::SiteId;
use rustc_hash::FxHashMap;

pub(super) static KIND: Kind = Kind {
    info: KindInfo {
        name: "wide_copy",
        seen: "({blocks}) is a copy of a tensor in a wider type, kept in memory together with the results computed from it",
        change: "compute in the narrower type, or in smaller pieces: most losses of PyTorch already sum in float32 internally",
    },
    find,
};

/// What a line that makes one has in it.
const CASTS: [&str; 6] = [".float()", "float32", ".double()", "float64", "torch.float)", "torch.float,"];
/// Blocks before it among which is what it was made from.
const NEAR: usize = 16;

fn find(look: &Look<'_>) -> Vec<Candidate> {
    let (timeline, (_, peak)) = (look.timeline, look.timeline.peak());
    // The line is read once, and only of what lives at the peak.
    let mut is_cast: FxHashMap<SiteId, bool> = FxHashMap::default();
    for life in timeline.lives.iter().filter(|l| l.is_forward() && l.is_alive(peak)) {
        let cast = || look.text(life.site).is_some_and(|text| CASTS.iter().any(|c| text.contains(c)));
        is_cast.entry(life.site).or_insert_with(cast);
    }
    if !is_cast.values().any(|is_cast| *is_cast) {
        return Vec::new();
    }
    let mut of_size: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    for (at, life) in timeline.lives.iter().enumerate() {
        of_size.entry(life.size).or_default().push(at);
    }
    // What follows several copies of one line is cut, and looked at, once.
    let mut looked: FxHashMap<(SiteId, u64), usize> = FxHashMap::default();
    let mut cuts = Vec::new();
    for (at, life) in timeline.lives.iter().enumerate() {
        let made = is_cast.get(&life.site) == Some(&true) && life.is_forward() && !life.lost;
        if let Some(half) = made.then(|| source(timeline, at, life)).flatten() {
            // What it was made from is there for it; where that is freed before, it would not be.
            let beside = Cut { to: life.died.min(half.died), ..life.from(life.born) };
            let bytes = life.rounded.saturating_sub(half.rounded);
            let instead = Cut { from: half.died, bytes, ..life.from(life.born) };
            cuts.extend([(life.site, beside), (life.site, instead)]);
            let looked = looked.entry((life.site, life.size)).or_default();
            let same = of_size.get(&life.size).map_or(&[][..], Vec::as_slice);
            cuts.extend(followers(timeline, at, same, looked).map(|cut| (life.site, cut)));
        }
    }
    by_site(cuts)
}

/// What it was made from: a block of half its size that was made shortly before, and lived when it was made.
fn source<'t>(timeline: &'t Timeline, at: usize, life: &Life) -> Option<&'t Life> {
    let near = &timeline.lives[at.saturating_sub(NEAR)..at];
    near.iter().rev().find(|l| l.size * 2 == life.size && l.is_alive(life.born) && l.is_forward())
}

/// What has its size and is computed until the backward that follows is over would be half as large. `same`: the blocks of its size, of
/// which so many have been `looked` at.
fn followers<'t>(
    timeline: &'t Timeline,
    at: usize,
    same: &'t [usize],
    looked: &mut usize,
) -> impl Iterator<Item = Cut> + use<'t> {
    let life = &timeline.lives[at];
    let backward = timeline.next(Mark::Backward, life.born).unwrap_or(NEVER);
    let end = timeline.next(Mark::BackwardEnd, backward).unwrap_or(life.died);
    let from = same.partition_point(|i| *i <= at).max(*looked);
    *looked = same.partition_point(|i| timeline.lives[*i].born < end).max(from);
    let follow = same[from..*looked].iter().map(move |i| &timeline.lives[*i]);
    let other = follow.filter(move |l| l.site != life.site && !l.born_in.optimizer);
    other.map(|l| Cut { from: l.born, to: l.died, bytes: l.rounded / 2 })
}
