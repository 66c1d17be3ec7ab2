//! The items of a recording with the driver's account merged in, in order of time.

use crate::error::{Error, status};
use crate::recording;
use std::collections::VecDeque;
use std::path::Path;
use strandline::event::{DriverMemory, Event, Item, Names};
use strandline::reader::{Batch, Reader};

/// What comes next: events in order, or something between them.
pub(crate) enum Given<'a> {
    /// Never empty.
    Events(&'a [Event]),
    /// Never an event.
    Item(Item),
}

/// Reads a recording and its sidecar.
pub(crate) struct Feed {
    reader: Reader,
    driver: VecDeque<DriverMemory>,
    /// One of the driver's readings has been handed out.
    told: bool,
    /// Events of the reader's last batch, and how many of them have been handed out.
    events: Vec<Event>,
    handed: usize,
    waiting: Option<Item>,
}

impl Feed {
    /// Opens a recording.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub(crate) fn open(path: &Path) -> Result<Feed, Error> {
        let reader = Reader::open(path).map_err(|e| {
            let hint = "every recording ends in .strand; the folder of a run can be given as well";
            Error::new(e.to_string()).hint(hint).status(status::USAGE)
        })?;
        let driver = recording::driver(path, reader.summary().unix_ns).into();
        Ok(Feed { reader, driver, told: false, events: Vec::new(), handed: 0, waiting: None })
    }

    /// The process has ended and all of it has been read: its tail moves beside the recording.
    pub(crate) fn keep_tail(&mut self, path: &Path) {
        recording::keep_tail(path, &mut self.reader);
    }

    /// The next of it, with the stacks and texts that are known by now.
    pub(crate) fn next(&mut self) -> Option<(Given<'_>, &Names)> {
        if self.handed == self.events.len() && self.waiting.is_none() {
            self.events.clear();
            self.handed = 0;
            match self.reader.next_batch() {
                Some(Batch::Events(events)) => self.events.extend_from_slice(events),
                Some(Batch::Item(item)) => self.waiting = Some(item),
                None => {
                    // After the last event the process was ending: what the driver says then is no longer about what
                    // was recorded. Where it is all there is, its total still is.
                    let last = self.driver.pop_front().filter(|_| !self.told)?;
                    self.told = true;
                    return Some((Given::Item(Item::Driver(last)), self.reader.names()));
                }
            }
        }
        let names = self.reader.names();
        if let Some(item) = self.waiting.take() {
            return Some((Given::Item(item), names));
        }
        let rest = &self.events[self.handed..];
        let Some(due) = self.driver.front() else {
            self.handed = self.events.len();
            return Some((Given::Events(rest), names));
        };
        let before = rest.partition_point(|e| e.time <= due.time);
        if before == 0 {
            self.told = true;
            return self.driver.pop_front().map(|d| (Given::Item(Item::Driver(d)), names));
        }
        self.handed += before;
        Some((Given::Events(&rest[..before]), names))
    }

    /// What was wrong, one sentence each; whole once [`Feed::next`] has said `None`.
    pub(crate) fn damage(&self) -> Vec<String> {
        let mut all: Vec<String> = self.reader.damage().iter().map(ToString::to_string).collect();
        match self.reader.damage_not_listed() {
            0 => {}
            n => all.push(format!("and {n} more of this kind")),
        }
        all
    }

    /// What the recording is.
    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }
}
