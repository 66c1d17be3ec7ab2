//! Cards that people rent, and whether a job fits on one.

use crate::size;
use std::str::FromStr;

/// MiB that CUDA reports as a card's total memory: the least that out-of-memory messages of PyTorch's users show ("has a total capacity
/// of 23.52 GiB"), rounded down; the H200's is measured (docs/measurements.md).
const CARDS: [(&str, u64); 15] = [
    ("RTX 4060", 7_900),
    ("RTX 3060", 12_000),
    ("T4", 14_900),
    ("V100 16GB", 16_100),
    ("L4", 22_400),
    ("A10G", 22_400),
    ("RTX 3090", 24_000),
    ("RTX 4090", 24_000),
    ("RTX 5090", 32_000),
    ("A100 40GB", 40_300),
    ("L40S", 45_300),
    ("RTX A6000", 48_400),
    ("A100 80GB", 81_000),
    ("H100 80GB", 81_000),
    ("H200", 143_100),
];

/// A card, by name or as a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// What it is called.
    pub(crate) name: String,
    /// Its memory, as CUDA reports it.
    pub(crate) bytes: u64,
}

/// All that are known.
pub(crate) fn all() -> Vec<Card> {
    CARDS.iter().map(|(name, mib)| Card { name: (*name).to_owned(), bytes: mib << 20 }).collect()
}

/// Letters and digits alone: `RTX 4090`, `rtx4090` and `RTX-4090` are one.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

impl FromStr for Card {
    type Err = String;

    /// Reads a name (`h100`, `rtx4090`, `4090`, `a100-40gb`) or a size (`24GiB`).
    fn from_str(text: &str) -> Result<Card, String> {
        let wanted = plain(text);
        let is_it = |c: &Card| {
            let name = plain(&c.name);
            name == wanted || name.strip_prefix("rtx") == Some(&wanted)
        };
        let begins = |c: &Card| !wanted.is_empty() && plain(&c.name).starts_with(&wanted);
        // Of two sizes the larger one is what a bare name means nowadays.
        let named = all().into_iter().find(is_it).or_else(|| all().into_iter().rev().find(begins));
        if let Some(card) =
            named.filter(|_| wanted.chars().any(|c| c.is_ascii_alphabetic()) || wanted.len() == 4)
        {
            return Ok(card);
        }
        let size = size::parse_at_least_one_mib(text).map_err(|_| {
            let names: Vec<&str> = CARDS.iter().map(|(name, _)| *name).collect();
            format!("\"{text}\" is neither a size, such as 24GiB, nor one of: {}", names.join(", "))
        })?;
        Ok(Card { name: size.to_string(), bytes: size.0 })
    }
}

/// Whether a job fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fits {
    /// With so many bytes to spare.
    Yes(u64),
    /// Only where PyTorch gives cached memory back in time: so many bytes of it.
    Tight(u64),
    /// So many bytes are missing.
    No(u64),
}

impl Card {
    /// The compute capability to simulate for some cards: with 9.0, PyTorch gives cuBLAS workspaces of 32 MiB, not of 8. A card that is only a
    /// size may be such a one.
    pub(crate) fn capability(cards: &[Card]) -> &'static str {
        let is_hopper = |c: &Card| !CARDS.iter().any(|(name, _)| *name == c.name) || c.name.starts_with("H");
        if cards.iter().any(is_hopper) { "9.0" } else { "8.0" }
    }

    /// Whether a job fits that allocates and reserves so much at most, beside what else a process takes of a card.
    pub(crate) fn fits(&self, allocated: u64, reserved: u64, beside: u64) -> Fits {
        let (least, most) = (allocated.saturating_add(beside), reserved.saturating_add(beside));
        if self.bytes >= most {
            Fits::Yes(self.bytes - most)
        } else if self.bytes >= least {
            Fits::Tight(most - self.bytes)
        } else {
            Fits::No(least - self.bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_known_by_their_names_and_sizes() {
        let name = |text: &str| text.parse::<Card>().map(|c| c.name);
        for (text, wanted) in [
            ("h100", "H100 80GB"),
            ("RTX 4090", "RTX 4090"),
            ("rtx4090", "RTX 4090"),
            ("4090", "RTX 4090"),
            ("a100", "A100 80GB"),
            ("A100-40GB", "A100 40GB"),
            ("l4", "L4"),
            ("t4", "T4"),
            ("24GiB", "24GiB"),
        ] {
            assert_eq!(name(text).as_deref(), Ok(wanted), "{text}");
        }
        assert!(name("gtx").unwrap_err().contains("RTX 4090"));
        assert!(name("24").is_err() && name("").is_err());
    }

    #[test]
    fn the_larger_workspaces_are_simulated_where_a_card_may_have_them() {
        let of = |texts: &[&str]| {
            let cards: Vec<Card> = texts.iter().filter_map(|t| t.parse().ok()).collect();
            Card::capability(&cards)
        };
        assert_eq!(of(&["a100", "4090"]), "8.0");
        assert_eq!((of(&["a100", "h100"]), of(&["24GiB"])), ("9.0", "9.0"));
    }

    #[test]
    fn what_is_cached_may_be_given_back_and_what_is_allocated_may_not() {
        let card = Card { name: String::new(), bytes: 100 };
        assert_eq!(card.fits(50, 70, 10), Fits::Yes(20));
        assert_eq!(card.fits(50, 95, 10), Fits::Tight(5));
        assert_eq!(card.fits(95, 120, 10), Fits::No(5));
    }
}
