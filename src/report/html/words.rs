//! Names that the page has once, however many ranks and blocks they are said of.

use rustc_hash::FxHashMap;
use serde_json::Value;

/// The names by their numbers.
#[derive(Debug, Default)]
pub(super) struct Words {
    numbers: FxHashMap<String, usize>,
}

impl Words {
    /// The number that stands for this name.
    pub(super) fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.numbers.len();
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The names in the order of their numbers.
    pub(super) fn list(self) -> Value {
        let mut list: Vec<(String, usize)> = self.numbers.into_iter().collect();
        list.sort_by_key(|(_, number)| *number);
        list.into_iter().map(|(name, _)| name).collect()
    }
}
