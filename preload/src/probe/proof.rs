//! The last look at every name of an answer (`verify.rs` has one step of it): which samples it leads to at one moment.

use super::budget::Budget;
use super::climb::Climb;
use super::named::Named;
use super::objects::Class;
use super::types::Types;
use super::verify;
use super::work::{Rest, TRIES, Work};
use super::world::World;
use crate::platform::pages::Pages;
use std::collections::HashSet;

/// Graphs that are gone down through objects of others, at most.
const DEPTH: u32 = 2;

impl Work {
    /// Forgets names that do not stand the last look (`verify.rs`), and what a name was not seen to lead to at that moment.
    /// `true`: all were looked at.
    ///
    /// # Safety
    /// As [`Work::slice`].
    pub(super) unsafe fn verify(&mut self, w: &World, budget: &Budget) -> bool {
        let mut types = Types::new(&w.python);
        for graph in [false, true] {
            loop {
                let climb = if graph { &self.rise } else { &self.climb };
                let names = climb.as_ref().map_or(&[][..], |c| &c.named);
                let Some(at) = names.iter().position(|n| !n.is_verified) else { break };
                let Some(named) = names.get(at) else { break };
                // SAFETY: the caller's promise.
                let (object, rest, is_whole) = unsafe { self.proved(w, &mut types, named, graph, budget) };
                if !is_whole && rest.tries < TRIES {
                    self.rest = rest;
                    return false;
                }
                let mask = rest.mask & named.mask;
                // Counted when it is told, and not when it was first met, which may be many steps ago.
                // SAFETY: what has its name still is alive; the rest is the caller's promise.
                let entries = object.and_then(|o| unsafe { w.python.counted(o, types.of(o).class) });
                self.rest = Rest::default();
                let climb = if graph { &mut self.rise } else { &mut self.climb };
                let Some(names) = climb.as_mut().map(|c| &mut c.named) else { break };
                match names.get_mut(at).filter(|_| mask != 0) {
                    Some(n) => (n.is_verified, n.mask, n.entries) = (true, mask, entries.or(n.entries)),
                    None => drop(names.remove(at)),
                }
                if budget.is_over() {
                    return false;
                }
            }
        }
        true
    }

    /// What has a name still, the samples that it leads to at this moment, every step of the way; and whether there was time for all of them.
    ///
    /// # Safety
    /// As [`Work::slice`].
    unsafe fn proved(
        &self,
        w: &World,
        types: &mut Types<'_>,
        named: &Named,
        graph: bool,
        budget: &Budget,
    ) -> (Option<u64>, Rest, bool) {
        let mut rest = self.rest;
        let Some(climb) = (if graph { &self.rise } else { &self.climb }) else { return (None, rest, true) };
        // SAFETY: the caller's promise; what has its name still is alive, and so is what it leads to.
        unsafe {
            let Some(object) = verify::has(w, types, named) else { return (None, Rest::default(), true) };
            let (tensors, is_whole) = climb.below(w, types, object, budget);
            if !graph {
                rest.mask |= self.sampled(w, types, tensors);
            } else if is_whole || rest.tries + 1 == TRIES {
                let (rest, is_whole) = self.kept(w, types, named.mask, &tensors, rest, (budget, 0));
                return (Some(object), rest, is_whole);
            }
            rest.tries += u32::from(!is_whole);
            (Some(object), rest, is_whole)
        }
    }

    /// The samples that tensors, their gradients and storages lie in.
    ///
    /// # Safety
    /// They are alive; with the GIL held.
    unsafe fn sampled(
        &self,
        w: &World,
        types: &mut Types<'_>,
        tensors: impl IntoIterator<Item = u64>,
    ) -> u64 {
        // SAFETY: the caller's promise.
        let (storages, tensors): (Vec<u64>, Vec<u64>) =
            tensors.into_iter().partition(|t| unsafe { types.of(*t) }.class == Class::Storage);
        // SAFETY: the caller's promise.
        let (known, data) = unsafe { (w.torch.of_python(&tensors), w.torch.of_storages(&storages)) };
        let all = w.torch.blocks(&Pages::default(), &known).into_iter().flatten().flatten().chain(data);
        all.filter_map(|data| self.samples.get(&data)).fold(0, |a, bit| a | bit)
    }

    /// The samples, of those in `mask`, that the graphs of these tensors keep: as many ways as there is time for, at least one. Each is gone
    /// at one moment, from the name down.
    ///
    /// # Safety
    /// As [`Work::slice`]; the tensors are alive.
    unsafe fn kept(
        &self,
        w: &World,
        types: &mut Types<'_>,
        mask: u64,
        tensors: &HashSet<u64>,
        mut rest: Rest,
        (budget, depth): (&Budget, u32),
    ) -> (Rest, bool) {
        let (Some(graphs), from) = (&self.graphs, rest.ways) else { return (rest, true) };
        let mut looked = 0;
        for kept in graphs.found.iter().skip(from) {
            let may = self.wanted.get(&kept.what).copied().unwrap_or(0) & mask & !rest.mask;
            let top = [kept.by, graphs.top(kept.by)].into_iter().find(|t| tensors.contains(t));
            if let Some(top) = top.filter(|_| may != 0) {
                if looked > 0 && budget.is_over() {
                    return (rest, false);
                }
                looked += 1;
                // SAFETY: the caller's promise; an object that a node keeps is alive.
                unsafe {
                    let proves = graphs.proves(w, types, top, kept, budget);
                    if proves.is_none() && rest.tries < TRIES {
                        rest.tries += 1;
                        return (rest, false);
                    }
                    rest.mask |= match (proves, self.samples.get(&kept.what)) {
                        (Some(true), Some(bit)) => *bit,
                        (Some(true), None) => {
                            let below = |climb: &Climb, types: &mut Types<'_>| {
                                climb.below(w, types, kept.what, budget).0
                            };
                            let tensors = self.climb.as_ref().map(|c| below(c, types)).unwrap_or_default();
                            let tops = self.rise.as_ref().map(|c| below(c, types)).unwrap_or_default();
                            let own = self.sampled(w, types, tensors);
                            let goes_on = depth < DEPTH && !tops.is_empty();
                            let further = goes_on.then(|| {
                                self.kept(w, types, mask, &tops, Rest::default(), (budget, depth + 1))
                            });
                            own | further.map_or(0, |(rest, _)| rest.mask)
                        }
                        _ => 0,
                    };
                }
            }
            (rest.ways, rest.tries) = (rest.ways + 1, 0);
        }
        (rest, true)
    }
}
