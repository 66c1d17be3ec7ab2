//! The last look: what was named is believed only if the whole way from the name to the block is there at one moment.
//!
//! Everything before this was seen slice by slice, and an address that was seen may be another object's by now. So each name is
//! looked at once more, in one slice: its owner lives and still has it under that name; every reference down to a tensor is there;
//! that tensor lies in a block that was asked about, or its graph leads to one, node by node. What does not stand this is not told, and
//! a name counts for those blocks only that it was seen to lead to.

use super::budget::Budget;
use super::climb::Climb;
use super::layout::{MODULE_DICT, in_function, module_name};
use super::named::{Named, Place, Rank};
use super::objects::{Class, TYPE_DICT, references, type_of};
use super::registered;
use super::remembered::Remembered;
use super::types::Types;
use super::world::World;
use crate::platform::memory::read;
use std::collections::HashSet;

/// The object that was named, where what has it has it still.
///
/// # Safety
/// With the GIL held and the collector not at work.
pub(super) unsafe fn has(w: &World, types: &mut Types<'_>, named: &Named) -> Option<u64> {
    let is = |object: u64| named.object.is(object);
    let mut found = None;
    if named.rank == Rank::Local && named.owner == Remembered::NONE {
        // SAFETY: the caller's promise, and `World` has frames only where their layout is proved.
        unsafe {
            w.frames.as_ref()?.locals(&w.python, w.interpreter, &mut |v| {
                let is_it = || is(v.value) && Place::variable(w, Rank::Local, v, 0).text == named.place;
                if found.is_none() && is_it() {
                    found = Some(v.value);
                }
            });
        }
        return found;
    }
    if named.rank == Rank::OfClass && named.owner == Remembered::NONE {
        // SAFETY: the caller's promise.
        return unsafe { registered::arguments(w) }.into_iter().find(|object| is(*object));
    }
    let owner = named.owner.still(named.owner_kind)?;
    // SAFETY: the owner is tracked, hence alive, and so is what it refers to; the rest as in `climb::settle`.
    unsafe {
        let kind = types.of(owner);
        let among = |dict: u64, name: &str, types: &mut Types<'_>| {
            let mut found = None;
            if dict != 0 && types.of(dict).class == Class::Dict {
                w.python.items(dict, |key, value| {
                    let is_it = is(value) && named.place == format!("{name}.{}", w.python.text(key));
                    found = is_it.then_some(value);
                    !is_it
                });
            }
            found
        };
        match kind.class {
            Class::Other => {
                references(owner, kind, &mut |child| found = found.or(is(child).then_some(child)));
                found
            }
            Class::Module => {
                let name = w.python.text(read(owner + module_name(w.python.minor)));
                among(read(owner + MODULE_DICT), &name, types)
            }
            Class::Dict if named.rank == Rank::Global => {
                let name =
                    named.place.strip_suffix(&format!(".{}", named.scope.variable)).unwrap_or_default();
                among(owner, name, types)
            }
            Class::Type => among(read(owner + TYPE_DICT), &w.python.type_name(owner), types),
            Class::Function => {
                let at = in_function(w.python.minor);
                let parts = [at.closure, at.defaults, at.keywords, at.dict].map(|part| read(owner + part));
                let mut inside = Vec::new();
                for part in parts.into_iter().filter(|part| *part != 0) {
                    references(part, types.of(part), &mut |child| inside.push(child));
                }
                let in_cells: Vec<u64> = inside.iter().filter_map(|cell| w.python.in_cell(*cell)).collect();
                inside.into_iter().chain(in_cells).find(|object| is(*object))
            }
            Class::Frame | Class::Generator => {
                let is_frame = kind.class == Class::Frame;
                let variable = w.frames.as_ref().and_then(|f| f.variable_in(&w.python, owner, is_frame, is));
                references(owner, kind, &mut |child| found = found.or(is(child).then_some(child)));
                variable.map(|v| v.value).or(found)
            }
            Class::Instance | Class::Tensor => {
                let name = w.python.type_name(type_of(owner));
                let own = w.python.own_attribute(owner, is);
                let own = own.filter(|(attribute, _)| named.place == format!("{name}.{attribute}"));
                let own = own.map(|(_, object)| object);
                let own = own.or_else(|| among(w.python.own_dict(owner), &name, types));
                let is_hooks =
                    |(hooks, dict): &(&str, u64)| is(*dict) && named.place == format!("{name}.{hooks}");
                let hooks = || w.python.hooks(owner).find(is_hooks).filter(|_| kind.class == Class::Tensor);
                let is_named = |key: &str, object: u64| is(object) && named.place == format!("{name}.{key}");
                let submodule = || w.python.submodule(owner, is_named).filter(|_| named.has_modules);
                own.or_else(|| hooks().map(|(_, dict)| dict)).or_else(submodule)
            }
            _ => None,
        }
    }
}

impl Climb {
    /// The tensors that a named object leads down to, by the references that were climbed, as far as they are there now; whether there was
    /// time for all of them.
    ///
    /// # Safety
    /// The object is alive; with the GIL held and the collector not at work.
    pub(super) unsafe fn below(
        &self,
        w: &World,
        types: &mut Types<'_>,
        object: u64,
        budget: &Budget,
    ) -> (HashSet<u64>, bool) {
        let (mut seen, mut tensors, mut is_whole) = (HashSet::from([object]), HashSet::new(), true);
        let mut level = vec![object];
        while let Some(object) = level.pop() {
            is_whole &= !budget.is_far_over();
            if !is_whole {
                break;
            }
            // SAFETY: the first is alive, the others are referred to by what is.
            let kind = unsafe { types.of(object) };
            if matches!(kind.class, Class::Tensor | Class::Storage | Class::Node) {
                tensors.insert(object);
            } else if let Some(children) = self.children(object)
                && kind.class.is_entered()
            {
                let mut left: HashSet<Remembered> = children.iter().copied().collect();
                // SAFETY: alive, and an object that the collector can enter.
                is_whole &= unsafe {
                    w.python.all_references(object, kind, budget, &mut |child| {
                        if !left.is_empty() && left.remove(&Remembered::of(child)) && seen.insert(child) {
                            level.push(child);
                        }
                    })
                };
            }
        }
        (tensors, is_whole)
    }
}
