//! What the user's own names lead to, from the top down, at one moment: local variables, then globals of the user's modules, then other
//! locals, level by level. Most holders are among some thousand objects there, so that the hundred thousands that Python tracks need not
//! be looked at.

use super::budget::Budget;
use super::contexts;
use super::layout::{MODULE_DICT, in_function};
use super::names::Scope;
use super::near;
use super::objects::{Class, TYPE_DICT, references};
use super::registered;
use super::types::Types;
use super::world::World;
use crate::platform::memory::{is_address, read};
use std::collections::HashSet;

/// Objects that are gone on from, tensors, and things in all of them, at most.
const MOST: usize = 16_384;
const TENSORS: usize = 4_096;
const REFERENCES: usize = 131_072;
/// A container with more entries is gone on from after those that have fewer.
const FEW: u64 = 512;
/// Entries of a module's dictionary among which its file is looked for.
const FIRST: u32 = 16;
/// The module that a program begins with.
const MAIN: &[u8] = b"__main__";
/// Objects between two looks at the clock.
const STRIDE: usize = 64;

/// What was come to, in this order.
#[derive(Default)]
pub(super) struct Close {
    /// Objects that refer to others, the nearest to the names first; tensors too, which may have attributes.
    pub(super) objects: Vec<u64>,
    pub(super) tensors: Vec<u64>,
    pub(super) storages: Vec<u64>,
    pub(super) nodes: Vec<u64>,
    /// How many of the objects were gone on from.
    done: usize,
    /// Things that were referred to, and which they are.
    met: usize,
    seen: HashSet<u64>,
    modules: Modules,
    /// Modules beside `__main__`, which may be hundreds, are gone on from as well; and classes of theirs that were met before.
    has_all_modules: bool,
    put_off: Vec<u64>,
    /// Large containers that were met, each with how many entries it has.
    large: Vec<(u64, u64)>,
}

/// Modules of the user's own: a module may be imported under several names.
#[derive(Default)]
struct Modules {
    objects: Vec<u64>,
    names: Vec<Vec<u8>>,
}

impl Modules {
    fn has(&self, name: &[u8]) -> bool {
        self.names.iter().any(|n| n == name)
    }

    fn main(&self) -> Option<u64> {
        self.names.iter().position(|n| n == MAIN).and_then(|i| self.objects.get(i)).copied()
    }
}

/// Looks down from the names.
///
/// # Safety
/// With the GIL held and the collector not at work. What is handed out is alive as long as nothing of the job has run.
pub(super) unsafe fn look(w: &World, types: &mut Types<'_>, budget: &Budget) -> Close {
    // SAFETY: the caller's promise, for all of them; what is alive refers to what is.
    unsafe {
        let mut close = Close { modules: modules(w), ..Close::default() };
        let [own, others] = near::locals(w);
        let main = close.modules.main();
        let kept = contexts::all(w).into_iter().chain(registered::arguments(w));
        let roots = own.iter().map(|step| step.object).chain(main).chain(kept);
        close.add_small(w, types, roots.chain(others.iter().map(|step| step.object)), budget);
        close.has_all_modules = true;
        let put_off = std::mem::take(&mut close.put_off);
        close.objects.extend(put_off);
        let modules = close.modules.objects.clone();
        close.add_small(w, types, modules.into_iter(), budget);
        close.add_large(w, types, budget);
        close
    }
}

impl Close {
    /// Adds these objects and what they lead to, level by level, as far as that leaves room. Large containers are put off: a set of data
    /// would use up the room of all else.
    ///
    /// # Safety
    /// As [`look`]; the objects are alive.
    pub(super) unsafe fn add_small(
        &mut self,
        w: &World,
        types: &mut Types<'_>,
        roots: impl Iterator<Item = u64>,
        budget: &Budget,
    ) {
        // SAFETY: the caller's promise; what is alive refers to what is.
        unsafe {
            roots.for_each(|object| self.add(w, types, object));
            while let Some(object) = self.next([MOST, REFERENCES, TENSORS].map(|n| n / 2), budget) {
                match w.python.entries(object, types.of(object).class).filter(|n| *n > FEW) {
                    Some(n) => self.large.push((n, object)),
                    None => self.go_on(w, types, object),
                }
            }
        }
    }

    /// Goes on from the large containers, the smallest first, and from what they lead to.
    ///
    /// # Safety
    /// As [`look`].
    pub(super) unsafe fn add_large(&mut self, w: &World, types: &mut Types<'_>, budget: &Budget) {
        let mut large = std::mem::take(&mut self.large);
        large.sort_by_key(|(n, _)| *n);
        // SAFETY: the caller's promise; what is alive refers to what is.
        unsafe {
            for (_, object) in large {
                // Each may take milliseconds.
                if self.met >= REFERENCES || budget.is_all_used() {
                    return;
                }
                self.go_on(w, types, object);
            }
            while let Some(object) = self.next([MOST, REFERENCES, TENSORS], budget) {
                self.go_on(w, types, object);
            }
        }
    }

    /// The next object to go on from, where there is room for more objects, references and tensors, and time.
    fn next(&mut self, [objects, met, tensors]: [usize; 3], budget: &Budget) -> Option<u64> {
        let has_room = self.objects.len() < objects && self.met < met && self.tensors.len() < tensors;
        let object = *self.objects.get(self.done).filter(|_| has_room && !self.is_late(budget))?;
        self.done += 1;
        Some(object)
    }

    /// Where the machine is busy it takes longer: to begin again, among all objects, would take longer still.
    fn is_late(&self, budget: &Budget) -> bool {
        self.done.is_multiple_of(STRIDE) && budget.is_all_used()
    }

    /// Notes what an object refers to.
    ///
    /// # Safety
    /// As [`look`]; the object is alive.
    unsafe fn go_on(&mut self, w: &World, types: &mut Types<'_>, object: u64) {
        // SAFETY: the caller's promise; what is alive refers to what is.
        unsafe {
            below(w, types, object, &mut |w, types, child| {
                if self.met < REFERENCES {
                    self.met += 1;
                    self.add(w, types, child);
                }
            });
        }
    }

    /// Notes an object, where it leads further or is what is looked for.
    ///
    /// # Safety
    /// As [`look`]; the object is alive.
    unsafe fn add(&mut self, w: &World, types: &mut Types<'_>, object: u64) {
        // SAFETY: the caller's promise.
        let kind = unsafe { types.of(object) };
        match kind.class {
            Class::Opaque => return,
            Class::Module if !self.modules.objects.contains(&object) => return,
            Class::Module if !self.has_all_modules && self.modules.main() != Some(object) => return,
            Class::Other if kind.traverse == 0 => return,
            _ if !self.seen.insert(object) => return,
            // SAFETY: the caller's promise.
            Class::Type => match unsafe { w.python.module_of_class(object) } {
                Some(MAIN) => {}
                Some(module) if !self.modules.has(module) => return,
                Some(_) if !self.has_all_modules => return self.put_off.push(object),
                Some(_) => {}
                None => return,
            },
            Class::Storage => return self.storages.push(object),
            Class::Node if self.nodes.len() < TENSORS => return self.nodes.push(object),
            Class::Node => return,
            Class::Tensor if self.tensors.len() < TENSORS => self.tensors.push(object),
            Class::Tensor => return,
            _ => {}
        }
        self.objects.push(object);
    }
}

/// Hands out what lies below an object: no module's globals but those of the user's, no class's bases.
///
/// # Safety
/// As [`look`]; the object is alive.
unsafe fn below(
    w: &World,
    types: &mut Types<'_>,
    object: u64,
    each: &mut impl FnMut(&World, &mut Types<'_>, u64),
) {
    // SAFETY: the caller's promise; a module, a class and a function have these parts.
    unsafe {
        let kind = types.of(object);
        let at = in_function(w.python.minor);
        let parts = match kind.class {
            Class::Type => vec![read(object + TYPE_DICT)],
            Class::Tensor => return w.python.put_on_tensor(object, |child| each(w, types, child)),
            Class::Function => {
                [at.closure, at.defaults, at.keywords, at.dict].map(|part| read(object + part)).to_vec()
            }
            Class::Array => {
                return w.python.elements(object, REFERENCES as u64, &mut |child| each(w, types, child));
            }
            _ => return references(object, kind, &mut |child| each(w, types, child)),
        };
        parts.into_iter().filter(|part| is_address(*part)).for_each(|part| each(w, types, part));
    }
}

/// The modules of the user's own, and what they are called.
///
/// # Safety
/// As [`look`].
unsafe fn modules(w: &World) -> Modules {
    let mut found = Modules::default();
    let all = w.python.modules.map_or(0, |modules| modules());
    // SAFETY: the dictionary of all modules is alive as long as the interpreter is; what is read of a module it has.
    unsafe {
        if is_address(all) {
            w.python.items(all, |name, module| {
                if let Some(name) = w.python.ascii(name)
                    && w.python.is_module(module)
                    && (name == MAIN || is_module_of_user(w, read(module + MODULE_DICT)))
                {
                    found.objects.push(module);
                    found.names.push(name.to_vec());
                }
                true
            });
        }
    }
    found
}

/// Whether a module whose dictionary this is has a file of the user's own.
///
/// # Safety
/// As [`look`]; `dict` is a dictionary that is alive, or no address.
unsafe fn is_module_of_user(w: &World, dict: u64) -> bool {
    let (mut scope, mut left) = (Scope::default(), FIRST);
    // SAFETY: the caller's promise; what a dictionary has is alive.
    unsafe {
        if is_address(dict) {
            w.python.items(dict, |key, value| {
                left -= 1;
                if w.python.ascii(key) == Some(b"__file__") {
                    scope.file = w.python.path(value);
                }
                left > 0 && scope.file.is_none()
            });
        }
    }
    scope.is_of_user()
}
