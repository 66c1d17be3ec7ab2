//! Autograd functions that are objects of Python's: the contexts of `torch.autograd.Function`, which nodes run.

use super::objects::{BASIC_SIZE, Map, Python, TYPE, TYPE_BASE};
use crate::platform::memory::is_address;
use crate::platform::pages::Pages;
use crate::python::tracked::are_tracked;

/// Most words of such an object.
const MOST: u64 = 128;
/// Bases of a class that are looked at.
const BASES: usize = 16;

/// The words of each of these that is such an object now; none of what is not, or not any more. With the GIL held, while the collector is not
/// at work; the addresses may be those of anything.
pub(super) fn words(python: &Python, pages: &Pages, objects: &[u64]) -> Vec<Vec<u64>> {
    let word = |at: u64| pages.words::<1>(&[at]).pop().flatten().map_or(0, |[word]| word);
    let types: Vec<u64> = objects.iter().map(|o| o.wrapping_add(TYPE)).collect();
    let types = pages.words::<1>(&types).into_iter().map(|kind| kind.map_or(0, |[kind]| kind));
    let mut known: Map<bool> = Map::default();
    let mut is_one = |kind: u64| {
        *known.entry(kind).or_insert_with(|| {
            let bases = std::iter::successors(Some(kind), |t| Some(word(t + TYPE_BASE)));
            bases.take(BASES).take_while(|t| is_address(*t)).any(|t| t == python.autograd)
        })
    };
    let may: Vec<u64> = types.zip(objects).map(|(kind, o)| if is_one(kind) { *o } else { 0 }).collect();
    let size = (word(python.autograd + BASIC_SIZE) / 8).min(MOST) as usize;
    let tracked = may.iter().zip(are_tracked(pages, &may));
    let places: Vec<(u64, usize)> = tracked.map(|(o, is)| (*o, if is { size } else { 0 })).collect();
    pages.ranges(&places)
}
