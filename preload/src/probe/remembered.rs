//! Addresses that are kept from one slice to the next.

use super::objects::TYPE;
use crate::platform::memory::{self, is_address};
use crate::platform::pages::Pages;
use crate::python::collector::{self, HEADER};

/// The address of an object that was alive when it was seen. Between two slices it may die, and something else may lie there: it can be told from
/// an object that is alive, and be looked for again, but never be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Remembered(u64);

impl Remembered {
    /// Of nothing: what has no owner.
    pub(super) const NONE: Remembered = Remembered(0);

    /// Remembers an object.
    pub(super) fn of(object: u64) -> Remembered {
        Remembered(object)
    }

    /// Whether this object, which is alive, lies there.
    pub(super) fn is(self, object: u64) -> bool {
        self.0 == object
    }

    /// The object there, where it is one of this type that the collector tracks, and so is alive: the one that was seen, or another. With the GIL
    /// held, while the collector is not at work.
    pub(super) fn still(self, kind: u64) -> Option<u64> {
        let is_one =
            kind != 0 && collector::is_tracked(self.0) && memory::at::<1>(self.0 + TYPE) == Some([kind]);
        is_one.then_some(self.0)
    }
}

/// Which of these the collector tracks, as [`collector::is_tracked`] says of one.
pub(super) fn are_tracked(pages: &Pages, objects: &[u64]) -> Vec<bool> {
    let headers: Vec<u64> = objects.iter().map(|o| o.saturating_sub(HEADER)).collect();
    let near = |words: Option<[u64; 2]>| words.unwrap_or_default().map(|word| word & !3);
    let beside: Vec<u64> = pages.words::<2>(&headers).into_iter().flat_map(near).collect();
    let known: Vec<[u64; 2]> = pages.words::<2>(&beside).into_iter().map(near).collect();
    let is_known = |(header, beside): (u64, &[[u64; 2]])| match *beside {
        [[_, back], [forth, _]] => is_address(header) && (back, forth) == (header, header),
        _ => false,
    };
    headers.into_iter().zip(known.chunks(2)).map(is_known).collect()
}
