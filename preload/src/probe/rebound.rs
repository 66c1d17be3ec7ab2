//! Names that get another object at every step: a running loss, a hidden state, a tuple or a list that is made anew. By the time that a walk
//! over all objects has come to what had the name, it has the next one. So what local variables, globals and attributes near them have at
//! this moment is looked at from the top, in one slice (`near.rs`). A name counts where what it has leads to what was asked about: its tensor's
//! graph, or the container itself.
//!
//! Where a loss is made of a state, both graphs lead there, the loss's by way of the state. What is carried on is mostly the inner one, which has
//! the name; but where a state is made by way of a name of its own (`gates = f(x, h)`, then `h = g(gates)`) it is the outer one. Only the source
//! can tell, so the outer names come behind the inner ones.

use super::budget::Budget;
use super::graph;
use super::named::{Named, Place};
use super::near::{self, NameOf, Near, Top};
use super::objects::Class;
use super::types::Types;
use super::world::World;
use crate::platform::pages::Pages;
use std::collections::{HashMap, HashSet};

/// What the names of a moment lead to.
#[derive(Default)]
pub(super) struct Found {
    /// Those by graphs, and those by containers, or chains of objects.
    pub(super) graphs: Vec<Named>,
    pub(super) kept: Vec<Named>,
}

/// A graph that was walked, and what it keeps.
struct Walked {
    top: Top,
    mask: u64,
    walk: graph::Walk,
    /// The nodes of other names that it leads to.
    inner: HashSet<u64>,
    is_outdated: bool,
}

impl Walked {
    /// Whether the other's graph is a part of this one's, and keeps most of what this one does.
    fn is_above(&self, other: &Walked) -> bool {
        let both = (self.mask & other.mask).count_ones();
        self.inner.contains(&other.top.node) && both * 4 >= self.mask.count_ones() * 3
    }
}

/// Names that keep what is wanted (address → samples) at this moment; and whether there was time for all of them.
///
/// # Safety
/// With the GIL held and the collector not at work.
pub(super) unsafe fn search(
    w: &World,
    types: &mut Types<'_>,
    wanted: &HashMap<u64, u64>,
    budget: &Budget,
) -> (Found, bool) {
    let mut found = Found::default();
    // SAFETY: the caller's promise, for all of them; nothing of the job runs before the end.
    unsafe {
        let Near { tops, holders } = near::look(w, types, wanted);
        for h in holders {
            let mask = in_blocks(w, types, wanted, &h.tensors);
            if mask != 0 {
                let place = h.way.place(w, types);
                found.kept.push(named(place, w, types, h.named, (mask, h.depth)));
            }
        }
        let (walked, is_whole) = walk(w, wanted, tops, budget);
        let above = |w: &Walked| walked.iter().any(|o| w.is_above(o));
        let mut outer: Vec<bool> = walked.iter().map(above).collect();
        let is_inner = |(w, outer): (&Walked, &bool)| if *outer { 0 } else { w.mask };
        let inner = walked.iter().zip(&outer).map(is_inner).fold(0, |all, mask| all | mask);
        let mut all: Vec<(bool, Walked)> = outer.drain(..).zip(walked).collect();
        all.sort_by_key(|(is_outer, _)| *is_outer);
        for (is_outer, Walked { top, mask, is_outdated, .. }) in all {
            // A backward may be still to come where autograd would go back through all of it.
            let is_awaited = !is_outdated;
            let mask = if is_outer { mask & inner } else { mask };
            for NameOf { object, way, is_listed } in top.names.iter().filter(|_| mask != 0) {
                let place = way.place(w, types);
                let named = named(place, w, types, *object, (mask, top.depth));
                // What is in one of many entries is called by what has those.
                let is_final = !is_outer && (!is_listed || named.entries.is_some());
                found.graphs.push(Named { is_rebound: !is_listed, is_awaited, is_final, ..named });
            }
        }
        (found, is_whole)
    }
}

/// What something is called that is known to keep samples at this moment.
///
/// # Safety
/// As [`search`]; the object is alive.
unsafe fn named(
    place: Place,
    w: &World,
    types: &mut Types<'_>,
    object: u64,
    (mask, depth): (u64, u32),
) -> Named {
    // SAFETY: the caller's promise.
    let named = unsafe { place.named(w, types, object, (mask, depth)) };
    Named { is_final: true, piles: true, is_verified: true, ..named }
}

/// The samples that tensors, their gradients and storages lie in.
///
/// # Safety
/// As [`search`]; they are alive.
unsafe fn in_blocks(w: &World, types: &mut Types<'_>, wanted: &HashMap<u64, u64>, all: &[u64]) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        let (storages, tensors): (Vec<u64>, Vec<u64>) =
            all.iter().partition(|t| types.of(**t).class == Class::Storage);
        let known = w.torch.blocks(&Pages::default(), &w.torch.of_python(&tensors));
        let data = known.into_iter().flatten().flatten().chain(w.torch.of_storages(&storages));
        data.filter_map(|d| wanted.get(&d)).fold(0, |all, mask| all | mask)
    }
}

/// Walks the graphs until all that is wanted is accounted for, and the others where there is time, to tell which of them is the inner one. A walk
/// ends where the graph of another name begins, so that what they share is walked once.
fn walk(w: &World, wanted: &HashMap<u64, u64>, tops: Vec<Top>, budget: &Budget) -> (Vec<Walked>, bool) {
    let (mut walked, mut all, pages) = (Vec::new(), 0, Pages::default());
    let nodes: HashSet<u64> = tops.iter().filter(|t| !t.is_listed).map(|t| t.node).collect();
    let mut is_whole = true;
    for top in tops {
        let is_enough = wanted.values().all(|mask| mask & !all == 0);
        // Which of them is the inner one is not worth a longer pause.
        let is_late = || budget.is_all_used() || is_enough && budget.is_far_over();
        if is_enough && (is_late() || top.is_listed) {
            break;
        }
        let is_listed = top.is_listed;
        let keys: HashSet<u64> = wanted.keys().copied().collect();
        let mut walk = graph::Walk::new(vec![(top.tensor, top.node)], keys).ending_at(nodes.clone());
        let mut is_done = walk.go_on(w, &pages, &Budget::new());
        while !is_done && !is_late() {
            is_done = walk.go_on(w, &pages, &Budget::new());
        }
        let mask =
            walk.found.iter().filter_map(|kept| wanted.get(&kept.what)).fold(0, |all, mask| all | mask);
        all |= mask;
        let is_outdated = walk.is_outdated;
        walked.push(Walked { top, mask, walk, inner: HashSet::new(), is_outdated });
        if !is_done {
            is_whole = is_enough || is_listed;
            break;
        }
    }
    lead_on(&mut walked);
    walked.retain(|w| w.mask != 0);
    (walked, is_whole)
}

/// What is kept by way of the graphs of other names that a walk has ended at, and by way of those that these end at.
fn lead_on(walked: &mut [Walked]) {
    let ends = |from: &Walked| -> Vec<usize> {
        let is_inner = |o: &&Walked| o.top.node != from.top.node && from.walk.reaches(o.top.node);
        (0..).zip(walked.iter()).filter(|(_, o)| is_inner(o)).map(|(i, _)| i).collect()
    };
    let ends: Vec<Vec<usize>> = walked.iter().map(ends).collect();
    let own: Vec<(u64, u64, bool)> = walked.iter().map(|w| (w.top.node, w.mask, w.is_outdated)).collect();
    for (from, walked) in walked.iter_mut().enumerate() {
        let (mut left, mut met) = (vec![from], HashSet::new());
        while let Some(at) = left.pop() {
            let inner = ends.get(at).into_iter().flatten().copied().filter(|i| met.insert(*i));
            left.extend(inner);
        }
        for (node, mask, is_outdated) in met.iter().filter_map(|i| own.get(*i)) {
            walked.inner.insert(*node);
            walked.mask |= mask;
            walked.is_outdated |= is_outdated;
        }
    }
}

/// Keeps those names of which the ones called the same have many of a group's samples: one that has the graph of a step or two is no holder of
/// the others. Nor is one that has the newest of what a container has.
pub(super) fn retain_most(names: &mut Vec<Named>, groups: &[u64]) {
    let mut places: HashMap<String, (u64, bool)> = HashMap::new();
    for n in names.iter() {
        let (mask, is_container) = places.entry(n.place.clone()).or_default();
        *mask |= n.mask;
        *is_container |= n.entries.is_some();
    }
    let is_many = |mask: u64| groups.iter().any(|g| (g & mask).count_ones() * 4 >= g.count_ones().max(8));
    let is_newest = |mask: u64| {
        let most = |o: u64| mask & !o == 0 && o.count_ones() >= mask.count_ones() * 2;
        places.values().any(|(other, is_container)| *is_container && most(*other))
    };
    names.retain(|n| places.get(&n.place).is_some_and(|(mask, _)| is_many(*mask) && !is_newest(*mask)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::named::tests::named;

    #[test]
    fn entries_of_a_container_count_together() {
        let entry = |bit: u32| named("__main__.states", 1 << bit, true, 1);
        let value = Named { entries: None, ..named("__main__.h", 1, true, 0) };
        let names = |all: &[Named], group| {
            let mut all = all.to_vec();
            retain_most(&mut all, &[group]);
            all.into_iter().map(|n| n.place).collect::<Vec<_>>()
        };
        let states: Vec<Named> = (0..16).map(entry).chain([value.clone()]).collect();
        assert_eq!(names(&states, 0xffff), ["__main__.states"; 16]);
        assert_eq!(names(&states[..1], 0xffff), [""; 0], "of a step or two");
        assert_eq!(names(&states[16..], 0b11), [""; 0], "one of two");
        let half = Named { mask: 0xff, ..value };
        let whole = Named { mask: 0xffff, ..half.clone() };
        let whole = Named { place: "__main__.loss".into(), ..whole };
        assert_eq!(
            names(&[half, whole], 0xffff),
            ["__main__.h", "__main__.loss"],
            "which is inner is not known"
        );
    }
}
