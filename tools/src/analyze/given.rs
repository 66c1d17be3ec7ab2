//! What a feed hands out, and why there is none.

use crate::error::{Error, status};
use strandline::event::{Event, Item};
use strandline::format::header::HeaderError;
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
    if let reader::Error::Header(_, HeaderError::Empty) = e {
        return Error::new(e.to_string()).status(status::USAGE);
    }
    let hint = "name a file that strandline has written (its name ends in .strand), or a run's folder";
    Error::usage(e.to_string(), hint)
}
