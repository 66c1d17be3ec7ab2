//! The free lists of CPython's lists, dictionaries and tuples, left as they were by Python of ours.
//!
//! What goes to a free list is not counted down by the collector, and what comes from one is not counted up: had we left more of them, the job
//! would count less later. So all that a list has is taken before, and put back after; what ours left there is freed.

use super::collector::Counted;
use super::object::{Object, c_api};
use once_cell::sync::OnceCell;
use std::sync::atomic::Ordering::Relaxed;

/// Most objects of one free list: tuples of a size, 2,000.
const MOST: usize = 2048;
/// Up to which size tuples have free lists.
const TUPLES: isize = 20;

c_api! {
    /// The C API of what has free lists.
    struct Api {
        dict: c"PyDict_New" = extern "C" fn() -> Object,
        list: c"PyList_New" = extern "C" fn(isize) -> Object,
        tuple: c"PyTuple_New" = extern "C" fn(isize) -> Object,
        untrack: c"PyObject_GC_UnTrack" = extern "C" fn(Object),
        free: c"PyObject_GC_Del" = extern "C" fn(Object),
        release: c"Py_DecRef" = extern "C" fn(Object),
    }
}

/// Looked up once: the loader's lock may be another thread's that waits for the GIL.
fn api() -> Option<&'static Api> {
    static API: OnceCell<Option<Api>> = OnceCell::new();
    API.get_or_init(Api::look_up).as_ref()
}

impl Api {
    /// An empty object of each sort that has a free list of its own: a dictionary, a list, tuples by size.
    fn empty(&self, sort: isize) -> Object {
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
            let object = self.empty(sort);
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
