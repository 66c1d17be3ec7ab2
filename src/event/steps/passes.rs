//! What the source of a job says of the places that call backward: how a pass of their loop comes to two of them. Events alone cannot tell an
//! iteration of two optimizers from two iterations of one each. It is told by a reader, and is not saved.

use crate::event::{StackId, named};

named! {
    /// How a pass of the loop, or a call of the function, that has two places comes to them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum InPass {
        /// To one of them, never to both: they lie in branches of one `if`.
        Either = "either",
        /// To the first in each pass, to the second in some.
        FirstAlways = "first",
    }
}

/// Most pairs that are kept.
const MOST: usize = 1024;
/// Times that the second may have run more often: what is put off for some passes may be made up for before.
pub(super) const OFTENER: i32 = 3;

/// Two places, by their stacks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) places: [u32; 2],
    pub(super) how: InPass,
    /// Times that the first ran, less those that the second did. `None`: the second runs in a loop of its own.
    pub(super) ahead: Option<i32>,
}

/// What is known of all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Passes(pub(super) Vec<Pair>);

impl Passes {
    pub(super) fn tell(&mut self, places: [StackId; 2], how: InPass) {
        if self.0.len() < MOST {
            self.0.push(Pair { places: places.map(|p| p.0), how, ahead: Some(0) });
        }
    }

    /// Whether no pass comes to both.
    pub(super) fn are_apart(&self, a: u32, b: u32) -> bool {
        self.0.iter().any(|p| p.how == InPass::Either && (p.places == [a, b] || p.places == [b, a]))
    }
}
