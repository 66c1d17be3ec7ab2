//! What things are called that were climbed to: attributes, globals, locals, variables of closures, defaults of arguments.

use super::climb::{Climb, KEYS};
use super::contexts;
use super::layout::{MODULE_DICT, in_function, module_name};
use super::named::{Place, Rank};
use super::names::Scope;
use super::objects::{Class, TYPE_DICT};
use super::registered;
use super::types::Types;
use super::world::World;
use crate::platform::memory::read;

/// A container with so many entries is one that things pile up in.
const MANY: u64 = 16;

impl Climb {
    /// Names local variables of running frames, and what `atexit` has, for what has no final name yet.
    ///
    /// # Safety
    /// With the GIL held.
    pub(super) unsafe fn locals(&mut self, w: &World, types: &mut Types<'_>) {
        // SAFETY: the GIL is held; what is registered is alive.
        let registered = unsafe { registered::arguments(w) };
        let is_wanted = |o: &u64| self.below_it(*o).is_some_and(|(mask, _)| mask & !self.done != 0);
        for object in registered.into_iter().filter(is_wanted).collect::<Vec<u64>>() {
            // SAFETY: as above.
            unsafe { self.name(w, types, registered::place(), object) };
        }
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
                // What has the tensor has its attributes, too, but no way down leads through it.
                Class::Tensor if w.python.own_dict(parent) == child => {
                    return self.entries(w, types, parent, child);
                }
                Class::Tensor => {
                    let hooks = w.python.hooks(parent).find(|(_, dict)| *dict == child);
                    let own = || w.python.own_attribute(parent, |value| value == child);
                    let name =
                        hooks.map(|(name, _)| name.to_string()).or_else(|| own().map(|(name, _)| name));
                    if let Some(name) = name {
                        let place = Place::attribute(w, types, parent, name);
                        self.name(w, types, place, child);
                    }
                    return;
                }
                Class::Module | Class::Type => return,
                Class::Function if !has_of_its_own(w, parent, child) => return,
                Class::Function => self.of_function(w, types, parent, child),
                Class::Frame | Class::Generator => self.of_frame(w, types, parent, child),
                Class::Instance if w.python.own_dict(parent) == child => {
                    self.entries(w, types, parent, child);
                }
                Class::Instance => {
                    if let Some((attribute, _)) = w.python.own_attribute(parent, |value| value == child) {
                        let place = Place::attribute(w, types, parent, attribute);
                        self.name(w, types, place, child);
                        self.submodules(w, types, parent, child);
                    }
                }
                Class::Other => {
                    if let Some(variable) = contexts::variable(w, parent, child) {
                        self.name(w, types, contexts::place(w, variable, parent), child);
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
            let said = w.python.qualname_of(function);
            if w.python.closure_of(function) == child {
                for (i, object) in self.inside_cells(w, child) {
                    self.name(w, types, Place::closed_over(w, function, i), object);
                }
                return;
            }
            let mut found = Vec::new();
            if read(function + at.defaults) == child {
                let count = w.python.entries(child, Class::Tuple).unwrap_or(0);
                for i in 0..count.min(KEYS as u64) {
                    let object = w.python.entry(child, i).filter(|o| self.was_below(child, *o));
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
            let is_kept = is_frame && !w.frames.as_ref().is_some_and(|f| f.is_of_generator(parent));
            let rank = if is_kept { Rank::Frame } else { Rank::Generator };
            let Some(frames) = &w.frames else {
                let (text, scope) = ("a local of a frame that is kept".to_string(), Scope::default());
                return self.name(w, types, Place { rank, text, scope, owner: parent }, child);
            };
            let object = match w.python.in_cell(child) {
                Some(inside) if self.was_below(child, inside) => inside,
                _ => child,
            };
            if let Some(v) = frames.variable_in(&w.python, parent, is_frame, |value| value == object) {
                self.name(w, types, Place::variable(w, rank, v, parent), object);
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
                    // Every module has that; it is called as a module of its own.
                    Class::Module if key == "__builtins__" => continue,
                    Class::Module => {
                        let text =
                            format!("{}.{key}", w.python.text(read(owner + module_name(w.python.minor))));
                        let scope = w.python.scope_in_module(dict, key);
                        Place { rank: Rank::Global, text, scope, owner }
                    }
                    Class::Type => Place::of_class(w, types, owner, key),
                    _ => Place::attribute(w, types, owner, key),
                };
                self.name(w, types, place, value);
                if class == Class::Instance {
                    self.submodules(w, types, owner, value);
                }
            }
        }
    }

    /// Names the containers of modules or parameters that are submodules of a module, where `dict` has these: to Python they are no attributes of it.
    ///
    /// # Safety
    /// Both are alive; with the GIL held.
    unsafe fn submodules(&mut self, w: &World, types: &mut Types<'_>, owner: u64, dict: u64) {
        // SAFETY: the caller's promise; what a dictionary has is alive.
        unsafe {
            if !w.python.is_dict(dict) || w.python.submodules(owner) != Some(dict) {
                return;
            }
            for (key, object) in self.among(w, dict) {
                let mask = self.below_it(object).map_or(0, |(mask, _)| mask);
                if self.are_of_modules(mask) && w.python.in_modules(object).is_some() {
                    let place = Place::attribute(w, types, owner, key);
                    self.name(w, types, place, object);
                }
            }
        }
    }

    /// Whether any of these samples is a parameter or a buffer of a module, as far as was climbed.
    fn are_of_modules(&self, mask: u64) -> bool {
        self.named.iter().any(|n| n.part == Some("module") && n.mask & mask != 0)
    }

    /// What was climbed from in a dictionary, with the keys.
    ///
    /// # Safety
    /// The dictionary is alive; with the GIL held.
    unsafe fn among(&self, w: &World, dict: u64) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        // SAFETY: the caller's promise; a key is alive.
        unsafe {
            w.python.items(dict, |key, value| {
                if self.was_below(dict, value) {
                    found.push((w.python.text(key), value));
                }
                found.len() < KEYS
            });
        }
        found
    }

    /// Whether an object that is alive was climbed from to another one.
    fn was_below(&self, above: u64, object: u64) -> bool {
        self.children(above).is_some_and(|all| all.iter().any(|child| child.is(object)))
    }

    /// What the cells of a closure have at this moment, where that was climbed from: the cell's place, and the object. What they had when they
    /// were climbed through may be gone.
    ///
    /// # Safety
    /// The closure is a tuple that is alive; with the GIL held.
    unsafe fn inside_cells(&self, w: &World, closure: u64) -> Vec<(u64, u64)> {
        // SAFETY: the caller's promise.
        let all = unsafe { w.python.closed_over(closure) };
        all.filter(|(_, cell, object)| self.was_below(*cell, *object)).map(|(i, _, o)| (i, o)).collect()
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
        let is_of_modules = self.are_of_modules(mask);
        let Some(named) = self.named.get_mut(at) else { return };
        // What is kept by the way in a module is not an entry of the container that has the module.
        if named.has_modules && !is_of_modules {
            named.entries = None;
        }
        // It was met before, on the way from fewer of them.
        named.mask |= mask;
        // Python's queues and caches count what they have, with a bound or without.
        let is_wrapping = matches!(class, Class::Instance | Class::Other) && named.entries.is_some();
        let is_container = class.is_container() || named.bound.is_some() || is_wrapping;
        // The layers of a large model are many from the beginning: there most of the samples tell.
        let is_full = !named.has_modules && named.entries.is_some_and(|n| n >= MANY);
        let share = if named.has_modules { 2 } else { 4 };
        named.piles |= is_container && (is_full || named.mask.count_ones() * share >= samples);
        named.is_final |= named.piles || matches!(named.rank, Rank::Global | Rank::OfClass);
        if named.is_final && !named.is_wrapper {
            self.done |= named.mask;
        }
        self.set_apart(at);
    }

    /// Looks on above the containers of one name that have the samples one after another, each from when the last was done with: who has these
    /// containers is what grows.
    fn set_apart(&mut self, at: usize) {
        /// Samples of two, and of more, that lie so by chance in one case of fifteen at most.
        const OF_TWO: u32 = 4;
        const SAMPLES: u32 = 6;
        let Some(named) = self.named.get(at).filter(|n| n.piles && n.rank == Rank::Attribute) else { return };
        let place = named.place.clone();
        let are_apart = |group: &u64| {
            let mine = self.named.iter().filter(|n| n.place == place).map(|n| n.mask & group);
            let mut masks: Vec<u64> = mine.filter(|mask| *mask != 0).collect();
            masks.sort_unstable();
            let is_after =
                |pair: &[u64]| matches!(*pair, [a, b] if 64 - a.leading_zeros() <= b.trailing_zeros());
            let samples: u32 = masks.iter().map(|m| m.count_ones()).sum();
            let is_no_chance = match masks.as_slice() {
                [a, b] => a.count_ones().min(b.count_ones()) >= OF_TWO,
                all => all.len() > 2 && samples >= SAMPLES,
            };
            is_no_chance && masks.windows(2).all(is_after)
        };
        if !self.groups.iter().any(are_apart) {
            return;
        }
        for n in self.named.iter_mut().filter(|n| n.place == place) {
            (n.is_final, n.piles) = (false, false);
        }
        let final_ones = self.named.iter().filter(|n| n.is_final && !n.is_wrapper);
        self.done = final_ones.fold(0, |done, n| done | n.mask);
    }

    /// Samples of the findings that some of these samples are of.
    fn samples(&self, mask: u64) -> u32 {
        self.groups.iter().filter(|g| *g & mask != 0).map(|g| g.count_ones()).sum()
    }
}

/// Whether a function has an object of its own. Its globals and builtins are its module's.
///
/// # Safety
/// `function` is alive.
unsafe fn has_of_its_own(w: &World, function: u64, child: u64) -> bool {
    let at = in_function(w.python.minor);
    // SAFETY: the caller's promise; a function has these parts.
    [at.closure, at.defaults, at.keywords, at.dict]
        .iter()
        .any(|part| unsafe { read(function + part) } == child)
}

#[cfg(test)]
mod tests {
    use super::super::named::Named;
    use super::super::named::tests::named;
    use super::*;

    #[test]
    fn containers_that_are_filled_one_after_another_are_not_what_grows() {
        let done = |masks: &[u64]| {
            let of = |mask: &u64| named("Metric.values", *mask, true, 2);
            let other = Named { is_wrapper: true, ..named("Other.list", 0xf000, true, 2) };
            let all: Vec<Named> = masks.iter().map(of).chain([other]).collect();
            let found = masks.iter().fold(0, |all, mask| all | mask);
            let mut climb = Climb::new([].into_iter(), vec![0x0fff, 0xf000]);
            climb.named = all;
            climb.done = found;
            climb.set_apart(0);
            climb.done
        };
        assert_eq!(done(&[0b1110_0000_0000, 0b1_1110_0000, 0b1_1111]), 0);
        // Lists of layers have what is of every age; two may have it by chance.
        assert_eq!(done(&[0b1010_1010, 0b101_0101, 0xf00]), 0xfff);
        assert_eq!((done(&[0xfc0, 0x7]), done(&[0xfc0, 0x3f])), (0xfc7, 0));
    }
}
