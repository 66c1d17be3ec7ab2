//! Types that were met in a slice: what their objects are, and where their classes stand. Both are found out once.

use super::names::Scope;
use super::objects::{Class, Kind, Map, Python, type_of};

/// Types as they are met, in one slice: between slices a type may go.
pub(super) struct Types<'a> {
    python: &'a Python,
    known: Map<Kind>,
    last: (u64, Kind),
    /// Where classes stand, with no attribute: to find that out takes longer than all else about a name.
    scopes: Map<Scope>,
}

impl<'a> Types<'a> {
    /// None yet.
    pub(super) fn new(python: &'a Python) -> Types<'a> {
        let none = Kind { class: Class::Opaque, traverse: 0 };
        Types { python, known: Map::default(), last: (0, none), scopes: Map::default() }
    }

    /// What an object is.
    ///
    /// # Safety
    /// `object` must be alive; with the GIL held.
    #[inline]
    pub(super) unsafe fn of(&mut self, object: u64) -> Kind {
        // SAFETY: the caller's promise.
        let kind = unsafe { type_of(object) };
        if self.last.0 != kind {
            let python = self.python;
            // SAFETY: the type of an object that is alive.
            let known = *self.known.entry(kind).or_insert_with(|| unsafe { python.kind(kind) });
            self.last = (kind, known);
        }
        self.last.1
    }

    /// An attribute of a class, or of its instances.
    ///
    /// # Safety
    /// `class` must be a class that is alive; with the GIL held.
    pub(super) unsafe fn scope_in_class(&mut self, class: u64, variable: String) -> Scope {
        let python = self.python;
        // SAFETY: the caller's promise.
        let known = self.scopes.entry(class).or_insert_with(|| unsafe { python.scope_in_class(class) });
        Scope { variable, ..known.clone() }
    }
}
