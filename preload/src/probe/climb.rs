//! From objects up to what refers to them, level by level, until something has a name.
//!
//! A level is one pass over all tracked objects, cut into parts that each take a slice: which part an object belongs to is
//! decided by its address, so that nothing but addresses is kept in between. What is found in a slice gets its name in that
//! slice, while it is known to be alive.

use super::Budget;
use super::World;
use super::objects::{Class, Kind, Map, TYPE_DICT, Types, read, references};
use std::collections::HashSet;

/// Bits of the filter that most references fail at.
const FILTER: usize = 1 << 19;
/// Most references that are followed from one level to the next.
const MOST: usize = 20_000;
/// Things that a dictionary may have among what is searched, and still be told apart by key.
const KEYS: usize = 64;
/// A container with so many entries is one that things pile up in.
const MANY: u64 = 16;
/// Objects between two looks at the clock.
pub(super) const STRIDE: u32 = 512;
/// References up that are followed at most.
const LEVELS: u32 = 8;

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
    /// A local variable.
    Local,
}

/// Something with a name, below which samples are.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// The name: types and attributes, never values.
    pub(super) place: String,
    /// What kind of place.
    pub(super) rank: Rank,
    /// What the name stands for.
    pub(super) object: u64,
    /// Its type.
    pub(super) kind: String,
    /// How many things are in it, where it is a container.
    pub(super) entries: Option<u64>,
    /// Samples below it.
    pub(super) mask: u64,
    /// Nothing above it needs to be looked for.
    pub(super) is_final: bool,
    /// Levels above the tensors.
    pub(super) level: u32,
}

/// An object on the way.
#[derive(Default)]
struct Seen {
    mask: u64,
    children: Vec<u64>,
}

/// A climb under way.
pub(super) struct Climb {
    seen: Map<Seen>,
    frontier: Map<u64>,
    next: Map<u64>,
    filter: Vec<u64>,
    /// What has a name.
    pub(super) named: Vec<Named>,
    known: HashSet<(String, u64)>,
    /// Samples of each finding.
    groups: Vec<u64>,
    level: u32,
    /// Samples whose holder is final.
    pub(super) done: u64,
}

fn bit(object: u64) -> usize {
    (object >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 45
}

impl Climb {
    /// Begins at objects with the samples that they stand for. `groups`: the samples of each finding.
    pub(super) fn new(from: impl Iterator<Item = (u64, u64)>, groups: Vec<u64>) -> Climb {
        let mut climb = Climb {
            seen: Map::default(),
            frontier: Map::default(),
            next: Map::default(),
            filter: Vec::new(),
            named: Vec::new(),
            known: HashSet::new(),
            groups,
            level: 0,
            done: 0,
        };
        for (object, mask) in from {
            *climb.next.entry(object).or_default() |= mask;
            climb.seen.entry(object).or_default().mask |= mask;
        }
        climb
    }

    /// Goes on to the next level. `false`: there is none.
    pub(super) fn rise(&mut self) -> bool {
        let done = self.done;
        self.frontier =
            std::mem::take(&mut self.next).into_iter().filter(|(_, mask)| mask & !done != 0).collect();
        self.level += 1;
        self.filter = vec![0; FILTER / 64];
        for &object in self.frontier.keys() {
            let b = bit(object);
            self.filter.get_mut(b / 64).into_iter().for_each(|w| *w |= 1 << (b % 64));
        }
        !self.frontier.is_empty() && self.level <= LEVELS
    }

    /// Objects that were climbed through, with their samples.
    pub(super) fn through(&self) -> impl Iterator<Item = (u64, u64)> {
        self.seen.iter().map(|(object, seen)| (*object, seen.mask))
    }

    /// A part of the level. `false`: the budget did not suffice.
    ///
    /// # Safety
    /// With the GIL held and the collector not at work.
    pub(super) unsafe fn pass(&mut self, w: &World, (part, parts): (u64, u64), budget: &Budget) -> bool {
        let mut types = Types::new(&w.python);
        let mut edges: Vec<(u64, u64)> = Vec::new();
        let (mut left, mut whole) = (STRIDE, true);
        let (filter, frontier) = (&self.filter, &self.frontier);
        w.collector.walk(|object| {
            left -= 1;
            if left == 0 {
                left = STRIDE;
                whole = !budget.is_over();
            }
            if (object >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 & (parts - 1) != part {
                return whole;
            }
            // SAFETY: the object is tracked, hence alive.
            unsafe {
                let kind = types.of(object);
                references(object, kind, &mut |child| {
                    let b = bit(child);
                    let maybe = filter.get(b / 64).is_some_and(|word| word >> (b % 64) & 1 == 1);
                    if maybe && frontier.contains_key(&child) && edges.len() < MOST {
                        edges.push((object, child));
                    }
                });
            }
            whole
        });
        if !whole {
            return false;
        }
        for (parent, child) in edges {
            // SAFETY: both were just met, and nothing has run since.
            unsafe { self.settle(w, &mut types, parent, child) };
        }
        if let (0, Some(frames)) = (part, &w.frames) {
            let mut locals = Vec::new();
            // SAFETY: the GIL is held, and `World` has frames only where their layout is proved.
            unsafe {
                frames.locals(&w.python, w.interpreter, &mut |value, name| {
                    if self.frontier.contains_key(&value) && locals.len() < KEYS {
                        locals.push((value, name()));
                    }
                });
                for (value, name) in locals {
                    self.name(w, &mut types, Rank::Local, name, value);
                }
            }
        }
        true
    }

    /// Notes that `parent` refers to `child`, and what that is called.
    ///
    /// # Safety
    /// Both are alive; with the GIL held.
    unsafe fn settle(&mut self, w: &World, types: &mut Types<'_>, parent: u64, child: u64) {
        // SAFETY: the caller's promise; a module's dictionary, a function's closure and qualified name lie where they do.
        unsafe {
            let kind = types.of(parent);
            let name = || w.python.type_name(super::objects::type_of(parent));
            match kind.class {
                Class::Module if read(parent + MODULE_DICT) == child => {
                    let name = w.python.text(read(parent + MODULE_NAME));
                    return self.entries(w, types, Rank::Global, &name, child);
                }
                Class::Type if read(parent + TYPE_DICT) == child => {
                    let name = w.python.type_name(parent);
                    return self.entries(w, types, Rank::OfClass, &name, child);
                }
                Class::Function if w.python.minor >= 10 && read(parent + CLOSURE) == child => {
                    let name = w.python.text(read(parent + QUALNAME));
                    let cells = self.seen.get(&child).map(|s| s.children.clone()).unwrap_or_default();
                    for cell in cells {
                        let inside = self.seen.get(&cell).map(|s| s.children.clone()).unwrap_or_default();
                        for object in inside {
                            self.name(w, types, Rank::Closure, format!("a closure of {name}"), object);
                        }
                    }
                    return;
                }
                Class::Module | Class::Type | Class::Function => return,
                Class::Frame => {
                    return self.name(w, types, Rank::Local, "a local of a frame that is kept".into(), child);
                }
                Class::Instance if w.python.own_dict(parent) == child => {
                    self.entries(w, types, Rank::Attribute, &name(), child);
                }
                Class::Instance => {
                    if let Some(attribute) = w.python.own_attribute(parent, child) {
                        self.name(w, types, Rank::Attribute, format!("{}.{attribute}", name()), child);
                    }
                }
                _ => {}
            }
            let mask = self.seen.get(&child).map_or(0, |s| s.mask);
            let is_new = !self.seen.contains_key(&parent);
            let seen = self.seen.entry(parent).or_default();
            // Met before, on the way from other samples: the way on is that of the new ones as well.
            let is_more = mask & !seen.mask != 0;
            seen.mask |= mask;
            if seen.children.len() < KEYS && !seen.children.contains(&child) {
                seen.children.push(child);
            }
            if is_new || is_more || self.next.contains_key(&parent) {
                *self.next.entry(parent).or_default() |= mask;
            }
        }
    }

    /// Names what is in a dictionary of attributes.
    ///
    /// # Safety
    /// As [`Climb::settle`].
    unsafe fn entries(&mut self, w: &World, types: &mut Types<'_>, rank: Rank, owner: &str, dict: u64) {
        let children = self.seen.get(&dict).map(|s| s.children.clone()).unwrap_or_default();
        let mut found = Vec::new();
        // SAFETY: the dictionary is alive: its owner refers to it.
        unsafe {
            if types.of(dict).class != Class::Dict {
                return;
            }
            w.python.items(dict, |key, value| {
                if children.contains(&value) {
                    found.push((w.python.text(key), value));
                }
                found.len() < KEYS
            });
            for (key, value) in found {
                self.name(w, types, rank, format!("{owner}.{key}"), value);
            }
        }
    }

    /// Gives an object a name.
    ///
    /// # Safety
    /// As [`Climb::settle`].
    unsafe fn name(&mut self, w: &World, types: &mut Types<'_>, rank: Rank, place: String, object: u64) {
        let mask = self.seen.get(&object).map_or(0, |s| s.mask);
        if mask == 0 || !self.known.insert((place.clone(), object)) {
            return;
        }
        // SAFETY: the caller's promise.
        let (kind, name, entries) = unsafe {
            let kind: Kind = types.of(object);
            let name = w.python.type_name(super::objects::type_of(object));
            (kind, name, w.python.entries(object, kind.class))
        };
        let samples: u32 = self.groups.iter().filter(|g| *g & mask != 0).map(|g| g.count_ones()).sum();
        let piles = kind.class.is_container()
            && (entries.is_some_and(|n| n >= MANY) || mask.count_ones() * 4 >= samples);
        let is_final = piles || matches!(rank, Rank::Global | Rank::OfClass);
        if is_final {
            self.done |= mask;
        }
        let level = self.level;
        self.named.push(Named { place, rank, object, kind: name, entries, mask, is_final, level });
    }
}

/// Module: its dictionary, its name.
const MODULE_DICT: u64 = 16;
const MODULE_NAME: u64 = 48;
/// Function (from 3.10): qualified name, closure.
const QUALNAME: u64 = 40;
const CLOSURE: u64 = 72;
