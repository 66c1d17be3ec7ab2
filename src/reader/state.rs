//! A reader: what it knows of a recording, and what it hands out. How pages and tails are taken is in `accept`.

use super::damage::{self, Damage};
use super::define::Definitions;
use super::pages::Pages;
use super::source::Source;
use super::summary::{Summary, TailState};
use super::tail::Tail;
use crate::event::{Dropped, Event, Item, Names, ThreadId, thousands};
use crate::format::clock::Clock;
use crate::format::events::Decoder;
use crate::format::fold::Fold;
use crate::format::header::Header;
use crate::format::marks::Mark;
use crate::format::merge::Merge;
use crate::format::raw::Kind;
use crate::format::tail::Place;
use std::collections::VecDeque;
use std::path::PathBuf;

/// How often a page that does not make sense is looked at again before it counts as damage: it may be just being written.
pub(super) const PATIENCE: u32 = 8;

/// Records that become events at once. Their events stay in the second-level cache.
const BATCH: usize = 1024;

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
pub(super) enum Stage {
    Pages,
    Tail,
    /// Live, and nothing new for now.
    Waiting,
    Done,
}

/// What follows once everything that came before has been handed out.
pub(super) enum Then {
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
pub(super) struct Ring {
    /// Everything before this index has been taken.
    pub(super) seen: u64,
    /// Losses that were told so far.
    pub(super) told: u64,
    pub(super) thread: u32,
}

/// What a [`super::Follower`] knows of the poll before.
pub(super) struct Live {
    pub(super) newest: u64,
    pub(super) records: u64,
    pub(super) patience: u32,
}

impl Default for Live {
    fn default() -> Self {
        Live { newest: 0, records: 0, patience: PATIENCE }
    }
}

/// Reads one recording.
pub struct Reader {
    pub(super) source: Box<dyn Source>,
    /// Where it lies; empty: somewhere without a path.
    pub(super) path: PathBuf,
    pub(super) tail: Option<Tail>,
    /// The tail is the one kept beside the recording.
    pub(super) kept: bool,
    pub(super) header: Header,
    /// Taken away while the next page is read.
    pub(super) pages: Option<Pages>,
    pub(super) decoder: Decoder,
    pub(super) rings: Vec<Ring>,
    pub(super) merge: Merge,
    pub(super) fold: Fold,
    pub(super) clock: Clock,
    pub(super) definitions: Definitions,
    /// Time of the newest record before the sweep at hand.
    pub(super) sweep_newest: u64,
    pub(super) told_unowned: u64,
    /// Something is missing: the next checkpoint is wanted.
    pub(super) wants_state: bool,
    /// The next Checkpoint page belongs to the chunk that is gone on with.
    pub(super) takes_state: bool,
    pub(super) then: VecDeque<Then>,
    pub(super) items: VecDeque<Item>,
    pub(super) events: Vec<Event>,
    /// For [`Iterator`]: events of the batch handed out so far.
    pub(super) handed: usize,
    pub(super) damage: damage::List,
    pub(super) summary: Summary,
    pub(super) missing: u64,
    pub(super) holes: u64,
    /// Records behind a hole that a cut has made.
    pub(super) left_out: u64,
    /// A page begins here that the file does not hold to its end.
    pub(super) cut_at: Option<u64>,
    pub(super) stage: Stage,
    pub(super) live: bool,
    pub(super) follow: Live,
}

impl Reader {
    /// Behind the header of so many bytes, in a source that takes positions.
    pub(super) fn begin(
        source: Box<dyn Source>,
        tail: Option<Box<dyn Source>>,
        header: Header,
        length: usize,
    ) -> Reader {
        let mut reader = Reader {
            pages: Some(Pages::new(length as u64)),
            summary: Summary::new(&header),
            source,
            path: PathBuf::new(),
            tail: None,
            kept: false,
            decoder: Decoder::default(),
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
            missing: 0,
            holes: 0,
            left_out: 0,
            cut_at: None,
            stage: Stage::Pages,
            live: false,
            follow: Live::default(),
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

    pub(super) fn attach_tail(&mut self, source: Box<dyn Source>) {
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

    /// Gives `events` the ones that [`Reader::next_batch`] handed out last, for whoever keeps them until the next; takes its memory for
    /// those.
    pub fn give_events(&mut self, events: &mut Vec<Event>) {
        std::mem::swap(&mut self.events, events);
        self.events.clear();
    }

    /// Turns records that are in order into events.
    fn drain(&mut self) -> bool {
        let Reader { merge, fold, clock, events, .. } = self;
        loop {
            let more = merge.drain(BATCH, |r, ring, thread| {
                // Gaps of nothing: a loss that was told before.
                if r.kind != Kind::Gap as u8 || r.a > 0 {
                    fold.fold(ring, r, clock.at(r.ticks), ThreadId::numbered(thread), events);
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

    pub(super) fn new_merge(&mut self) {
        let newest = self.merge.newest();
        self.holes += self.merge.holes();
        self.left_out += self.merge.left_out();
        self.summary.reordered += self.merge.swaps();
        self.merge = Merge::default();
        self.sweep_newest = newest;
    }

    pub(super) fn finish(&mut self) {
        self.new_merge();
        self.summary.unknown_records = self.fold.unknown();
        let counted = self.summary.lost.saturating_add(self.missing);
        if self.holes > counted {
            let n = self.holes - counted;
            let what = "a hole in the events that nothing counted as lost";
            self.damage.add(self.cut_at, what, Some(n));
            self.holes = 0;
        }
        if self.left_out > 0 {
            let what = format!(
                "events are missing, and {} that came after the first of them cannot be used",
                thousands(self.left_out)
            );
            self.damage.add(self.cut_at, what, None);
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

    /// Stacks and texts defined so far.
    pub fn names(&self) -> &Names {
        &self.definitions.names
    }

    /// Takes the stacks and texts away: for whoever has read all of it, and keeps nothing else of the reader.
    pub fn take_names(&mut self) -> Names {
        std::mem::take(&mut self.definitions.names)
    }

    /// Forgets the innermost native frames of a stack, for whoever knows that they say nothing of who asked: when its
    /// [`Item::Stack`] was handed out, before anything uses it.
    pub fn skip_native(&mut self, stack: crate::event::StackId, count: usize) {
        self.definitions.names.skip_native(stack, count);
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
