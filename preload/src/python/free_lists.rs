//! The free lists of CPython's lists, dictionaries and tuples, left as they were by Python of ours.
//!
//! What goes to a free list is not counted down by the collector, and what comes from one is not counted up: had we left more of them, the job
//! would count less later. So all that a list has is taken before, and put back after; what ours left there is freed.

use super::collector::Counted;
use super::object::Object;
use crate::platform::real;
use once_cell::sync::OnceCell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// Most objects of one free list: tuples of a size, 2,000.
const MOST: usize = 2048;
/// Up to which size tuples have free lists.
const TUPLES: isize = 20;

type New = extern "C" fn() -> Object;
type Sized = extern "C" fn(isize) -> Object;
type Give = extern "C" fn(Object);

/// The C API of what has free lists.
struct Api {
    dict: New,
    list: Sized,
    tuple: Sized,
    untrack: Give,
    free: Give,
    release: Give,
}

/// Looked up once: the loader's lock may be another thread's that waits for the GIL.
fn api() -> Option<&'static Api> {
    static API: OnceCell<Option<Api>> = OnceCell::new();
    let find = |name: &CStr| Some(real::python(name)).filter(|p| !p.is_null());
    let look_up = || {
        let sized = |name: &CStr| {
            // SAFETY: both functions are part of the stable C API with this type.
            find(name).map(|p| unsafe { core::mem::transmute::<*mut c_void, Sized>(p) })
        };
        let give = |name: &CStr| {
            // SAFETY: all three functions take an object, by a pointer, and return nothing, in every version.
            find(name).map(|p| unsafe { core::mem::transmute::<*mut c_void, Give>(p) })
        };
        Some(Api {
            // SAFETY: part of the stable C API with this type.
            dict: unsafe { core::mem::transmute::<*mut c_void, New>(find(c"PyDict_New")?) },
            list: sized(c"PyList_New")?,
            tuple: sized(c"PyTuple_New")?,
            untrack: give(c"PyObject_GC_UnTrack")?,
            free: give(c"PyObject_GC_Del")?,
            release: give(c"Py_DecRef")?,
        })
    };
    API.get_or_init(look_up).as_ref()
}

impl Api {
    /// An empty object of each sort that has a free list of its own: a dictionary, a list, tuples by size.
    fn new(&self, sort: isize) -> Object {
        match sort {
            -1 => (self.dict)(),
            0 => (self.list)(0),
            size => (self.tuple)(size),
        }
    }

    /// All that a free list has, the first one first, and one that was made: that one is counted.
    fn take(&self, sort: isize, young: &Counted) -> Vec<Object> {
        let before = young.count.load(Relaxed);
        let mut taken = Vec::new();
        while taken.len() <= MOST && young.count.load(Relaxed) == before {
            let object = self.new(sort);
            if object.is_null() {
                break;
            }
            // Nobody is to come across it.
            (self.untrack)(object);
            taken.push(object);
        }
        taken
    }
}

/// What the free lists had, by sort.
pub(super) struct FreeLists(Vec<Vec<Object>>);

impl FreeLists {
    fn sorts() -> core::ops::RangeInclusive<isize> {
        -1..=TUPLES
    }

    /// Takes all. With the GIL held, while no collection begins and `young` is counted by allocations alone.
    pub(super) fn take(young: &Counted) -> Option<FreeLists> {
        api().map(|a| FreeLists(Self::sorts().map(|sort| a.take(sort, young)).collect()))
    }

    /// Puts back what was taken, and frees what has come since.
    pub(super) fn put_back(self, young: &Counted) {
        let Some(a) = api() else { return };
        for (sort, taken) in Self::sorts().zip(self.0) {
            let come = a.take(sort, young);
            // The last one that was taken came from no free list.
            let (first, last) = taken.split_at(taken.len().saturating_sub(1));
            // As their type frees them: they are empty, untracked, and ours alone.
            come.iter().chain(last).for_each(|o| (a.free)(*o));
            first.iter().rev().for_each(|o| (a.release)(*o));
        }
    }

    /// Gives all back, where the free lists are not known any more.
    pub(super) fn release(self) {
        if let Some(a) = api() {
            self.0.into_iter().flatten().for_each(|o| (a.release)(o));
        }
    }
}
