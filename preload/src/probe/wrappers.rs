//! What torch has in C++ for an object of Python's: hooks of nodes, what hooks have made of a saved tensor, notes of anomaly mode.

use crate::platform::memory::{self, is_address};
use crate::platform::pages::Pages;
use crate::python::tracked::are_tracked;
use std::collections::HashMap;

/// Its classes, as their type information is called, and where objects of Python's are in them: what packs, what unpacks and what was packed; the
/// dictionary of hooks; the one of notes, behind a text and a reference to a node, which is one word or two.
const CLASSES: [(&[u8], &[usize]); 5] = [
    (b"N5torch8autograd20PySavedVariableHooksE\0", &[1, 2, 3]),
    (b"N5torch8autograd23PyFunctionTensorPreHookE\0", &[1]),
    (b"N5torch8autograd17PyFunctionPreHookE\0", &[1]),
    (b"N5torch8autograd18PyFunctionPostHookE\0", &[1]),
    (b"N5torch8autograd17PyAnomalyMetadataE\0", &[6, 7]),
];
/// The same of the first where each is an object and its interpreter, and whether they are there (2.15).
const WITH_INTERPRETERS: &[usize] = &[1, 4, 7];
/// Words of such a one that are looked at.
const WORDS: usize = 10;

/// By their vtables, where those of a class have objects; nowhere: it is none of these.
#[derive(Default)]
pub(super) struct Wrappers(HashMap<u64, &'static [usize]>);

impl Wrappers {
    /// The objects of Python's that each of these refers to at this moment. With the GIL held, while the collector is not at work; the addresses may
    /// be those of anything.
    pub(super) fn behind(&mut self, pages: &Pages, at: &[u64]) -> Vec<Vec<u64>> {
        let heads: Vec<(u64, usize)> = at.iter().map(|at| (*at, WORDS)).collect();
        let objects = |words: Vec<u64>| {
            let places = words.first().map_or(&[][..], |vtable| self.places(*vtable));
            let places =
                if places.len() == 3 && has_interpreters(&words) { WITH_INTERPRETERS } else { places };
            places.iter().filter_map(|at| words.get(*at).copied()).collect()
        };
        let all: Vec<Vec<u64>> = pages.ranges(&heads).into_iter().map(objects).collect();
        // What such a one refers to is alive; but one that is gone may lie there as it was.
        let mut tracked = are_tracked(pages, &all.concat()).into_iter();
        let kept = |objects: Vec<u64>| {
            objects.into_iter().zip(tracked.by_ref()).filter_map(|(o, is)| is.then_some(o)).collect()
        };
        all.into_iter().map(kept).collect()
    }

    fn places(&mut self, vtable: u64) -> &'static [usize] {
        self.0.entry(vtable).or_insert_with(|| {
            let name = name_of_class(vtable);
            CLASSES.iter().find(|(text, _)| is_text(name, text)).map_or(&[], |(_, places)| places)
        })
    }
}

/// Whether these words of hooks of a saved tensor are objects with their interpreters, which is one for all of them.
fn has_interpreters(words: &[u64]) -> bool {
    matches!(*words, [_, _, a, is, _, b, are, ..] if a == b && is_address(a) && [is, are].iter().all(|w| *w as u8 == 1))
}

/// Where the name of a class lies that this may be the vtable of; 0: nowhere.
fn name_of_class(vtable: u64) -> u64 {
    let info = if is_address(vtable) { memory::at::<1>(vtable - 8) } else { None };
    info.and_then(|[info]| memory::at::<2>(info)).map_or(0, |[_, name]| name)
}

/// Whether this text lies at an address.
pub(super) fn is_text(at: u64, text: &[u8]) -> bool {
    let mut parts = (0..).step_by(8).zip(text.chunks(8));
    at != 0 && parts.all(|(i, part)| memory::is_text(at.wrapping_add(i), part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_interpreters_are_told_from_those_without() {
        let [pack, unpack, data, interpreter] =
            [0x5555_0000_1000, 0x5555_0000_2000, 0x5555_0000_3000, 0x7f00_0000_1000];
        let with = [7, pack, interpreter, 1, unpack, interpreter, 0xff01, data, interpreter, 1];
        assert!(has_interpreters(&with));
        assert!(!has_interpreters(&[7, pack, unpack, data, 0, 49, 1, 2, 3, 4]));
        assert!(!has_interpreters(&with[..4]), "no more can be read");
    }
}
