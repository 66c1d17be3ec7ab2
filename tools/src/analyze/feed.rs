//! What is judged, item by item: a recording, also one that is still being written, or a snapshot that PyTorch wrote.

use super::foreign::{self, Foreign};
use super::given::Given;
use super::recorded::Recorded;
use crate::error::Error;
use crate::share::{Folder, Share};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use strandline::event::{Event, Item, Names};
use strandline::format::holders;
use strandline::reader::{Frozen, Summary};
use strandline::replay::Replay;

/// Hands out the items of a process in order.
pub(crate) enum Feed {
    /// A recording and its sidecar.
    Recording(Box<Recorded>),
    /// PyTorch's own snapshot.
    Snapshot(Box<Foreign>),
    /// One of these, without what is private.
    Shared(Box<Feed>, Box<Folder>),
}

/// What is kept of a feed that has been read to its end.
pub(super) struct Read {
    /// Stacks and texts.
    pub(super) names: Names,
    /// What it is, and how it stands.
    pub(super) summary: Summary,
    /// What was wrong, one sentence each.
    pub(super) damage: Vec<String>,
    /// It is no recording but a snapshot that PyTorch wrote.
    pub(super) is_snapshot: bool,
}

impl Feed {
    /// Opens a recording, or a snapshot that PyTorch wrote.
    ///
    /// # Errors
    /// It cannot be read, or is neither.
    pub(crate) fn open(path: &Path) -> Result<Feed, Error> {
        if foreign::is_pickle(path) {
            return Foreign::open(path).map(|f| Feed::Snapshot(Box::new(f)));
        }
        Recorded::open(path).map(|r| Feed::Recording(Box::new(r)))
    }

    /// Opens a recording that is still being written. [`Feed::next`] says `None` where nothing more is there yet; ask
    /// [`Feed::poll`] for more, and [`Feed::finish`] for the rest once its process has ended.
    ///
    /// # Errors
    /// As [`Feed::open`]; also where its header is not written yet.
    pub(crate) fn follow(path: &Path) -> Result<Feed, Error> {
        Recorded::follow(path).map(|r| Feed::Recording(Box::new(r)))
    }

    /// A recording that stands still while its process goes on.
    ///
    /// # Errors
    /// As [`Feed::open`].
    pub(crate) fn frozen(frozen: &Frozen, path: &Path) -> Result<Feed, Error> {
        Recorded::frozen(frozen, path).map(|r| Feed::Recording(Box::new(r)))
    }

    /// The same, folded for a bug report where that is asked for.
    pub(crate) fn shared(self, share: Option<&Share>) -> Feed {
        match share {
            Some(share) => Feed::Shared(Box::new(self), Box::new(Folder::new(share))),
            None => self,
        }
    }

    /// Looks for what is new.
    pub(crate) fn poll(&mut self) {
        match self {
            Feed::Recording(r) => r.poll(),
            Feed::Shared(feed, _) => feed.poll(),
            Feed::Snapshot(_) => {}
        }
    }

    /// Nothing more will be written.
    pub(crate) fn finish(&mut self) {
        match self {
            Feed::Recording(r) => r.finish(),
            Feed::Shared(feed, _) => feed.finish(),
            Feed::Snapshot(_) => {}
        }
    }

    /// The process has ended and all of it has been read: its tail moves beside the recording.
    pub(crate) fn keep_tail(&mut self, path: &Path) {
        match self {
            Feed::Recording(r) => r.keep_tail(path),
            Feed::Shared(feed, _) => feed.keep_tail(path),
            Feed::Snapshot(_) => {}
        }
    }

    /// The next of it, with the stacks and texts that are known by now.
    pub(crate) fn next(&mut self) -> Option<(Given<'_>, &Names)> {
        match self {
            Feed::Recording(r) => r.next(),
            Feed::Snapshot(s) => s.next(),
            Feed::Shared(feed, folder) => {
                let (given, names) = feed.next()?;
                let given = match given {
                    Given::Events(events) => Given::Events(events),
                    Given::Item(item) => Given::Item(folder.item(item, names)),
                };
                Some((given, folder.names()))
            }
        }
    }

    /// Where a question to the process of a recording at `path` is to lie; `None`: it cannot be reached.
    pub(crate) fn questions(&self, path: &Path) -> Option<PathBuf> {
        match self {
            Feed::Recording(r) => {
                let tail = r.reader().tail_place().filter(|_| r.reader().has_region())?;
                Some(holders::place(&tail, path))
            }
            Feed::Shared(feed, _) => feed.questions(path),
            Feed::Snapshot(_) => None,
        }
    }

    /// What was wrong, one sentence each; whole once [`Feed::next`] has said `None`.
    pub(crate) fn damage(&self) -> Vec<String> {
        match self {
            Feed::Recording(r) => r.damage(),
            Feed::Snapshot(s) => s.damage(),
            Feed::Shared(feed, _) => Folder::damage(feed.damage()),
        }
    }

    /// What is kept of it once all of it has been read: the rest, buffers and compressors, is let go.
    pub(super) fn into_read(mut self) -> Read {
        let (damage, summary, is_snapshot) = (self.damage(), self.summary().clone(), self.is_snapshot());
        Read { names: self.take_names(), summary, damage, is_snapshot }
    }

    fn take_names(&mut self) -> Names {
        match self {
            Feed::Recording(r) => r.take_names(),
            Feed::Snapshot(s) => s.take_names(),
            Feed::Shared(_, folder) => folder.take_names(),
        }
    }

    /// It is no recording but a snapshot that PyTorch wrote.
    pub(super) fn is_snapshot(&self) -> bool {
        match self {
            Feed::Recording(_) => false,
            Feed::Snapshot(_) => true,
            Feed::Shared(feed, _) => feed.is_snapshot(),
        }
    }

    /// Stacks and texts that are known by now.
    pub(crate) fn names(&self) -> &Names {
        match self {
            Feed::Recording(r) => r.reader().names(),
            Feed::Snapshot(s) => s.names(),
            Feed::Shared(_, folder) => folder.names(),
        }
    }

    /// Hands all that is left to `each`, item by item, with the stacks and texts known by then.
    pub(crate) fn each(&mut self, mut each: impl FnMut(&Item, &Names)) {
        while let Some((given, names)) = self.next() {
            match given {
                Given::Events(events) => events.iter().for_each(|e| each(&Item::Event(*e), names)),
                Given::Item(item) => each(&item, names),
            }
        }
    }

    /// The state after this number of events, or at the end if there are fewer. `before` sees each event before it is applied.
    pub(crate) fn replay_until(&mut self, events: u64, mut before: impl FnMut(&Event, &Replay)) -> Replay {
        let mut replay = Replay::new();
        while let Some((given, names)) = self.next() {
            match given {
                Given::Events(all) => {
                    for e in all {
                        if replay.events() == events {
                            return replay;
                        }
                        before(e, &replay);
                        replay.apply_event(e);
                    }
                }
                Given::Item(item) => drop(replay.apply(&item, names)),
            }
        }
        replay
    }

    /// What it is, and how it stands.
    pub(crate) fn summary(&self) -> &Summary {
        match self {
            Feed::Recording(r) => r.reader().summary(),
            Feed::Snapshot(s) => s.summary(),
            Feed::Shared(feed, _) => feed.summary(),
        }
    }
}

/// Hands every item of a recording to `each`, with the stacks and texts known by then; the damage that was met.
///
/// # Errors
/// The recording cannot be read.
pub(crate) fn items(
    path: &Path,
    mut each: impl FnMut(&Item, &Names) -> ControlFlow<()>,
) -> Result<Vec<String>, Error> {
    let mut feed = Feed::open(path)?;
    while let Some((given, names)) = feed.next() {
        let flow = match given {
            Given::Events(events) => events.iter().try_for_each(|e| each(&Item::Event(*e), names)),
            Given::Item(item) => each(&item, names),
        };
        if flow.is_break() {
            break;
        }
    }
    Ok(feed.damage())
}
