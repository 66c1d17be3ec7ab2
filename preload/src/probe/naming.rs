//! What things are called that were climbed to: attributes, globals, locals, variables of closures, defaults of arguments.

use super::World;
use super::bound::Bound;
use super::climb::{Climb, KEYS};
use super::frames::Variable;
use super::names::Scope;
use super::objects::{Class, Kind, TYPE_DICT, Types, read, references, type_of};
use super::verify::{MODULE_DICT, MODULE_NAME, in_function};

/// A container with so many entries is one that things pile up in.
const MANY: u64 = 16;

/// What kind of a place a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// An attribute of an instance.
    Attribute,
    /// A global of a module.
    Global,
    /// An attribute of a class.
    OfClass,
    /// A variable that a function has closed over.
    Closure,
    /// The default of an argument, or an attribute of a function.
    Default,
    /// A local variable.
    Local,
    /// A local variable of a generator.
    Generator,
    /// A local variable of a frame that runs no more, and is kept by a traceback.
    Frame,
}

impl Rank {
    /// What has such a name is no garbage, whatever cycles it is in.
    pub(super) fn is_root(self) -> bool {
        matches!(self, Rank::Global | Rank::OfClass | Rank::Local)
    }

    /// As the answer has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Rank::Attribute => "attribute",
            Rank::Global => "global",
            Rank::OfClass => "class",
            Rank::Closure => "closure",
            Rank::Default => "default",
            Rank::Local => "local",
            Rank::Generator => "generator",
            Rank::Frame => "frame",
        }
    }
}

/// Something with a name, below which samples are.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// The name: types and attributes, never values.
    pub(super) place: String,
    /// Where the name stands.
    pub(super) scope: Scope,
    /// What kind of place.
    pub(super) rank: Rank,
    /// What the name stands for.
    pub(super) object: u64,
    /// What has it under this name, and the type of that; 0 of a running function's local variable.
    pub(super) owner: u64,
    pub(super) owner_kind: u64,
    /// Its type.
    pub(super) kind: String,
    /// How many things are in it, where it is a container, and where it ends.
    pub(super) entries: Option<u64>,
    pub(super) bound: Option<Bound>,
    /// It is an optimizer's or a module's.
    pub(super) part: Option<&'static str>,
    /// Samples below it.
    pub(super) mask: u64,
    /// Nothing above it needs to be looked for.
    pub(super) is_final: bool,
    /// It is a container that they pile up in.
    pub(super) piles: bool,
    /// The class that has it only wraps what somebody keeps.
    pub(super) is_wrapper: bool,
    /// Levels above the tensors.
    pub(super) level: u32,
    /// It was seen to be there still, after all the walks.
    pub(super) is_verified: bool,
    /// The name has another object by now, whose graph keeps the samples.
    pub(super) is_rebound: bool,
}

/// A name that is to be given: what kind of place, how it reads, where it stands, and what has it.
pub(super) struct Place {
    pub(super) rank: Rank,
    pub(super) text: String,
    pub(super) scope: Scope,
    pub(super) owner: u64,
}

impl Place {
    /// An attribute of an instance of a class.
    ///
    /// # Safety
    /// `owner` is an instance that is alive; with the GIL held.
    pub(super) unsafe fn attribute(w: &World, owner: u64, name: String) -> Place {
        // SAFETY: the caller's promise.
        unsafe {
            let class = type_of(owner);
            let text = format!("{}.{name}", w.python.type_name(class));
            Place { rank: Rank::Attribute, text, scope: w.python.scope_in_class(class, name), owner }
        }
    }

    /// A variable of a frame.
    ///
    /// # Safety
    /// As the frame's code: alive.
    pub(super) unsafe fn variable(w: &World, rank: Rank, v: Variable, owner: u64) -> Place {
        // SAFETY: the caller's promise.
        unsafe {
            let scope = w.python.scope_in_code(v.code, w.python.variable(v));
            let function = scope.function.as_deref().unwrap_or("?");
            Place { rank, text: format!("{}, a local of {function}", scope.variable), scope, owner }
        }
    }

    /// What a name stands for.
    ///
    /// # Safety
    /// `object` is alive, as is the owner; with the GIL held.
    pub(super) unsafe fn named(
        self,
        w: &World,
        types: &mut Types<'_>,
        object: u64,
        (mask, level): (u64, u32),
    ) -> Named {
        // SAFETY: the caller's promise.
        unsafe {
            let kind: Kind = types.of(object);
            let owner_kind = if self.owner != 0 { type_of(self.owner) } else { 0 };
            let is_instance = self.owner != 0 && types.of(self.owner).class == Class::Instance;
            let part = if self.rank == Rank::Attribute && is_instance {
                w.python.part_in_training(owner_kind, &self.scope.variable)
            } else {
                None
            };
            Named {
                kind: w.python.type_name(type_of(object)),
                entries: w.python.entries(object, kind.class),
                bound: w.python.bound(object, kind.class, if is_instance { self.owner } else { 0 }),
                part,
                is_wrapper: self.rank == Rank::Attribute && self.scope.is_wrapper(),
                place: self.text,
                scope: self.scope,
                rank: self.rank,
                object,
                owner: self.owner,
                owner_kind,
                mask,
                level,
                is_final: false,
                piles: false,
                is_verified: false,
                is_rebound: false,
            }
        }
    }
}

impl Climb {
    /// Names local variables of running frames, for what has no final name yet.
    ///
    /// # Safety
    /// With the GIL held.
    pub(super) unsafe fn locals(&mut self, w: &World, types: &mut Types<'_>) {
        let Some(frames) = &w.frames else { return };
        let mut locals = Vec::new();
        // SAFETY: the GIL is held, and `World` has frames only where their layout is proved.
        unsafe {
            frames.locals(&w.python, w.interpreter, &mut |v| {
                let is_wanted = self.below_it(v.value).is_some_and(|(mask, _)| mask & !self.done != 0);
                if is_wanted && locals.len() < KEYS {
                    locals.push(v);
                }
            });
            for v in locals {
                self.name(w, types, Place::variable(w, Rank::Local, v, 0), v.value);
            }
        }
    }

    /// Notes that `parent` refers to `child`, and what that is called.
    ///
    /// # Safety
    /// Both are alive; with the GIL held.
    pub(super) unsafe fn settle(&mut self, w: &World, types: &mut Types<'_>, parent: u64, child: u64) {
        // SAFETY: the caller's promise; a module's dictionary, a class's and a function's parts lie where they do.
        unsafe {
            match types.of(parent).class {
                Class::Module if read(parent + MODULE_DICT) == child => {
                    return self.entries(w, types, parent, child);
                }
                Class::Type if read(parent + TYPE_DICT) == child => {
                    return self.entries(w, types, parent, child);
                }
                Class::Module | Class::Type => return,
                Class::Function => self.of_function(w, types, parent, child),
                Class::Frame | Class::Generator => self.of_frame(w, types, parent, child),
                Class::Instance if w.python.own_dict(parent) == child => {
                    self.entries(w, types, parent, child);
                }
                Class::Instance => {
                    if let Some(attribute) = w.python.own_attribute(parent, child) {
                        self.name(w, types, Place::attribute(w, parent, attribute), child);
                    }
                }
                _ => {}
            }
        }
        self.rise_to(parent, child);
    }

    /// Names what a function keeps: in the variables that it has closed over, as defaults of its arguments, as its attributes.
    ///
    /// # Safety
    /// As [`Climb::settle`].
    unsafe fn of_function(&mut self, w: &World, types: &mut Types<'_>, function: u64, child: u64) {
        let at = in_function(w.python.minor);
        // SAFETY: the caller's promise; a function has these parts.
        unsafe {
            let code = w.python.code_of(function);
            let said = w.python.text(read(function + at.name));
            if read(function + at.closure) == child {
                for (cell, object) in self.inside_cells(child) {
                    let mut i = 0;
                    while w.python.entry(child, i).is_some_and(|c| c != cell) {
                        i += 1;
                    }
                    let variable = w.python.free_variable(code, i).unwrap_or_default();
                    let scope = w.python.scope_in_code(code, variable);
                    let text = format!("a closure of {said}");
                    self.name(w, types, Place { rank: Rank::Closure, text, scope, owner: function }, object);
                }
                return;
            }
            let mut found = Vec::new();
            if read(function + at.defaults) == child {
                let count = w.python.entries(child, Class::Tuple).unwrap_or(0);
                for i in 0..count.min(KEYS as u64) {
                    let object = w.python.entry(child, i).filter(|o| self.children_of(child).contains(o));
                    let name = object.and_then(|_| w.python.argument(code, i, count));
                    found.extend(name.zip(object));
                }
            } else if [read(function + at.keywords), read(function + at.dict)].contains(&child)
                && w.python.is_dict(child)
            {
                found = self.among(w, child);
            }
            let is_own = read(function + at.dict) == child;
            for (name, object) in found {
                let text = match is_own {
                    true => format!("{said}.{name}"),
                    false => format!("{name}, a default of {said}"),
                };
                let scope = w.python.scope_in_code(code, name);
                self.name(w, types, Place { rank: Rank::Default, text, scope, owner: function }, object);
            }
        }
    }

    /// Names a local variable of a frame or a generator that does not run.
    ///
    /// # Safety
    /// As [`Climb::settle`].
    unsafe fn of_frame(&mut self, w: &World, types: &mut Types<'_>, parent: u64, child: u64) {
        // SAFETY: the caller's promise; `World` has frames only where their layout is proved.
        unsafe {
            let is_frame = types.of(parent).class == Class::Frame;
            let rank = if is_frame { Rank::Frame } else { Rank::Generator };
            let Some(frames) = &w.frames else {
                let (text, scope) = ("a local of a frame that is kept".to_string(), Scope::default());
                return self.name(w, types, Place { rank, text, scope, owner: parent }, child);
            };
            let inside = match w.python.is_cell(child) {
                true => self.children_of(child),
                false => vec![child],
            };
            for object in inside {
                if let Some(v) = frames.variable_in(&w.python, parent, is_frame, object) {
                    self.name(w, types, Place::variable(w, rank, v, parent), object);
                }
            }
        }
    }

    /// Names what is in a dictionary of attributes or globals.
    ///
    /// # Safety
    /// As [`Climb::settle`].
    unsafe fn entries(&mut self, w: &World, types: &mut Types<'_>, owner: u64, dict: u64) {
        // SAFETY: the dictionary is alive: its owner refers to it.
        unsafe {
            if types.of(dict).class != Class::Dict {
                return;
            }
            let class = types.of(owner).class;
            for (key, value) in self.among(w, dict) {
                let place = match class {
                    Class::Module => {
                        let text = format!("{}.{key}", w.python.text(read(owner + MODULE_NAME)));
                        let scope = w.python.scope_in_module(dict, key);
                        Place { rank: Rank::Global, text, scope, owner }
                    }
                    Class::Type => {
                        let text = format!("{}.{key}", w.python.type_name(owner));
                        let scope = w.python.scope_in_class(owner, key);
                        Place { rank: Rank::OfClass, text, scope, owner }
                    }
                    _ => Place::attribute(w, owner, key),
                };
                self.name(w, types, place, value);
            }
        }
    }

    /// What was climbed from in a dictionary, with the keys.
    ///
    /// # Safety
    /// The dictionary is alive; with the GIL held.
    unsafe fn among(&self, w: &World, dict: u64) -> Vec<(String, u64)> {
        let (children, mut found) = (self.children_of(dict), Vec::new());
        // SAFETY: the caller's promise; a key is alive.
        unsafe {
            w.python.items(dict, |key, value| {
                if children.contains(&value) {
                    found.push((w.python.text(key), value));
                }
                found.len() < KEYS
            });
        }
        found
    }

    fn children_of(&self, object: u64) -> Vec<u64> {
        self.children(object).map(<[u64]>::to_vec).unwrap_or_default()
    }

    /// Cells of a closure that were climbed through, each with what was climbed from in it.
    fn inside_cells(&self, closure: u64) -> Vec<(u64, u64)> {
        let cells = self.children_of(closure).into_iter();
        cells.flat_map(|cell| self.children_of(cell).into_iter().map(move |o| (cell, o))).collect()
    }

    /// Gives an object a name.
    ///
    /// # Safety
    /// As [`Climb::settle`].
    unsafe fn name(&mut self, w: &World, types: &mut Types<'_>, place: Place, object: u64) {
        let (mask, level) = self.below_it(object).map_or((0, 0), |(mask, level)| (mask, level + 1));
        if mask == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        let class = unsafe { types.of(object).class };
        let (new, samples) = (self.named.len(), self.samples(mask));
        let at = *self.known.entry((place.text.clone(), object)).or_insert(new);
        if at == new {
            // SAFETY: the caller's promise.
            self.named.push(unsafe { place.named(w, types, object, (mask, level)) });
        }
        let Some(named) = self.named.get_mut(at) else { return };
        // It was met before, on the way from fewer of them.
        named.mask |= mask;
        let is_container = class.is_container() || named.bound.is_some();
        let is_full = named.entries.is_some_and(|n| n >= MANY);
        named.piles |= is_container && (is_full || named.mask.count_ones() * 4 >= samples);
        named.is_final |= named.piles || matches!(named.rank, Rank::Global | Rank::OfClass);
        if named.is_final && !named.is_wrapper {
            self.done |= named.mask;
        }
    }

    /// Samples of the findings that some of these samples are of.
    fn samples(&self, mask: u64) -> u32 {
        self.groups.iter().filter(|g| *g & mask != 0).map(|g| g.count_ones()).sum()
    }
}

/// Hands out what an object refers to, where it is one of these: whether `to` is among it.
///
/// # Safety
/// `from` must be alive; with the GIL held and the collector not at work.
pub(super) unsafe fn refers(types: &mut Types<'_>, from: u64, to: u64) -> bool {
    let mut found = false;
    // SAFETY: the caller's promise.
    unsafe {
        let kind = types.of(from);
        references(from, kind, &mut |child| found |= child == to);
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A name of a dictionary: a global where it is one of `__main__`, else an attribute.
    pub(in crate::probe) fn named(place: &str, mask: u64, is_final: bool, level: u32) -> Named {
        let rank = if place.starts_with("__main__") { Rank::Global } else { Rank::Attribute };
        Named {
            place: place.into(),
            scope: Scope::default(),
            rank,
            object: 1,
            owner: 2,
            owner_kind: 3,
            kind: "dict".to_string(),
            entries: Some(u64::from(level) * 10),
            bound: None,
            part: None,
            mask,
            is_final,
            piles: is_final,
            is_wrapper: false,
            level,
            is_verified: true,
            is_rebound: false,
        }
    }
}
