//! A recording → items in order, and a list of what is wrong with it.
//!
//! ```no_run
//! # fn main() -> Result<(), strandline::reader::Error> {
//! use strandline::reader::{Batch, Reader};
//! let mut reader = Reader::open("train-r0.strand")?;
//! while let Some(batch) = reader.next_batch() {
//!     match batch {
//!         Batch::Events(events) => println!("{} events", events.len()),
//!         Batch::Item(item) => println!("{item:?}"),
//!     }
//! }
//! for d in reader.damage() {
//!     println!("{d}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! After the last page the tail is read: the records and definitions that the process published and its drain did not
//! get to write, out of the region's file, if that is still there. A recording that is still being written is followed with
//! a [`Follower`]. Nothing here panics or takes unbounded memory, whatever the bytes.

mod accept;
mod damage;
mod define;
mod facts;
mod follow;
mod frozen;
mod kept;
mod mapped;
mod open;
mod pages;
mod source;
mod summary;
mod tail;

use crate::event::{Dropped, Event, Item, Names, printable};
use crate::format::clock::Clock;
use crate::format::events::Decoder;
use crate::format::fold::Fold;
use crate::format::header::{BLOCK, Header, HeaderError};
use crate::format::marks::Mark;
use crate::format::merge::Merge;
use crate::format::raw::{Kind, Record};
use crate::format::tail::Place;
pub use damage::Damage;
use define::Definitions;
pub use facts::FactsFollower;
pub use follow::Follower;
pub use frozen::Frozen;
pub use kept::kept_path;
use mapped::Mapped;
pub use open::open_file;
use pages::Pages;
pub use source::Source;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};
pub use summary::{Summary, TailState};
use tail::Tail;

/// Records that become events at once. Their events stay in the second-level cache.
const BATCH: usize = 1024;

/// Why there is nothing to read.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be opened or read.
    Io(PathBuf, io::Error),
    /// It is no recording, or none that this version reads.
    Header(PathBuf, HeaderError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(path, e) => write!(f, "{}: {e}", printable(&path.to_string_lossy())),
            Error::Header(path, e) => write!(f, "{}: {e}", printable(&path.to_string_lossy())),
        }
    }
}

impl std::error::Error for Error {}

/// What [`Reader::next_batch`] hands out.
#[derive(Debug)]
pub enum Batch<'a> {
    /// Events in order. Never empty.
    Events(&'a [Event]),
    /// Something between them; never [`Item::Event`].
    Item(Item),
}

/// What a reader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Pages,
    Tail,
    /// Live, and nothing new for now.
    Waiting,
    Done,
}

/// What follows once everything that came before has been handed out.
enum Then {
    /// Hand out this.
    Item(Item),
    /// Go on from here, with this state.
    Rebase(Mark),
    /// Records were dropped here.
    Skip(Dropped),
    /// The recording is over.
    Finish,
}

/// What is known of a ring.
#[derive(Clone, Copy, Default)]
struct Ring {
    /// Everything before this index has been taken.
    seen: u64,
    /// Losses that were told so far.
    told: u64,
    thread: u32,
}

/// The header of a recording, its bytes, and whether behind it is a [`Mapped`] recording.
fn head(source: &dyn Source) -> Result<(Header, usize, bool), Error> {
    let io = |e| Error::Io(PathBuf::new(), e);
    let bad = |e| Error::Header(PathBuf::new(), e);
    let mut bytes = Vec::new();
    source::fill(source, 0, BLOCK, &mut bytes).map_err(io)?;
    let length = Header::length(&bytes).map_err(bad)?;
    let is_mapped = Header::is_mapped(&bytes);
    source::fill(source, 0, length, &mut bytes).map_err(io)?;
    Ok((Header::decode(&bytes).map_err(bad)?, length, is_mapped))
}

/// Reads one recording.
pub struct Reader {
    source: Box<dyn Source>,
    /// Where it lies; empty: somewhere without a path.
    path: PathBuf,
    tail: Option<Tail>,
    /// The tail is the one kept beside the recording.
    kept: bool,
    header: Header,
    pages: Pages,
    decoder: Decoder,
    records: Vec<Record>,
    rings: Vec<Ring>,
    merge: Merge,
    fold: Fold,
    clock: Clock,
    definitions: Definitions,
    /// Time of the newest record before the sweep at hand.
    sweep_newest: u64,
    told_unowned: u64,
    /// Something is missing: the next checkpoint is wanted.
    wants_state: bool,
    /// The next Checkpoint page belongs to the chunk that is gone on with.
    takes_state: bool,
    then: VecDeque<Then>,
    items: VecDeque<Item>,
    events: Vec<Event>,
    /// For [`Iterator`]: events of the batch handed out so far.
    handed: usize,
    damage: damage::List,
    notes: Vec<String>,
    summary: Summary,
    missing: u64,
    holes: u64,
    /// A page begins here that the file does not hold to its end.
    cut_at: Option<u64>,
    stage: Stage,
    live: bool,
    follow: follow::Live,
}

impl Reader {
    /// Opens the recording at `path`, and the tail that its header names where that is still there.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording. Damage behind the header is no error: see [`Reader::damage`].
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, Error> {
        let path = path.as_ref();
        let mut reader = Reader::without_tail(path)?;
        reader.path = path.into();
        reader.find_tail();
        Ok(reader)
    }

    /// Opens the recording at `path` with a tail that is at hand already.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn with_tail(path: impl AsRef<Path>, tail: File) -> Result<Reader, Error> {
        let mut reader = Reader::without_tail(path.as_ref())?;
        reader.attach_tail(Box::new(tail));
        Ok(reader)
    }

    fn without_tail(path: &Path) -> Result<Reader, Error> {
        let file = open_file(path).map_err(|e| Error::Io(path.into(), e))?;
        let owner = file.metadata().map(|m| m.uid()).ok();
        let mut reader = Reader::from_source(Box::new(file), None).map_err(|e| match e {
            Error::Io(_, e) => Error::Io(path.into(), e),
            Error::Header(_, e) => Error::Header(path.into(), e),
        })?;
        reader.summary.owner = owner;
        Ok(reader)
    }

    /// Looks for the tail that the header names, where it is not attached yet, and for one kept beside the recording.
    fn find_tail(&mut self) {
        if self.tail.is_some() || self.path.as_os_str().is_empty() {
            return;
        }
        if let Some(text) = self.header.tail.clone() {
            match open::open_tail(&text) {
                Ok(file) => self.attach_tail(Box::new(file)),
                Err(e) => self.summary.tail = TailState::Absent(e.to_string()),
            }
        }
        if self.tail.is_none()
            && !self.live
            && let Some(kept) = kept::kept(&self.path)
        {
            self.attach_tail(Box::new(kept));
            self.kept = self.tail.is_some();
        }
    }

    /// Reads a recording and its tail from anywhere.
    ///
    /// # Errors
    /// As [`Reader::open`], with an empty path.
    pub fn from_source(source: Box<dyn Source>, tail: Option<Box<dyn Source>>) -> Result<Reader, Error> {
        let (header, length, is_mapped) = head(&*source)?;
        let source = if is_mapped { Box::new(Mapped::new(source, length)) } else { source };
        Ok(Reader::begin(source, tail, header, length))
    }

    /// Behind the header of so many bytes, in a source that takes positions.
    fn begin(
        source: Box<dyn Source>,
        tail: Option<Box<dyn Source>>,
        header: Header,
        length: usize,
    ) -> Reader {
        let mut reader = Reader {
            pages: Pages::new(length as u64),
            summary: Summary::new(&header),
            source,
            path: PathBuf::new(),
            tail: None,
            kept: false,
            decoder: Decoder::default(),
            records: Vec::new(),
            rings: Vec::new(),
            merge: Merge::default(),
            fold: Fold::default(),
            clock: Clock::new(0, 0, 1.0),
            definitions: Definitions::default(),
            sweep_newest: 0,
            told_unowned: 0,
            wants_state: false,
            takes_state: false,
            then: VecDeque::new(),
            items: VecDeque::new(),
            events: Vec::with_capacity(2 * BATCH),
            handed: 0,
            damage: damage::List::default(),
            notes: Vec::new(),
            missing: 0,
            holes: 0,
            cut_at: None,
            stage: Stage::Pages,
            live: false,
            follow: follow::Live::default(),
            header,
        };
        if reader.header.provenance.is_object() {
            reader.items.push_back(Item::Meta(reader.summary.facts.clone().into()));
        }
        if let Some(t) = tail {
            reader.attach_tail(t);
        }
        reader
    }

    fn attach_tail(&mut self, source: Box<dyn Source>) {
        match Tail::open(source, &self.header.who) {
            Ok(t) => {
                self.tail = Some(t);
                self.summary.tail = TailState::None;
            }
            Err(why) => self.summary.tail = TailState::Absent(why),
        }
    }

    /// The next events or item; `None` at the end (of a live recording: for now).
    pub fn next_batch(&mut self) -> Option<Batch<'_>> {
        self.handed = 0;
        self.events.clear();
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(Batch::Item(item));
            }
            if self.drain() {
                self.summary.events += self.events.len() as u64;
                return Some(Batch::Events(&self.events));
            }
            if let Some(then) = self.then.pop_front() {
                self.go_on(then);
                continue;
            }
            match self.stage {
                Stage::Pages => self.read_page(),
                Stage::Tail => self.read_tail(),
                Stage::Waiting | Stage::Done => return None,
            }
        }
    }

    /// Turns records that are in order into events.
    fn drain(&mut self) -> bool {
        let Reader { merge, fold, clock, events, .. } = self;
        loop {
            let more = merge.drain(BATCH, |r, ring, thread| {
                // Gaps of nothing: a loss that was told before.
                if r.kind != Kind::Gap as u8 || r.a > 0 {
                    fold.fold(ring, r, clock.at(r.ticks), accept::thread_id(thread), events);
                }
            });
            if !events.is_empty() || !more {
                return !events.is_empty();
            }
        }
    }

    fn go_on(&mut self, then: Then) {
        match then {
            Then::Item(item) => self.items.push_back(item),
            Then::Rebase(mark) => self.rebase(&mark),
            Then::Skip(d) => {
                self.new_merge();
                self.summary.dropped.push(d);
                self.items.push_back(Item::Dropped(d));
            }
            Then::Finish => self.finish(),
        }
    }

    fn new_merge(&mut self) {
        let newest = self.merge.newest();
        self.holes += self.merge.holes();
        self.summary.reordered += self.merge.swaps();
        self.merge = Merge::default();
        self.sweep_newest = newest;
    }

    fn finish(&mut self) {
        self.new_merge();
        self.summary.unknown_records = self.fold.unknown();
        let counted = self.summary.lost.saturating_add(self.missing);
        if self.holes > counted {
            let n = self.holes - counted;
            let what = "allocator events are missing that no ring counted as lost";
            self.damage.add(None, what, Some(n));
            self.holes = 0;
        }
        self.summary.finished = true;
        self.stage = Stage::Done;
    }

    /// What is wrong with the recording, as far as it has been read. Complete once [`Reader::next_batch`] says `None`.
    pub fn damage(&self) -> &[Damage] {
        &self.damage.all
    }

    /// Damage that [`Reader::damage`] does not list because it is too much.
    pub fn damage_not_listed(&self) -> u64 {
        self.damage.more
    }

    /// What is odd but harms nothing, such as pages of a newer version that were passed over.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Stacks and texts defined so far.
    pub fn names(&self) -> &Names {
        &self.definitions.names
    }

    /// Forgets the innermost native frames of a stack, for whoever knows that they say nothing of who asked: when its
    /// [`Item::Stack`] was handed out, before anything uses it.
    pub fn skip_native(&mut self, stack: crate::event::StackId, count: usize) {
        self.definitions.names.skip_native(stack, count);
    }

    /// Build id of the library `file`, as native frames name it (hexadecimal).
    pub fn build_id(&self, file: &str) -> Option<String> {
        self.definitions.build_id(file)
    }

    /// What the recording is and how it stands, as far as it has been read.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Where the region lies, as the recording's header says; `None`: nobody but the process can read it.
    pub fn tail_place(&self) -> Option<Place> {
        self.header.tail.as_deref().map(Place::parse)
    }

    /// Whether the region is at hand: the process lives on this machine, or was killed and somebody has kept its memory.
    pub fn has_region(&self) -> bool {
        self.tail.is_some() && !self.kept
    }
}

/// Items one by one. [`Reader::next_batch`] is faster; do not mix the two.
impl Iterator for Reader {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if let Some(&e) = self.events.get(self.handed) {
            self.handed += 1;
            return Some(Item::Event(e));
        }
        match self.next_batch()? {
            Batch::Item(item) => return Some(item),
            Batch::Events(_) => {}
        }
        self.handed = 1;
        self.events.first().copied().map(Item::Event)
    }
}
