//! The items of a recording with the driver's account merged in, in order of time; of one that is still being written, too.

use super::given::{Given, unreadable};
use super::passes::Passes;
use crate::error::Error;
use crate::recording::{self, Sidecar};
use crate::symbols::{Symbols, of_runtime};
use std::collections::VecDeque;
use std::path::Path;
use strandline::event::{DriverMemory, Event, Item, Names, StackId};
use strandline::reader::{Batch, Follower, Frozen, Reader, SHIPPED_EVERY, TailState};
use strandline::report::plural;

/// What a process has not written yet is as old as this at most, in seconds.
const SWEEP: u64 = 1;

/// Reads a recording and its sidecar.
pub(crate) struct Recorded {
    reader: Follower,
    sidecar: Sidecar,
    driver: VecDeque<DriverMemory>,
    /// More may come: what is missing is waited for.
    live: bool,
    /// One of the driver's readings has been handed out.
    told: bool,
    /// Events of the reader's last batch, and how many of them have been handed out.
    events: Vec<Event>,
    handed: usize,
    waiting: Option<Item>,
    symbols: Symbols,
    passes: Passes,
}

impl Recorded {
    /// Opens a recording.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub(super) fn open(path: &Path) -> Result<Recorded, Error> {
        let mut feed = Recorded::follow(path)?;
        feed.finish();
        Ok(feed)
    }

    /// Opens a recording that is still being written. [`Recorded::next`] says `None` where nothing more is there yet; ask
    /// [`Recorded::poll`] for more, and [`Recorded::finish`] for the rest once its process has ended.
    ///
    /// # Errors
    /// As [`Recorded::open`]; also where its header is not written yet.
    pub(super) fn follow(path: &Path) -> Result<Recorded, Error> {
        Ok(Recorded::new(Reader::open(path).map_err(unreadable)?, path))
    }

    /// A recording that stands still while its process goes on.
    ///
    /// # Errors
    /// As [`Recorded::open`].
    pub(super) fn frozen(frozen: &Frozen, path: &Path) -> Result<Recorded, Error> {
        let mut feed = Recorded::new(frozen.reader().map_err(unreadable)?, path);
        feed.finish();
        Ok(feed)
    }

    fn new(reader: Reader, path: &Path) -> Recorded {
        let mut sidecar = Sidecar::of(path, reader.summary().unix_ns);
        let driver = sidecar.news().into();
        let reader = Follower::from_reader(reader);
        let (events, live) = (Vec::new(), true);
        let (symbols, passes) = Default::default();
        Recorded {
            reader,
            sidecar,
            driver,
            live,
            told: false,
            events,
            handed: 0,
            waiting: None,
            symbols,
            passes,
        }
    }

    /// Looks for what is new.
    pub(super) fn poll(&mut self) {
        self.reader.poll();
        self.driver.extend(self.sidecar.news());
    }

    /// Nothing more will be written.
    pub(super) fn finish(&mut self) {
        self.reader.finish();
        self.driver.extend(self.sidecar.news());
        self.live = false;
    }

    /// The process has ended and all of it has been read: its tail moves beside the recording.
    pub(super) fn keep_tail(&mut self, path: &Path) {
        recording::keep_tail(path, self.reader.reader_mut());
    }

    /// The next of it, with the stacks and texts that are known by now.
    pub(super) fn next(&mut self) -> Option<(Given<'_>, &Names)> {
        if self.handed == self.events.len() && self.waiting.is_none() {
            self.events.clear();
            self.handed = 0;
            match self.reader.next_batch() {
                Some(Batch::Events(_)) => {
                    self.reader.reader_mut().give_events(&mut self.events);
                    let reader = self.reader.reader();
                    self.waiting = self.passes.before(&self.events, reader.names(), reader.summary());
                }
                Some(Batch::Item(item)) => {
                    if let Item::Stack(id) = item {
                        self.leave_runtime(id);
                    }
                    self.waiting = Some(item);
                }
                None if self.live => return None,
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

    /// A stack begins with who asked CUDA's runtime, also where that is a part of the program.
    fn leave_runtime(&mut self, id: StackId) {
        let names = self.reader.names();
        if names.stack(id).is_empty() {
            let count = of_runtime(&mut self.symbols, names.native(id));
            self.reader.reader_mut().skip_native(id, count);
        }
    }

    /// What was wrong, one sentence each; whole once [`Recorded::next`] has said `None`.
    pub(super) fn damage(&self) -> Vec<String> {
        let mut all: Vec<String> = self.reader().damage().iter().map(ToString::to_string).collect();
        match self.reader().damage_not_listed() {
            0 => {}
            n => all.push(plural(n, "more damaged place")),
        }
        all.extend(self.not_shipped());
        all
    }

    /// What a copy may lack that was sent while the process ran.
    fn not_shipped(&self) -> Option<String> {
        let summary = self.reader().summary();
        let every = summary.facts.get(SHIPPED_EVERY)?.as_u64()?;
        if summary.complete || matches!(summary.tail, TailState::Read(_)) {
            return None;
        }
        Some(format!(
            "the recording was sent every {every} s while the job ran, but its end was not sent: its last {} s may be missing, or more if the store could not be reached",
            every.saturating_add(SWEEP)
        ))
    }

    /// Its stacks and texts, taken away.
    pub(super) fn take_names(&mut self) -> Names {
        self.reader.reader_mut().take_names()
    }

    /// What the recording is.
    pub(super) fn reader(&self) -> &Reader {
        self.reader.reader()
    }
}
