//! What is judged, item by item: a recording, also one that is still being written, or a snapshot that PyTorch wrote.

use super::foreign::{self, Foreign};
use super::given::Given;
use super::recorded::Recorded;
use crate::error::Error;
use crate::share::{Folder, Share};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use strandline::event::steps::Iterations;
use strandline::event::{Event, Item, Names};
use strandline::format::holders;
use strandline::reader::{Frozen, Summary};
use strandline::replay::{ITERATIONS, Replay};

/// Hands out the items of a process in order.
pub(crate) struct Feed {
    source: Source,
    /// Takes out what is private, where that is asked for.
    folder: Option<Box<Folder>>,
    /// What replays are told before all else.
    first: Option<Item>,
}

enum Source {
    /// A recording and its sidecar.
    Recording(Box<Recorded>),
    /// PyTorch's own snapshot.
    Snapshot(Box<Foreign>),
}

/// What is kept of a feed that has been read to its end.
pub(crate) struct Read {
    /// Stacks and texts.
    pub(crate) names: Names,
    /// What it is, and how it stands.
    pub(crate) summary: Summary,
    /// What was wrong, one sentence each.
    pub(crate) damage: Vec<String>,
    /// It is no recording but a snapshot that PyTorch wrote.
    pub(crate) is_snapshot: bool,
}

impl Feed {
    /// Opens a recording, or a snapshot that PyTorch wrote.
    ///
    /// # Errors
    /// It cannot be read, or is neither.
    pub(crate) fn open(path: &Path) -> Result<Feed, Error> {
        if foreign::is_pickle(path) {
            let source = Source::Snapshot(Box::new(Foreign::open(path)?));
            return Ok(Feed { source, folder: None, first: None });
        }
        Recorded::open(path).map(Feed::of)
    }

    /// Opens a recording that is still being written. [`Feed::each`] ends where nothing more is there yet; ask [`Feed::poll`] for more,
    /// and [`Feed::finish`] for the rest once its process has ended.
    ///
    /// # Errors
    /// As [`Feed::open`]; also where its header is not written yet.
    pub(crate) fn follow(path: &Path) -> Result<Feed, Error> {
        Recorded::follow(path).map(Feed::of)
    }

    /// A recording that stands still while its process goes on.
    ///
    /// # Errors
    /// As [`Feed::open`].
    pub(crate) fn frozen(frozen: &Frozen, path: &Path) -> Result<Feed, Error> {
        Recorded::frozen(frozen, path).map(Feed::of)
    }

    fn of(recorded: Recorded) -> Feed {
        Feed { source: Source::Recording(Box::new(recorded)), folder: None, first: None }
    }

    /// The same, folded for a bug report where that is asked for.
    pub(crate) fn shared(self, share: Option<&Share>) -> Feed {
        Feed { folder: share.map(|share| Box::new(Folder::new(share))), ..self }
    }

    /// The same for replays that count iterations; as it is, where there are none to be counted.
    pub(crate) fn by_iterations(self, of: Option<Iterations>) -> Feed {
        let told = |of: Iterations| json!({ "stack": of.stack.0, "after_ns": of.after.map(|last| last.0) });
        Feed { first: of.map(|of| Item::Meta(json!({ ITERATIONS: told(of) }))), ..self }
    }

    fn recorded(&mut self) -> Option<&mut Recorded> {
        match &mut self.source {
            Source::Recording(r) => Some(r),
            Source::Snapshot(_) => None,
        }
    }

    /// Looks for what is new.
    pub(crate) fn poll(&mut self) {
        self.recorded().into_iter().for_each(Recorded::poll);
    }

    /// Nothing more will be written.
    pub(crate) fn finish(&mut self) {
        self.recorded().into_iter().for_each(Recorded::finish);
    }

    /// The process has ended and all of it has been read: its tail moves beside the recording.
    pub(crate) fn keep_tail(&mut self, path: &Path) {
        self.recorded().into_iter().for_each(|r| r.keep_tail(path));
    }

    /// The next of it, with the stacks and texts that are known by now. What each event is asked for is quicker here than in
    /// [`Feed::until`], which makes an item of it.
    pub(crate) fn next(&mut self) -> Option<(Given<'_>, &Names)> {
        if let Some(first) = self.first.take() {
            return Some((Given::Item(first), self.names()));
        }
        let (given, names) = match &mut self.source {
            Source::Recording(r) => r.next(),
            Source::Snapshot(s) => s.next(),
        }?;
        let Some(folder) = &mut self.folder else { return Some((given, names)) };
        let given = match given {
            Given::Events(events) => Given::Events(events),
            Given::Item(item) => Given::Item(folder.item(item, names)),
        };
        Some((given, folder.names()))
    }

    /// Where a question to the process of a recording at `path` is to lie; `None`: it cannot be reached.
    pub(crate) fn questions(&self, path: &Path) -> Option<PathBuf> {
        let Source::Recording(r) = &self.source else { return None };
        let tail = r.reader().tail_place().filter(|_| r.reader().has_region())?;
        Some(holders::place(&tail, path))
    }

    /// What was wrong, one sentence each; whole once all of it has been read.
    pub(crate) fn damage(&self) -> Vec<String> {
        let damage = match &self.source {
            Source::Recording(r) => r.damage(),
            Source::Snapshot(s) => s.damage.clone(),
        };
        if self.folder.is_some() { Folder::damage(damage) } else { damage }
    }

    /// What is kept of it once all of it has been read: the rest, buffers and compressors, is let go.
    pub(super) fn into_read(mut self) -> Read {
        let (damage, summary, is_snapshot) = (self.damage(), self.summary().clone(), self.is_snapshot());
        let names = match (&mut self.folder, &mut self.source) {
            (Some(folder), _) => folder.take_names(),
            (None, Source::Recording(r)) => r.take_names(),
            (None, Source::Snapshot(s)) => std::mem::take(&mut s.imported.names),
        };
        Read { names, summary, damage, is_snapshot }
    }

    fn is_snapshot(&self) -> bool {
        matches!(self.source, Source::Snapshot(_))
    }

    /// Stacks and texts that are known by now.
    pub(crate) fn names(&self) -> &Names {
        match (&self.folder, &self.source) {
            (Some(folder), _) => folder.names(),
            (None, Source::Recording(r)) => r.reader().names(),
            (None, Source::Snapshot(s)) => &s.imported.names,
        }
    }

    /// Hands what is left to `each`, item by item, with the stacks and texts known by then, until it breaks off.
    pub(crate) fn until(&mut self, mut each: impl FnMut(&Item, &Names) -> ControlFlow<()>) {
        while let Some((given, names)) = self.next() {
            let flow = match given {
                Given::Events(events) => events.iter().try_for_each(|e| each(&Item::Event(*e), names)),
                Given::Item(item) => each(&item, names),
            };
            if flow.is_break() {
                return;
            }
        }
    }

    /// Hands all that is left to `each`.
    pub(crate) fn each(&mut self, mut each: impl FnMut(&Item, &Names)) {
        self.until(|item, names| {
            each(item, names);
            ControlFlow::Continue(())
        });
    }

    /// The state after this number of events, or at the end if there are fewer. `before` sees each event before it is applied.
    pub(crate) fn replay_until(&mut self, events: u64, mut before: impl FnMut(&Event, &Replay)) -> Replay {
        let mut replay = Replay::new();
        self.until(|item, names| {
            if let Item::Event(e) = item {
                if replay.events() == events {
                    return ControlFlow::Break(());
                }
                before(e, &replay);
            }
            replay.apply(item, names);
            ControlFlow::Continue(())
        });
        replay
    }

    /// What it is, and how it stands.
    pub(crate) fn summary(&self) -> &Summary {
        match &self.source {
            Source::Recording(r) => r.reader().summary(),
            Source::Snapshot(s) => &s.summary,
        }
    }
}
