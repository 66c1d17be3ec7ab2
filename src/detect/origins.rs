//! What the lines of a case allocated once, as they first ran, such as a workspace of cuBLAS; and from which stacks what grows came.

use super::growth::{Member, Rule};
use crate::event::{Addr, Bytes, SiteId, StackId};
use crate::replay::{Grain, Held};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::hash::Hash;

/// Of a site, the stack from which most of its bytes came.
pub(super) type Stacks = FxHashMap<SiteId, StackId>;

/// What is known of where the blocks of a case came from.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins {
    /// See [`Finding::once`](super::finding::Finding::once).
    pub(super) once: Vec<Held>,
    /// Marks whose blocks are all among these.
    pub(super) marks: u32,
    /// See [`FindingSite::stack`](super::finding::FindingSite::stack).
    pub(super) stacks: Stacks,
}

/// As the lines first ran: in the first marks that left something, so many of them.
const FIRST: u32 = 2;
/// So many blocks that came later tell which sizes and stacks come again.
const LATER: usize = 4;

/// What the lines of a case allocated once, as they first ran: blocks of a size, or from a stack, that they never kept again. And from
/// which stacks the others came.
///
/// `all`: blocks of its members, from mark `first` on.
pub(super) fn origins(all: &[&Held], first: u32, grain: Grain, members: &[Member]) -> Origins {
    let born = |h: &Held| born(h, grain);
    let (once, marks) = allocated_once(all, members, first.saturating_add(FIRST), born);
    let apart: FxHashSet<Addr> = once.iter().map(|h| h.block.addr).collect();
    let rest: Vec<&Held> = all.iter().copied().filter(|h| !apart.contains(&h.block.addr)).collect();
    Origins { once, marks, stacks: stacks(&rest) }
}

/// From which stack most bytes of these blocks came, by site.
pub(super) fn stacks(all: &[&Held]) -> Stacks {
    let mut bytes: FxHashMap<(SiteId, StackId), u64> = FxHashMap::default();
    for h in all {
        let sum = bytes.entry((h.site, h.block.stack)).or_default();
        *sum = u64::saturating_add(*sum, h.block.rounded.0);
    }
    let mut bytes: Vec<_> = bytes.into_iter().map(|((site, stack), bytes)| (bytes, site, stack)).collect();
    bytes.sort_unstable();
    bytes.into_iter().map(|(_, site, stack)| (site, stack)).collect()
}

/// `from`: the first mark that tells what comes again.
fn allocated_once(
    all: &[&Held],
    members: &[Member],
    from: u32,
    born: impl Fn(&Held) -> u32,
) -> (Vec<Held>, u32) {
    let is_kept = |m: &&Member| matches!(m.growth.rule, Rule::Kept { .. });
    let kept = all.iter().copied().filter(|h| members.iter().filter(is_kept).any(|m| m.id == h.cohort));
    let (early, later): (Vec<&Held>, Vec<&Held>) = kept.partition(|h| born(h) < from);
    // What is too new to be kept, such as a gradient, tells nothing of what is.
    let until = members.iter().map(|m| m.growth.until).max().unwrap_or(0);
    let later: Vec<&Held> = later.into_iter().filter(|h| born(h) <= until).collect();
    let mut beyond = beyond_later(&early, &later, &born);
    beyond.extend(beside_pattern(&early, &later, &born));
    let (sizes, stacks) = (distinct(&later, |h| h.block.size), distinct(&later, |h| h.block.stack));
    let is_once = |h: &&Held| {
        sizes.as_ref().is_some_and(|all| !all.contains(&h.block.size))
            || stacks.as_ref().is_some_and(|all| !all.contains(&h.block.stack))
            || beyond.contains(&h.block.addr)
    };
    let (once, others): (Vec<&Held>, Vec<&Held>) = early.into_iter().partition(is_once);
    let marks: FxHashSet<u32> = once.iter().map(|h| born(h)).collect();
    let alone = marks.iter().filter(|mark| others.iter().all(|h| born(h) != **mark)).count();
    (once.into_iter().copied().collect(), alone as u32)
}

/// Where each later mark that left anything left as many blocks of the same sizes from the same stacks, what an early mark left beside that, the
/// oldest first: a workspace may be as large as what the line returns.
fn beside_pattern(early: &[&Held], later: &[&Held], born: impl Fn(&Held) -> u32) -> FxHashSet<Addr> {
    type Kind = (Bytes, StackId);
    let marks = |blocks: &[&Held]| {
        let mut all: BTreeMap<u32, BTreeMap<Kind, Vec<Held>>> = BTreeMap::new();
        for h in blocks {
            let kind = (h.block.size, h.block.stack);
            all.entry(born(h)).or_default().entry(kind).or_default().push(**h);
        }
        all
    };
    let counts = |mark: &BTreeMap<Kind, Vec<Held>>| -> BTreeMap<Kind, usize> {
        mark.iter().map(|(kind, blocks)| (*kind, blocks.len())).collect()
    };
    let later = marks(later);
    let mut patterns = later.values().map(counts);
    let Some(pattern) = patterns.next().filter(|_| later.len() >= LATER) else { return FxHashSet::default() };
    if patterns.any(|other| other != pattern) {
        return FxHashSet::default();
    }
    let beside = |mark: BTreeMap<Kind, Vec<Held>>| {
        let is_whole = pattern.iter().all(|(kind, n)| mark.get(kind).is_some_and(|all| all.len() >= *n));
        let pattern = &pattern;
        mark.into_iter().flat_map(move |(kind, mut blocks)| {
            blocks.sort_unstable_by_key(|h| h.born);
            let own = if is_whole { pattern.get(&kind).copied().unwrap_or(0) } else { 0 };
            blocks.truncate(blocks.len() - own);
            blocks
        })
    };
    marks(early).into_values().flat_map(beside).map(|h| h.block.addr).collect()
}

/// Of what has no stack, so that a model's weights are of the line that grows: of each size, what an early mark has beyond the most that any
/// later one left, the oldest first.
fn beyond_later(early: &[&Held], later: &[&Held], born: impl Fn(&Held) -> u32) -> FxHashSet<Addr> {
    let mut seen: FxHashMap<(u32, Bytes), u64> = FxHashMap::default();
    let mut count = |h: &Held| {
        let n = seen.entry((born(h), h.block.size)).or_default();
        *n += 1;
        *n
    };
    let mut most: FxHashMap<Bytes, u64> = FxHashMap::default();
    for h in later {
        let n = count(h);
        most.entry(h.block.size).and_modify(|m| *m = n.max(*m)).or_insert(n);
    }
    let mut newest: Vec<&Held> = early.iter().copied().filter(|h| h.block.stack == StackId(0)).collect();
    newest.sort_unstable_by_key(|h| std::cmp::Reverse(h.born));
    let is_beyond = |h: &&Held| most.get(&h.block.size).is_some_and(|m| count(h) > *m);
    newest.into_iter().filter(is_beyond).map(|h| h.block.addr).collect()
}

/// What these blocks have of something, where it comes again among them: where it hardly ever does, it says nothing of another block.
fn distinct<T: Eq + Hash>(blocks: &[&Held], of: impl Fn(&Held) -> T) -> Option<FxHashSet<T>> {
    let all: FxHashSet<T> = blocks.iter().map(|h| of(h)).collect();
    (blocks.len() >= LATER && all.len() * 2 <= blocks.len()).then_some(all)
}

/// The mark of this grain at which a block was born.
pub(super) fn born(h: &Held, grain: Grain) -> u32 {
    if grain == Grain::Step { h.step } else { h.microbatch }
}
