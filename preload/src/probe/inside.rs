//! What is looked at without going on from it: elements of an array, and what the containers of a large container have.

use super::near::{ALL, ENTRIES, Holder, Search, Step, is_memory};
use super::objects::{Class, references};

/// Elements of an array that are looked at.
const MANY_WORDS: u64 = 250_000;

impl Search<'_, '_> {
    /// Looks at an array of objects, which Python's collector does not know: no climb leads to it.
    ///
    /// # Safety
    /// As [`super::near::look`]; the object is alive, an array.
    pub(super) unsafe fn array(&mut self, step: Step) {
        let Step { object, way, .. } = step;
        // SAFETY: the caller's promise; what an array of objects refers to is alive.
        unsafe {
            let (mut tensors, mut last) = (Vec::new(), 0);
            self.w.python.elements(object, MANY_WORDS, &mut |child| {
                // What is not filled yet is `None` again and again.
                if child != last && self.wanted.contains_key(&child) && is_memory(self.types, child) {
                    tensors.push(child);
                }
                last = child;
            });
            if !tensors.is_empty() {
                self.holders.push(Holder { named: object, way, depth: self.depth, tensors });
            }
        }
    }

    /// What is wanted in the containers of one that has too many entries to go on with each: `kept += ((x, y),)`.
    ///
    /// # Safety
    /// As [`super::near::look`]; the objects are alive.
    pub(super) unsafe fn of_inner(&mut self, objects: &[u64]) -> Vec<u64> {
        let mut found = Vec::new();
        for &object in objects {
            // SAFETY: the caller's promise; what a container refers to is alive.
            unsafe {
                let kind = self.types.of(object);
                if !matches!(kind.class, Class::Tuple | Class::List | Class::Dict) || self.entries > ALL {
                    continue;
                }
                let entries = self.w.python.entries(object, kind.class).filter(|n| *n <= ENTRIES);
                self.entries += entries.unwrap_or(0);
                if entries.is_some() {
                    references(object, kind, &mut |child| {
                        if self.wanted.contains_key(&child) {
                            found.push(child);
                        }
                    });
                }
            }
        }
        found
    }
}
