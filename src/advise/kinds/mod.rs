//! The registry of kinds of advice: each is one file, which alone knows how it is found and what is said of it.

mod cast;
mod collected;
mod foreach;
mod gradients;
mod rebound;

use super::look::{Kind, KindInfo};

/// All kinds.
pub(super) static ALL: &[&Kind] =
    &[&gradients::KIND, &rebound::KIND, &cast::KIND, &foreach::KIND, &collected::KIND];

/// What is said of each kind.
pub fn all() -> impl Iterator<Item = &'static KindInfo> {
    ALL.iter().map(|k| &k.info)
}
