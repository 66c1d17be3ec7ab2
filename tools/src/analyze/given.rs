//! What a feed hands out, and why there is none.

use crate::error::Error;
use strandline::event::{Event, Item};
use strandline::reader;

/// What comes next: events in order, or something between them.
pub(crate) enum Given<'a> {
    /// Never empty.
    Events(&'a [Event]),
    /// Never an event.
    Item(Item),
}

/// Why there is no feed.
pub(super) fn unreadable(e: reader::Error) -> Error {
    let hint = "every recording ends in .strand; the folder of a run can be given as well";
    Error::usage(e.to_string(), hint)
}
