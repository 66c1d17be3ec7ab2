//! Addresses that are kept from one slice to the next.

use super::objects::TYPE;
use crate::platform::memory;
use crate::python::tracked::is_tracked;

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
        let is_one = kind != 0 && is_tracked(self.0) && memory::at::<1>(self.0 + TYPE) == Some([kind]);
        is_one.then_some(self.0)
    }
}
