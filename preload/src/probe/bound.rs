//! Where a container ends, as it says itself: `deque.maxlen`, the maxsize of `functools.lru_cache`, of `queue.Queue` and its like.

use super::layout::{LIST_ITEMS, tuple_items};
use super::objects::{BASIC_SIZE, Class, HEAP_TYPE, Python, SIZE, TYPE_FLAGS, type_of};
use crate::platform::memory::read;
use std::ffi::CStr;

/// Of a deque: how many entries it takes. The same place from 3.9 to 3.15.
const MAXLEN: u64 = 64;

/// A container's own bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// What says so: `maxlen` or `maxsize`.
    pub(super) what: &'static str,
    /// How many entries at most.
    pub(super) most: u64,
    /// It is that of all the deques of a container, which may get more of them.
    pub(super) is_of_parts: bool,
}

impl Bound {
    fn new(what: &'static str, most: u64) -> Bound {
        Bound { what, most, is_of_parts: false }
    }
}

/// What `functools.lru_cache` has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cached {
    /// Results that it keeps.
    pub(super) entries: u64,
    /// Its maxsize; `None`: it has no bound.
    most: Option<u64>,
}

/// Modules whose classes end where an attribute of theirs says so; 0 or less there is no bound.
const BOUNDED: [&[u8]; 3] = [b"queue", b"asyncio.queues", b"cachetools"];

fn is_bounding(module: &[u8]) -> bool {
    BOUNDED.contains(&module)
}
/// Types of what such a class wraps.
const INNER: [&str; 4] = ["deque", "list", "dict", "OrderedDict"];
/// What such a class, and one of `collections`, has its entries in.
const INSIDE: [&str; 4] = ["queue", "_queue", "_Cache__data", "data"];
const ATTRIBUTES: [&str; 3] = ["maxsize", "_maxsize", "_Cache__maxsize"];

impl Python {
    /// Whether a type is this one, which is written in C: such a one has its module in its name, a class of the program's own that is called the
    /// same has not. `last`: the last place of its objects that is read, which is within them.
    ///
    /// # Safety
    /// `kind` must be a type that is alive.
    unsafe fn is_in_c(&self, kind: u64, name: &CStr, last: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.full_name(kind) == name && read(kind + BASIC_SIZE) >= last + 8 }
    }

    /// Whether a type is `collections.deque` itself.
    ///
    /// # Safety
    /// As [`Python::type_name`].
    pub(super) unsafe fn is_deque(&self, kind: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.is_in_c(kind, c"collections.deque", MAXLEN) }
    }

    /// The results that an object of `functools.lru_cache` keeps; `None` where it is no such object.
    ///
    /// # Safety
    /// `object` must be alive.
    pub(super) unsafe fn cached(&self, object: u64) -> Option<Cached> {
        // Behind the first entry of its list, which begins the object: the dictionary of results, hits, the function, maxsize.
        const CACHE: u64 = 72;
        const MAXSIZE: u64 = 96;
        // SAFETY: the caller's promise, and an object of this type has these fields.
        unsafe {
            if !self.is_in_c(type_of(object), c"functools._lru_cache_wrapper", MAXSIZE) {
                return None;
            }
            let cache = read(object + CACHE);
            if !crate::platform::memory::is_address(cache) || !self.is_dict(cache) {
                return None;
            }
            let most = read(object + MAXSIZE) as i64;
            Some(Cached { entries: read(cache + SIZE), most: u64::try_from(most).ok() })
        }
    }

    /// How many things are in an object that wraps a container of CPython's own: a cache, a queue; `None` where it is no such object.
    ///
    /// # Safety
    /// `object` must be alive; with the GIL held.
    pub(super) unsafe fn wrapped(&self, object: u64) -> Option<u64> {
        // SAFETY: the caller's promise; what an attribute has is alive.
        unsafe {
            if let Some(cached) = self.cached(object) {
                return Some(cached.entries);
            }
            if read(type_of(object) + TYPE_FLAGS) & HEAP_TYPE == 0 {
                return None;
            }
            if let Some(inside) = self.in_modules(object) {
                return Some(read(inside + SIZE));
            }
            if !self.is_bounded(object) {
                return None;
            }
            let mut inside = 0;
            self.attributes(object, |name, value| {
                if self.text(name) != "data" && INSIDE.contains(&self.text(name).as_str()) {
                    inside = value;
                }
                inside == 0
            });
            // A deque, a list and a dictionary all count there.
            let is_one = inside != 0 && INNER.contains(&self.type_name(type_of(inside)).as_str());
            is_one.then(|| read(inside + SIZE))
        }
    }

    /// Whether an instance is of a class that ends where an attribute of it says so.
    ///
    /// # Safety
    /// As [`Python::wrapped`].
    unsafe fn is_bounded(&self, object: u64) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.descends(type_of(object), is_bounding) }
    }

    /// Whether an attribute of a class is where a class of Python's library that it is made from has its entries: of a script's own class
    /// that is made from `queue.Queue` or `collections.UserList`.
    ///
    /// # Safety
    /// `class` must be a class that is alive; with the GIL held.
    pub(super) unsafe fn is_inside(&self, class: u64, attribute: &str) -> bool {
        // SAFETY: the caller's promise.
        INSIDE.contains(&attribute)
            && unsafe { self.descends(class, |m| m == b"collections" || is_bounding(m)) }
    }

    /// How many things are in a container, and how many at most, where all that it has is deques that end.
    ///
    /// # Safety
    /// `object` must be alive, and of this class; with the GIL held.
    unsafe fn in_deques(&self, object: u64, class: Class) -> Option<(u64, u64)> {
        const DEQUES: u64 = 1_024;
        let (mut all, mut is_one) = ((0, 0), true);
        let mut each = |child: u64| {
            // SAFETY: the caller's promise; what a container has is alive, and a deque has its maxlen there.
            let found = unsafe {
                let most = self.is_deque(type_of(child)).then(|| read(child + MAXLEN) as i64);
                most.and_then(|m| u64::try_from(m).ok()).map(|most| (read(child + SIZE), most))
            };
            is_one &= found.is_some();
            all = found.map_or(all, |(n, most)| (all.0 + n, all.1 + most));
            is_one
        };
        // SAFETY: the caller's promise.
        unsafe {
            if !(1..=DEQUES).contains(&self.entries(object, class)?) {
                return None;
            }
            match class {
                Class::Dict => self.items(object, |_, value| each(value)),
                Class::List | Class::Tuple => {
                    let items = match class {
                        Class::List => read(object + LIST_ITEMS),
                        _ => object + tuple_items(self.minor),
                    };
                    (0..read(object + SIZE)).all(|i| each(read(items + 8 * i)));
                }
                _ => return None,
            }
        }
        is_one.then_some(all)
    }

    /// How many things a count of a container is about: those in the deques that it consists of, or its own.
    ///
    /// # Safety
    /// As [`Python::bound`].
    pub(super) unsafe fn counted(&self, object: u64, class: Class) -> Option<u64> {
        // SAFETY: the caller's promise.
        unsafe { self.counted_with_most(object, class) }.map(|(n, _)| n)
    }

    /// The same, and how many at most, where it consists of deques that end.
    ///
    /// # Safety
    /// As [`Python::bound`].
    pub(super) unsafe fn counted_with_most(&self, object: u64, class: Class) -> Option<(u64, Option<u64>)> {
        // SAFETY: the caller's promise.
        unsafe {
            let parts = self.in_deques(object, class).map(|(n, most)| (n, Some(most)));
            parts.or_else(|| Some((self.entries(object, class)?, None)))
        }
    }

    /// Where an object ends by itself, or by the attribute of the instance that has it.
    ///
    /// # Safety
    /// Both must be alive, or `owner` 0; with the GIL held.
    pub(super) unsafe fn bound(&self, object: u64, class: Class, owner: u64) -> Option<Bound> {
        // SAFETY: the caller's promise; a deque has its maxlen there.
        unsafe {
            if class == Class::Deque
                && let Ok(most) = u64::try_from(read(object + MAXLEN) as i64)
            {
                return Some(Bound::new("maxlen", most));
            }
            if let Some((_, most)) = self.in_deques(object, class) {
                return Some(Bound { is_of_parts: true, ..Bound::new("maxlen", most) });
            }
            if let Some(cached) = self.cached(object) {
                return cached.most.map(|most| Bound::new("maxsize", most));
            }
            let of_itself = self.maxsize(object, class);
            of_itself.or_else(|| if owner != 0 { self.maxsize(owner, Class::Instance) } else { None })
        }
    }

    /// The maxsize of an instance whose class is known to end there.
    ///
    /// # Safety
    /// As [`Python::bound`].
    unsafe fn maxsize(&self, object: u64, class: Class) -> Option<Bound> {
        if class != Class::Instance {
            return None;
        }
        let mut most = None;
        // SAFETY: the caller's promise; what an attribute has is alive.
        unsafe {
            if !self.is_bounded(object) {
                return None;
            }
            self.attributes(object, |name, value| {
                if ATTRIBUTES.contains(&self.text(name).as_str()) {
                    most = self.small_number(value);
                }
                most.is_none()
            });
        }
        most.filter(|n| *n > 0).map(|most| Bound::new("maxsize", most))
    }

    /// A number of one digit of Python's (30 bits), where it is one and is not negative.
    ///
    /// # Safety
    /// `object` must be alive.
    unsafe fn small_number(&self, object: u64) -> Option<u64> {
        // SAFETY: the caller's promise; an integer has its size and digits there.
        unsafe {
            let kind = type_of(object);
            if read(kind + TYPE_FLAGS) & HEAP_TYPE != 0 || self.full_name(kind) != c"int" {
                return None;
            }
            let is_one = match self.minor {
                ..=11 => read(object + SIZE) == 1,
                _ => read(object + SIZE) & !4 == 1 << 3,
            };
            is_one.then(|| u64::from(read(object + 24) as u32))
        }
    }
}
