//! Things by number, in the order in which they were first met: each is written once, and named by its number after that.

use rustc_hash::FxHashMap;
use std::borrow::Borrow;
use std::hash::Hash;

/// Things and their numbers, which count from 0.
#[derive(Debug)]
pub(super) struct Numbered<T>(FxHashMap<T, usize>);

impl<T: Eq + Hash> Numbered<T> {
    /// None yet.
    pub(super) fn new() -> Numbered<T> {
        Numbered(FxHashMap::default())
    }

    /// The number that stands for this one.
    pub(super) fn number<Q: Eq + Hash + ToOwned<Owned = T> + ?Sized>(&mut self, one: &Q) -> usize
    where
        T: Borrow<Q>,
    {
        if let Some(number) = self.0.get(one) {
            return *number;
        }
        let number = self.0.len();
        self.0.insert(one.to_owned(), number);
        number
    }

    /// All of them in the order of their numbers.
    pub(super) fn list(self) -> Vec<T> {
        let mut list: Vec<(T, usize)> = self.0.into_iter().collect();
        list.sort_unstable_by_key(|(_, number)| *number);
        list.into_iter().map(|(one, _)| one).collect()
    }
}
