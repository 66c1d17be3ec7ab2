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
    let hint = "name a recording (a .strand file that strandline wrote), a run's folder or a snapshot that PyTorch wrote";
    Error::usage(e.to_string(), hint)
}
