//! Large containers, piece by piece: a list of a million entries would be a slice of its own.

use super::objects::{Class, HEAP_TYPE, Kind, Python, SIZE, TYPE_FLAGS, read, type_of};

/// References of a large container that are handed out at once.
pub(super) const PIECE: u64 = 16_384;

impl Python {
    /// Whether an object refers to more than can be handed out at once: one of CPython's own lists, tuples and dictionaries.
    ///
    /// # Safety
    /// `object` must be alive and of this kind.
    pub(super) unsafe fn is_large(&self, object: u64, kind: Kind) -> bool {
        // SAFETY: the caller's promise; these three count their entries there, and every type has flags.
        matches!(kind.class, Class::List | Class::Tuple | Class::Dict)
            && unsafe { read(object + SIZE) > PIECE && read(type_of(object) + TYPE_FLAGS) & HEAP_TYPE == 0 }
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
        const ITEMS: u64 = 24;
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
        // SAFETY: a list points to its entries, a tuple ends with them; there are as many as it says.
        unsafe {
            let items = if kind.class == Class::List { read(object + ITEMS) } else { object + ITEMS };
            let count = read(object + SIZE);
            let to = count.min(from.saturating_add(PIECE));
            (from..to).map(|i| read(items + 8 * i)).filter(|child| *child != 0).for_each(each);
            (to < count).then_some(to)
        }
    }
}
