//! Holders that were found are looked at again: how many things are in each now. That costs microseconds, and tells what piles up from
//! what is emptied or has reached its end.

use super::layout::MODULE_DICT;
use super::named::{Named, Place, Rank};
use super::objects::{Class, TYPE_DICT};
use super::remembered::Remembered;
use super::types::Types;
use super::verify::has;
use super::world::World;
use crate::platform::memory::read;
use crate::recorder::at_work::in_room;
use serde_json::{Value, json};
use strandline_core::event::Room;

/// After the first look, then at intervals that double, up to the last.
const FIRST: u64 = 100_000_000;
const LONGEST: u64 = 60_000_000_000;
/// Holders that are looked at, and counts of each that are kept.
const HOLDERS: usize = 32;
const COUNTS: usize = 24;

/// Holders and what was counted in them.
pub(super) struct Looks {
    world: World,
    holders: Vec<Counted>,
    /// When the next look is due, on the monotonic clock.
    pub(super) due: u64,
    gap: u64,
}

struct Counted {
    named: Named,
    /// Nanoseconds since the recording began, and how many things were in it.
    counts: Vec<(u64, u64)>,
    /// Of a container of deques that end.
    parts: Option<Parts>,
}

/// How many entries the deques of a container take: its bound, unless more of them come.
#[derive(Clone, Copy, Debug)]
struct Parts {
    most: u64,
    /// Nanoseconds since the recording began: of the first look, of the first one with so many, and of the last one.
    first: u64,
    since: u64,
    last: u64,
}

impl Parts {
    fn new(most: u64, now: u64) -> Parts {
        Parts { most, first: now, since: now, last: now }
    }

    fn note(&mut self, most: u64, now: u64) {
        let since = if most == self.most { self.since } else { now };
        *self = Parts { most, since, last: now, ..*self };
    }

    /// No more have come for as long as they came for.
    fn is_bound(&self) -> bool {
        self.last - self.since >= (self.since - self.first).max(FIRST / 2)
    }
}

impl Looks {
    /// Begins with the holders that a probe has found at `now`, which is `since` after the recording began. What was counted before
    /// goes on.
    pub(super) fn new(world: World, found: Vec<Named>, before: Option<Looks>, now: u64, since: u64) -> Looks {
        let holders = met(before.map(|b| b.holders).unwrap_or_default(), found, since);
        Looks { world, holders, due: now + FIRST, gap: FIRST }
    }

    /// There is something to look at.
    pub(super) fn is_worth(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Counts.
    ///
    /// # Safety
    /// With the GIL held.
    pub(super) unsafe fn look(&mut self, now: u64, since: u64) {
        let _at_work = in_room(Room::Probe);
        (self.due, self.gap) = (now + self.gap, (self.gap * 2).min(LONGEST));
        if self.world.collector.is_at_work() {
            return;
        }
        let mut types = Types::new(&self.world.python);
        for h in &mut self.holders {
            // SAFETY: the caller's promise, and the collector is not at work; what a name has is alive.
            let count = unsafe {
                let object = current(&self.world, &mut types, &h.named);
                object.and_then(|o| self.world.python.counted_with_most(o, types.of(o).class))
            };
            if let Some((count, most)) = count {
                h.note(since, count);
                h.parts.iter_mut().zip(most).for_each(|(parts, most)| parts.note(most, since));
            }
        }
    }

    /// What was counted: for each name moments and counts, in their order; of deques that end, `most`: how many entries those take that there are
    /// now; `open`: more deques may come, so that these set no limit.
    pub(super) fn to_json(&self) -> Value {
        let open = |h: &Counted| h.parts.is_some_and(|p| !p.is_bound());
        let most = |h: &Counted| h.parts.map(|p| p.most);
        let one = |h: &Counted| json!({ "name": h.named.place, "counts": h.counts, "most": most(h), "open": open(h) });
        self.holders.iter().map(one).collect()
    }
}

/// The holders from before, and those that were found now with what is in them. What was not found again was not counted again.
fn met(before: Vec<Counted>, found: Vec<Named>, since: u64) -> Vec<Counted> {
    let mut all = before;
    for named in found {
        let entries = named.entries.unwrap_or(0);
        let at = all.iter().position(|h| h.named.place == named.place).unwrap_or(all.len());
        match all.get_mut(at) {
            Some(known) => {
                // What another object has under this name is no more and no less than what the first one had. A global is its module's, or its
                // dictionary's.
                if known.named.owner != named.owner && named.rank != Rank::Global {
                    known.counts.clear();
                    known.parts = None;
                }
                known.named = named;
            }
            None if at == HOLDERS => break,
            None => all.push(Counted { named, counts: Vec::new(), parts: None }),
        }
        if let Some(h) = all.get_mut(at) {
            h.note(since, entries);
            if let Some(bound) = h.named.bound.filter(|b| b.is_of_parts) {
                h.parts.get_or_insert(Parts::new(bound.most, since)).note(bound.most, since);
            }
        }
    }
    all
}

impl Counted {
    /// The first, the last and every fall are kept.
    fn note(&mut self, since: u64, count: u64) {
        if self.counts.last().is_some_and(|(at, _)| *at == since) {
            return; // the same look, by another way
        }
        let fell = self.counts.last().is_some_and(|(_, last)| count < *last);
        if self.counts.len() >= COUNTS && !fell || self.counts.len() >= 2 * COUNTS {
            self.counts.pop();
        }
        self.counts.push((since, count));
    }
}

/// What a name has now: maybe another object than it had.
///
/// # Safety
/// With the GIL held and the collector not at work.
unsafe fn current(w: &World, types: &mut Types<'_>, named: &Named) -> Option<u64> {
    // SAFETY: the caller's promise; an owner that is tracked and of its type is alive, and so is what it has.
    unsafe {
        if named.rank == Rank::Local && named.owner == Remembered::NONE {
            let mut found = None;
            w.frames.as_ref()?.locals(&w.python, w.interpreter, &mut |v| {
                if found.is_none() && Place::variable(w, Rank::Local, v, 0).text == named.place {
                    found = Some(v.value);
                }
            });
            return found;
        }
        let owner = named.owner.still(named.owner_kind)?;
        let (mut found, variable) = (None, named.scope.variable.as_str());
        let mut take = |key: u64, value: u64| {
            if w.python.text(key) == variable {
                found = Some(value);
            }
            found.is_none()
        };
        match types.of(owner).class {
            Class::Module => w.python.items(read(owner + MODULE_DICT), &mut take),
            Class::Type => w.python.items(read(owner + TYPE_DICT), &mut take),
            Class::Dict => w.python.items(owner, &mut take),
            Class::Instance => {
                w.python.attributes(owner, &mut take);
                if found.is_none() && named.has_modules {
                    found = w.python.submodule(owner, |key, _| key == variable);
                }
            }
            _ => found = has(w, types, named),
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_is_not_found_again_is_not_counted_again() {
        let named = super::super::named::tests::named;
        let all = met(Vec::new(), vec![named("a", 1, true, 3), named("b", 1, true, 4)], 1);
        let mut all = met(all, vec![named("b", 1, true, 5)], 2);
        all[0].note(3, 90);
        let all = met(all, Vec::new(), 4);
        let counts: Vec<&[(u64, u64)]> = all.iter().map(|h| h.counts.as_slice()).collect();
        assert_eq!(counts, [&[(1, 30), (3, 90)], &[(1, 40), (2, 50)]]);
    }

    #[test]
    fn another_objects_attribute_is_counted_anew() {
        let named = super::super::named::tests::named;
        let all = met(Vec::new(), vec![named("Session.turns", 1, true, 3)], 1);
        let other = Named { owner: Remembered::of(7), ..named("Session.turns", 1, true, 2) };
        let all = met(all, vec![other.clone()], 2);
        assert_eq!(all[0].counts, [(2, 20)]);
        // Its own attribute may have got a new list meanwhile: that was emptied.
        let all = met(all, vec![Named { object: Remembered::of(8), ..other }], 3);
        assert_eq!(all[0].counts, [(2, 20), (3, 20)]);
    }

    #[test]
    fn the_first_the_last_and_every_fall_are_kept() {
        let mut c = Counted {
            named: super::super::named::tests::named("x", 1, true, 1),
            counts: Vec::new(),
            parts: None,
        };
        (0..40).for_each(|i| c.note(i, i));
        assert_eq!((c.counts[0], c.counts.len(), c.counts[COUNTS - 1]), ((0, 0), COUNTS, (39, 39)));
        c.note(40, 3);
        c.note(41, 4);
        assert_eq!(c.counts[COUNTS - 1..], [(39, 39), (41, 4)]);
    }

    #[test]
    fn deques_are_a_bound_once_no_more_of_them_come() {
        let looks = |all: &[(u64, u64)]| {
            let mut parts = Parts::new(all[0].1, all[0].0);
            all.iter().for_each(|(now, most)| parts.note(*most, *now));
            parts.is_bound()
        };
        assert!(!looks(&[(0, 40)]) && looks(&[(0, 40), (FIRST, 40)]));
        assert!(!looks(&[(0, 40), (FIRST, 80), (3 * FIRST, 160)]), "one for each request");
        assert!(looks(&[(0, 40), (FIRST, 80), (3 * FIRST, 80)]), "one for each class");
    }
}
