//! From objects up to what refers to them, until something has a name.
//!
//! A pass looks at all tracked objects from the newest to the oldest, slice by slice: what is kept is mostly younger than what
//! keeps it, so that one pass leads up many levels. It is repeated for what that has added, until nothing is. What is found in a slice gets
//! its name in that slice, while it is known to be alive; between slices nothing but addresses is kept.

use super::budget::Budget;
use super::named::Named;
use super::objects::{Class, Map, references, type_of};
use super::remembered::Remembered;
use super::types::Types;
use super::world::World;
use crate::python::collector::{Reached, Walk};
use std::collections::HashMap;

/// Bits of the filter that most references fail at.
const FILTER: usize = 1 << 19;
/// Most objects that are climbed through.
const MOST: usize = 50_000;
/// Things that a dictionary may have among what is searched, and still be told apart by key.
pub(super) const KEYS: usize = 64;
/// Objects, and references of theirs, between two looks at the clock: a page may have to be fetched for each.
pub(super) const STRIDE: u32 = 16;
const REFERENCES: u32 = 32 * STRIDE;
/// References up that are followed at most.
const LEVELS: u32 = 12;
/// Passes over all objects at most.
const PASSES: u32 = 8;

/// An object on the way.
#[derive(Default)]
struct Seen {
    mask: u64,
    children: Vec<Remembered>,
    /// Samples that the children stand for.
    covered: u64,
    level: u32,
}

/// A climb under way.
#[derive(Default)]
pub(super) struct Climb {
    seen: Map<Seen>,
    /// What this pass looks for, and what the next one will: what was added behind the walk's back.
    wanted: Map<u64>,
    added: Map<u64>,
    filter: Vec<u64>,
    walk: Walk,
    /// A large container that is in the middle of being looked at: its type, and where to go on.
    rest: Option<(Remembered, u64, u64)>,
    /// What has a name.
    pub(super) named: Vec<Named>,
    /// The same by name and object: its place among those.
    pub(super) known: HashMap<(String, u64), usize>,
    /// Samples of each finding.
    pub(super) groups: Vec<u64>,
    passes: u32,
    /// Samples whose holder is final.
    pub(super) done: u64,
}

fn bit(object: u64) -> usize {
    (object >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 45
}

impl Climb {
    /// Begins at objects with the samples that they stand for. `groups`: the samples of each finding.
    pub(super) fn new(from: impl Iterator<Item = (u64, u64)>, groups: Vec<u64>) -> Climb {
        let mut climb = Climb { groups, ..Climb::default() };
        climb.start(&from.collect::<Vec<_>>());
        climb
    }

    /// Begins again, at these as well.
    pub(super) fn start(&mut self, from: &[(u64, u64)]) {
        for &(object, mask) in from {
            *self.added.entry(object).or_default() |= mask;
            self.seen.entry(object).or_default().mask |= mask;
        }
        self.passes = 0;
        self.rise();
    }

    /// Begins the next pass. `false`: there is nothing to look for.
    fn rise(&mut self) -> bool {
        let done = self.done;
        self.wanted =
            std::mem::take(&mut self.added).into_iter().filter(|(_, mask)| mask & !done != 0).collect();
        self.passes += 1;
        self.walk = Walk::default();
        self.filter = vec![0; FILTER / 64];
        for &object in self.wanted.keys() {
            let b = bit(object);
            self.filter.get_mut(b / 64).into_iter().for_each(|w| *w |= 1 << (b % 64));
        }
        !self.wanted.is_empty() && self.passes <= PASSES
    }

    /// Whether all has been found that there is to find.
    fn is_complete(&self) -> bool {
        self.wanted.is_empty() || self.done == self.groups.iter().fold(0, |a, g| a | g)
    }

    /// Objects that were climbed through, with their samples.
    pub(super) fn through(&self) -> impl Iterator<Item = (u64, u64)> {
        self.seen.iter().map(|(object, seen)| (*object, seen.mask))
    }

    /// What was climbed from to an object; `None` where it was not climbed to.
    pub(super) fn children(&self, object: u64) -> Option<&[Remembered]> {
        self.seen.get(&object).map(|s| s.children.as_slice())
    }

    /// A slice of a pass. `true`: the climb is at its end.
    ///
    /// # Safety
    /// With the GIL held and the collector not at work.
    pub(super) unsafe fn go_on(&mut self, w: &World, budget: &Budget) -> bool {
        if self.is_complete() {
            return true;
        }
        let mut types = Types::new(&w.python);
        let mut left = REFERENCES;
        // A large container that the last slice has not come to the end of, where it is still there.
        if let Some((object, kind, from)) = self.rest.take()
            && let Some(object) = object.still(kind)
        {
            // SAFETY: the caller's promise; the object is tracked.
            unsafe { self.look(w, &mut types, object, from, budget) };
            if self.rest.is_some() {
                return false;
            }
        }
        let mut walk = std::mem::take(&mut self.walk);
        // SAFETY: the caller's promise; an object that is handed out is tracked, hence alive, and so is what it refers to.
        let reached = unsafe {
            walk.go_on(w.collector, |object| {
                let (is_more, refers) = self.look(w, &mut types, object, 0, budget);
                left = left.saturating_sub(refers);
                if left == 0 || self.rest.is_some() {
                    left = REFERENCES;
                    return self.rest.is_none() && !budget.is_over();
                }
                !is_more || !self.is_complete()
            })
        };
        self.walk = walk;
        if (reached == Reached::Middle || self.rest.is_some()) && !self.is_complete() {
            return false;
        }
        // SAFETY: the caller's promise.
        unsafe { self.locals(w, &mut types) };
        // Where the lists change too fast, what was found is what there is.
        reached == Reached::Lost || self.is_complete() || !self.rise()
    }

    /// The whole climb among these objects alone, the last first, which were come to from the top at this moment; as far as there is time.
    ///
    /// # Safety
    /// As [`Climb::go_on`]; the objects are alive.
    pub(super) unsafe fn all_at_once(&mut self, w: &World, objects: &[u64], budget: &Budget) {
        let mut types = Types::new(&w.python);
        while !self.is_complete() && !budget.is_over() {
            for &object in objects.iter().rev() {
                let mut from = Some(0);
                while let Some(at) = from {
                    // SAFETY: the caller's promise.
                    unsafe { self.look(w, &mut types, object, at, budget) };
                    from = self.rest.take().map(|(_, _, at)| at).filter(|_| !budget.is_over());
                }
                if self.is_complete() || budget.is_over() {
                    break;
                }
            }
            // SAFETY: the caller's promise.
            unsafe { self.locals(w, &mut types) };
            if !self.rise() {
                break;
            }
        }
    }

    /// Looks at what an object refers to, from a place on; whether it was any of what is looked for, and how much it was.
    ///
    /// # Safety
    /// As [`Climb::go_on`]; the object is alive.
    unsafe fn look(
        &mut self,
        w: &World,
        types: &mut Types<'_>,
        object: u64,
        from: u64,
        budget: &Budget,
    ) -> (bool, u32) {
        let (mut found, mut refers) = (Vec::new(), REFERENCES / STRIDE);
        // SAFETY: the caller's promise, for all of them.
        unsafe {
            let kind = types.of(object);
            let mut each = |child: u64| {
                refers = refers.saturating_add(1);
                let b = bit(child);
                let maybe = self.filter.get(b / 64).is_some_and(|word| word >> (b % 64) & 1 == 1);
                if maybe && self.wanted.contains_key(&child) && !found.contains(&child) {
                    found.push(child);
                }
            };
            if w.python.is_large(object, kind) {
                let mut at = Some(from);
                while let Some(from) = at.filter(|from| *from == 0 || !budget.is_over()) {
                    at = w.python.piece(object, kind, from, &mut each);
                }
                self.rest = at.map(|from| (Remembered::of(object), type_of(object), from));
            } else if kind.class == Class::Tensor {
                // It is never entered; but scripts put attributes and hooks there.
                w.python.put_on_tensor(object, &mut each);
            } else if from == 0 {
                references(object, kind, &mut each);
            }
            let is_more = !found.is_empty();
            for child in found {
                self.settle(w, types, object, child);
            }
            (is_more, refers)
        }
    }

    /// Notes that `parent` refers to `child`, for the next one up.
    pub(super) fn rise_to(&mut self, parent: u64, child: u64) {
        let (mask, level) = self.seen.get(&child).map_or((0, 0), |s| (s.mask, s.level + 1));
        if level > LEVELS || self.seen.len() > MOST {
            return;
        }
        let seen = self.seen.entry(parent).or_insert_with(|| Seen { level, ..Seen::default() });
        // Met before, on the way from other samples: the way on is that of the new ones as well.
        let is_more = mask & !seen.mask != 0;
        seen.mask |= mask;
        seen.level = seen.level.min(level);
        let child = Remembered::of(child);
        // Views of one block are as one: of many, those of all blocks are wanted.
        let is_other = mask & !seen.covered != 0;
        if (seen.children.len() < KEYS || is_other) && !seen.children.contains(&child) {
            seen.covered |= mask;
            seen.children.push(child);
        }
        if is_more {
            let b = bit(parent);
            self.filter.get_mut(b / 64).into_iter().for_each(|w| *w |= 1 << (b % 64));
            *self.wanted.entry(parent).or_default() |= mask;
            *self.added.entry(parent).or_default() |= mask;
        }
    }

    /// Samples below an object, and how far it is above them; `None` where it was not climbed to.
    pub(super) fn below_it(&self, object: u64) -> Option<(u64, u32)> {
        self.seen.get(&object).map(|s| (s.mask, s.level))
    }
}
