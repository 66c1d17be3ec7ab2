//! What graphs keep of Python's objects, which no name leads to: what was put on the context of an autograd function, what hooks have made of a saved
//! tensor, what hooks of a node have in their closures. What is there is climbed from as if the object had a name; who has it is whoever has the graph.

use super::budget::Budget;
use super::close::{self, Close};
use super::graph;
use super::types::Types;
use super::work::Work;
use super::world::World;
use crate::platform::pages::Pages;
use crate::python::tracked::are_tracked;

impl Work {
    /// Looks at what the user's own names lead to, and at what graphs keep of Python's objects.
    ///
    /// # Safety
    /// As [`Work::slice`].
    pub(super) unsafe fn reach(&mut self, w: &World, budget: &Budget) {
        self.reaches += 1;
        // SAFETY: the caller's promise; nothing of the job runs in this slice.
        unsafe {
            let mut close = close::look(w, &mut Types::new(&w.python), budget);
            self.note(w, &mut close);
            self.add_kept(w, &mut close, budget);
            self.climb_close(w, &mut close);
        }
        self.look_at_graphs();
    }

    /// Adds what graphs were seen to keep of Python's objects, as far as it is alive.
    ///
    /// # Safety
    /// As [`Work::slice`].
    pub(super) unsafe fn add_kept(&self, w: &World, close: &mut Close, budget: &Budget) {
        if self.reaches == 0 {
            return;
        }
        let objects = self.graphs.as_ref().map_or(Vec::new(), graph::Walk::objects);
        let tracked = are_tracked(&Pages::default(), &objects);
        let alive = objects.into_iter().zip(tracked).filter_map(|(object, is)| is.then_some(object));
        let mut types = Types::new(&w.python);
        // SAFETY: the caller's promise; what the collector tracks is alive.
        unsafe {
            close.add_small(w, &mut types, alive, budget);
            close.add_large(w, &mut types, budget);
        }
    }

    /// Goes on from the tensors at the top of graphs that keep what was come to from the tops of others; whether there is something to go on from.
    pub(super) fn rise_further(&mut self) -> bool {
        let (Some(walk), Some(rise)) = (&mut self.graphs, &mut self.rise) else { return false };
        let mut from = Vec::new();
        for kept in walk.kept_objects() {
            let mask = rise.below_it(kept.what).map_or(0, |(mask, _)| mask & !rise.done);
            if mask != 0 && walk.find(kept) {
                *self.wanted.entry(kept.what).or_default() |= mask;
                walk.settle_top(kept.by);
                from.extend([kept.by, walk.top(kept.by)].map(|tensor| (tensor, mask)));
            }
        }
        rise.start(&from);
        !from.is_empty()
    }
}
