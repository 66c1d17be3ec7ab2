//! Whether something is a leak: a question of evidence, on which the size of the card has no bearing. How soon it
//! hurts is [`super::Severity`].

use crate::event::named;
named! {
    /// How sure it is that memory is kept for good, mildest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Certainty {
        /// It explains something and accuses nobody.
        Note = "note",
        /// It looked kept, and all of it was freed in the end: a queue, requests that end, what an epoch collects.
        InUse = "in_use",
        /// It grows, and its keeper says where it ends: `deque.maxlen`, the maxsize of a cache.
        Bounded = "bounded",
        /// It is kept and becomes more; it is not yet told from a buffer that fills.
        Growing = "growing",
        /// It is kept, becomes more, and there is evidence beyond the series that nothing bounds it.
        Leak = "leak",
    }
}

/// One fact that the certainty of a finding rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// What was counted or measured, in words: "live blocks that are older than any freed block from the same line".
    pub what: String,
    /// Its number.
    pub value: f64,
}

impl Evidence {
    /// A fact and its number.
    pub fn new(what: impl Into<String>, value: f64) -> Evidence {
        Evidence { what: what.into(), value }
    }
}

/// Where growth ends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bytes that it holds once it is full; `None` where only the number of its entries is known.
    pub bytes: Option<u64>,
    /// The mark at which it is full at the present pace; `None` where that cannot be told.
    pub at_step: Option<u32>,
    /// What says so: `deque(maxlen=500)`.
    pub source: String,
}
