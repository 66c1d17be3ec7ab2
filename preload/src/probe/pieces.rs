//! Large containers, piece by piece: a list of a million entries would be a slice of its own.

use super::budget::Budget;
use super::layout::{LIST_ITEMS, tuple_items};
use super::objects::{Class, HEAP_TYPE, Kind, Python, TYPE_FLAGS, references, type_of};
use crate::platform::memory::is_address;
use crate::platform::memory::read;

/// References of a large container that are handed out at once.
pub(super) const PIECE: u64 = 4_096;

impl Python {
    /// Whether an object refers to more than can be handed out at once: a list, a tuple, a dictionary or a set,
    /// or an instance of a class made from one.
    ///
    /// # Safety
    /// `object` must be alive and of this kind.
    pub(super) unsafe fn is_large(&self, object: u64, kind: Kind) -> bool {
        // SAFETY: the caller's promise.
        matches!(kind.class, Class::List | Class::Tuple | Class::Dict | Class::Set)
            && unsafe { self.entries(object, kind.class) }.is_some_and(|n| n > PIECE)
    }

    /// Hands out what an object refers to, large or not; `false`: not all, there was no time.
    ///
    /// # Safety
    /// As [`references`].
    pub(super) unsafe fn all_references<F: FnMut(u64)>(
        &self,
        object: u64,
        kind: Kind,
        budget: &Budget,
        each: &mut F,
    ) -> bool {
        // SAFETY: the caller's promise, for all of them.
        unsafe {
            if !self.is_large(object, kind) {
                references(object, kind, each);
                return true;
            }
            let mut at = Some(0);
            while let Some(from) = at.filter(|_| !budget.is_far_over()) {
                at = self.piece(object, kind, from, each);
            }
            at.is_none()
        }
    }

    /// Hands out the elements of an array of numpy's that has objects (`dtype=object`), one after the other as they lie; up to `most`.
    ///
    /// # Safety
    /// `array` must be a `numpy.ndarray` that is alive; with the GIL held.
    pub(super) unsafe fn elements(&self, array: u64, most: u64, each: &mut impl FnMut(u64)) {
        const DATA: u64 = 16;
        const DIMENSIONS: u64 = 24;
        const SIZES: u64 = 32;
        const DESCRIPTION: u64 = 56;
        const FLAGS: u64 = 64;
        const KIND: u64 = 24;
        const CONTIGUOUS: u64 = 1 | 2;
        // SAFETY: the caller's promise; an array has these fields, in every version of numpy, and so has its description. One that is contiguous
        // has as many elements as its sizes make, each an object that is alive, or none.
        unsafe {
            let (data, count) = (read(array + DATA), read(array + DIMENSIONS) as u32);
            let (sizes, kind) = (read(array + SIZES), read(array + DESCRIPTION));
            let is_of_objects = is_address(kind) && read(kind + KIND) as u8 == b'O';
            if !is_of_objects || read(array + FLAGS) & CONTIGUOUS == 0 || !(1..=32).contains(&count) {
                return;
            }
            let sizes = (0..u64::from(count)).map(|i| read(sizes + 8 * i));
            let all = sizes.fold(1, u64::saturating_mul);
            (0..all.min(most)).map(|i| read(data + 8 * i)).filter(|o| *o != 0).for_each(each);
        }
    }

    /// Hands out some of what a large container refers to, from a place on; the place to go on at.
    ///
    /// # Safety
    /// `object` must be alive and large; with the GIL held.
    pub(super) unsafe fn piece(
        &self,
        object: u64,
        kind: Kind,
        from: u64,
        each: &mut impl FnMut(u64),
    ) -> Option<u64> {
        // Of a set: entries that its table has, less one, and where that is; an entry is the object and its hash.
        const SET_MASK: u64 = 32;
        const SET_TABLE: u64 = 40;
        // SAFETY: every type has flags; an instance of a script's class has its attributes as such instances have.
        unsafe {
            if from == 0 && read(type_of(object) + TYPE_FLAGS) & HEAP_TYPE != 0 {
                self.own_parts(object, &mut *each);
            }
        }
        if kind.class == Class::Dict {
            let (mut at, mut key, mut value) = (from as isize, 0, 0);
            for _ in 0..PIECE {
                // A place behind the end is told as the end.
                if (self.next)(object, &mut at, &mut key, &mut value) == 0 {
                    return None;
                }
                each(key);
                each(value);
            }
            return Some(at as u64);
        }
        if kind.class == Class::Set {
            // SAFETY: a set has a table with as many entries as it says, each an object that is alive, or none.
            unsafe {
                let (count, table) = (read(object + SET_MASK) + 1, read(object + SET_TABLE));
                let to = count.min(from.saturating_add(PIECE));
                (from..to).map(|i| read(table + 16 * i)).filter(|child| *child != 0).for_each(each);
                return (to < count).then_some(to);
            }
        }
        // SAFETY: a list points to its entries, a tuple ends with them; there are as many as it says.
        unsafe {
            let items = match kind.class {
                Class::List => read(object + LIST_ITEMS),
                _ => object + tuple_items(self.minor),
            };
            let count = self.entries(object, kind.class).unwrap_or(0);
            let to = count.min(from.saturating_add(PIECE));
            (from..to).map(|i| read(items + 8 * i)).filter(|child| *child != 0).for_each(each);
            (to < count).then_some(to)
        }
    }
}
