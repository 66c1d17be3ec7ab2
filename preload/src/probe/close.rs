//! What the user's own names lead to, from the top down, at one moment: local variables, then globals of the user's modules, then other
//! locals, level by level. Most holders are among some thousand objects there, so that the hundred thousands that Python tracks need not
//! be looked at.

use super::budget::Budget;
use super::contexts;
use super::layout::{MODULE_DICT, in_function};
use super::names::Scope;
use super::near;
use super::objects::{Class, TYPE_DICT, Types, references};
use super::registered;
use super::world::World;
use crate::platform::memory::{is_address, read};
use std::collections::HashSet;

/// Objects that are gone on from, tensors, and things in all of them, at most.
const MOST: usize = 16_384;
const TENSORS: usize = 4_096;
const REFERENCES: usize = 131_072;
/// Entries of a module's dictionary among which its file is looked for.
const FIRST: u32 = 16;
/// Objects between two looks at the clock.
const STRIDE: usize = 64;

/// What was come to, in this order.
#[derive(Default)]
pub(super) struct Close {
    /// Objects that refer to others, the nearest to the names first; tensors too, which may have attributes.
    pub(super) objects: Vec<u64>,
    pub(super) tensors: Vec<u64>,
    pub(super) storages: Vec<u64>,
    /// How many of the objects were gone on from.
    done: usize,
    /// Things that were referred to, and which they are.
    met: usize,
    seen: HashSet<u64>,
    modules: Modules,
}

/// Modules of the user's own: a module may be imported under several names.
#[derive(Default)]
struct Modules {
    objects: Vec<u64>,
    names: Vec<Vec<u8>>,
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
        let kept = contexts::all(w).into_iter().chain(registered::arguments(w));
        let roots = own.iter().map(|step| step.object).chain(close.modules.objects.clone()).chain(kept);
        close.add_below(w, types, roots.chain(others.iter().map(|step| step.object)), budget);
        close
    }
}

impl Close {
    /// Adds these objects and what they lead to, level by level.
    ///
    /// # Safety
    /// As [`look`]; the objects are alive.
    pub(super) unsafe fn add_below(
        &mut self,
        w: &World,
        types: &mut Types<'_>,
        roots: impl Iterator<Item = u64>,
        budget: &Budget,
    ) {
        // SAFETY: the caller's promise, for all of them; what is alive refers to what is.
        unsafe {
            roots.for_each(|object| self.add(w, types, object));
            while let Some(&object) = self.objects.get(self.done) {
                let is_enough = self.objects.len() >= MOST || self.met >= REFERENCES;
                // Where the machine is busy it takes longer: to begin again, among all objects, would take longer still.
                if is_enough || self.done.is_multiple_of(STRIDE) && budget.is_all_used() {
                    break;
                }
                self.done += 1;
                below(w, types, object, &mut |w, types, child| {
                    if self.met < REFERENCES {
                        self.met += 1;
                        self.add(w, types, child);
                    }
                });
            }
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
            Class::Opaque | Class::Array => return,
            Class::Module if !self.modules.objects.contains(&object) => return,
            Class::Other if kind.traverse == 0 => return,
            _ if !self.seen.insert(object) => return,
            // SAFETY: the caller's promise.
            Class::Type if !unsafe { is_of(w, object, &self.modules) } => return,
            Class::Storage => return self.storages.push(object),
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
            Class::Tensor => {
                let hooks = w.python.hooks(object).map(|(_, dict)| dict);
                hooks.chain([w.python.own_dict(object)]).collect()
            }
            Class::Function => {
                [at.closure, at.defaults, at.keywords, at.dict].map(|part| read(object + part)).to_vec()
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
                    && (name == b"__main__" || is_module_of_user(w, read(module + MODULE_DICT)))
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

/// Whether a class is of one of these modules, by its own word.
///
/// # Safety
/// As [`look`]; the class is alive.
unsafe fn is_of(w: &World, class: u64, modules: &Modules) -> bool {
    // SAFETY: the caller's promise.
    let module = unsafe { w.python.module_of_class(class) };
    module.is_some_and(|module| modules.names.iter().any(|name| name == module))
}
