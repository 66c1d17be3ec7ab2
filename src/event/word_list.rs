//! Lists of words.

/// Words of a kind, written as a text with a blank between each two.
#[derive(Clone, Copy, Debug)]
pub struct WordList(pub &'static str);

impl WordList {
    /// Whether it is one of them, whole.
    pub fn has(self, word: &str) -> bool {
        self.iter().any(|w| w == word)
    }

    /// One after the other.
    pub fn iter(self) -> std::str::SplitWhitespace<'static> {
        self.0.split_whitespace()
    }
}
