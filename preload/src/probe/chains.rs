//! Objects that have the next one of their kind, and that one the next: exceptions that came after others, functions around functions. All that
//! a chain keeps is kept by whoever has its first link.

use super::near::{EXCEPTION, Holder, Search, Step, Way, is_memory};
use super::objects::{Class, Kind, TYPE_FLAGS, references, type_of};
use super::world::World;
use crate::platform::memory::read;
use std::collections::HashSet;

/// Frames and the like of one exception that are looked at.
const FRAMES: usize = 64;

impl Search<'_, '_> {
    /// Whether an object is a function written in Python, a method of one, or a `functools.partial`.
    ///
    /// # Safety
    /// It is alive, and of this kind; with the GIL held.
    pub(super) unsafe fn is_callable(&self, kind: Kind, object: u64) -> bool {
        if kind.class == Class::Function {
            return true;
        }
        // SAFETY: the caller's promise.
        let name = unsafe { self.w.python.full_name(type_of(object)) };
        matches!(kind.class, Class::Other | Class::Instance)
            && (name == c"method" || name == c"functools.partial")
    }

    /// Looks at a function, a method or a `functools.partial`. One that calls another, which calls the next, is a link of a chain: as where
    /// something is wrapped again and again.
    ///
    /// # Safety
    /// As [`super::near::look`]; the object is alive and of this kind.
    pub(super) unsafe fn callable(&mut self, step: Step, kind: Kind) {
        let Step { object, way, chain, listed } = step;
        let (mut links, mut kept) = (Vec::new(), Vec::new());
        // SAFETY: the caller's promise; what is alive refers to what is.
        unsafe {
            let mut parts = Vec::new();
            references(object, kind, &mut |child| parts.push(child));
            // A function's globals are those of its module; a partial has a dictionary of its arguments.
            let is_function = kind.class == Class::Function;
            let mut inside = Vec::new();
            for part in parts {
                let kind = self.types.of(part);
                match kind.class {
                    Class::Tuple => references(part, kind, &mut |child| inside.push(child)),
                    Class::Dict if !is_function => references(part, kind, &mut |child| inside.push(child)),
                    _ => inside.push(part),
                }
            }
            for child in inside {
                let child = self.w.python.in_cell(child).unwrap_or(child);
                let kind = self.types.of(child);
                // Deep in a chain is what was not come to before.
                if is_memory(self.types, child) {
                    kept.push(child);
                } else if self.is_callable(kind, child) {
                    links.push(child);
                }
            }
            let Some((first, way)) = chain.or((!links.is_empty()).then_some((object, way))) else { return };
            self.of_chain(first, way, kept);
            let chain = Some((first, way));
            self.level.extend(links.into_iter().map(|object| Step { object, way, chain, listed }));
        }
    }

    /// Looks at what a function of the user's own has closed over, unless it is called by way of another one: a name that `nonlocal` gives
    /// another value has no frame of its own between two calls.
    ///
    /// # Safety
    /// As [`super::near::look`]; the object is alive and of this kind.
    pub(super) unsafe fn closure(&mut self, step: Step, kind: Kind) {
        let Step { object, chain, listed, .. } = step;
        let w = self.w;
        if kind.class != Class::Function || chain.is_some() {
            return;
        }
        // SAFETY: the caller's promise; a function has its closure, a tuple or null, and its code.
        unsafe {
            let closure = w.python.closure_of(object);
            if closure != 0 && w.python.is_of_user(w.python.code_of(object)) {
                let value = |(i, _, object_in)| Step {
                    object: object_in,
                    way: Way::Closure(object, i),
                    chain: None,
                    listed,
                };
                self.next.extend(w.python.closed_over(closure).map(value));
            }
        }
    }

    /// Looks at an exception: what the frames of its traceback have, and the exceptions that it came after (`__context__`, `__cause__`), all of
    /// which are one chain.
    ///
    /// # Safety
    /// As [`super::near::look`]; the object is alive and of this kind.
    pub(super) unsafe fn exception(&mut self, step: Step, kind: Kind) {
        let Step { object, way, chain, listed } = step;
        let first = chain.unwrap_or((object, way));
        let (mut inside, mut kept, mut met) = (Vec::new(), Vec::new(), HashSet::new());
        // SAFETY: the caller's promise; what is alive refers to what is.
        unsafe {
            references(object, kind, &mut |child| inside.push(child));
            while let Some(child) = inside.pop().filter(|_| met.len() < FRAMES) {
                let kind = self.types.of(child);
                let is_exception = read(type_of(child) + TYPE_FLAGS) & EXCEPTION != 0;
                if is_exception {
                    self.level.push(Step { object: child, way, chain: Some(first), listed });
                } else if self.wanted.contains_key(&child) && is_memory(self.types, child) {
                    kept.push(child);
                } else if is_of_exceptions(self.w, kind, child) && met.insert(child) {
                    references(child, kind, &mut |child| inside.push(child));
                }
            }
        }
        self.of_chain(first.0, first.1, kept);
    }

    /// Notes what a link of a chain keeps.
    pub(super) fn of_chain(&mut self, first: u64, way: Way, tensors: Vec<u64>) {
        let new = self.holders.len();
        let at = *self.chains.entry(first).or_insert(new);
        if at == new {
            self.holders.push(Holder { named: first, way, depth: self.depth, tensors: Vec::new() });
        }
        self.holders.get_mut(at).into_iter().for_each(|h| h.tensors.extend(&tensors));
    }
}

/// What an exception has its variables in: its arguments and attributes, its traceback and the frames of that.
///
/// # Safety
/// The object is alive and of this kind.
unsafe fn is_of_exceptions(w: &World, kind: Kind, object: u64) -> bool {
    // SAFETY: the caller's promise.
    matches!(kind.class, Class::Dict | Class::Tuple | Class::Frame)
        || kind.class == Class::Other && unsafe { w.python.type_name(type_of(object)) == "traceback" }
}
