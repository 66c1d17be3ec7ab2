//! One entry of the history, and the words that go with it.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::field::{Field, Memo};
use super::out::Out;
use super::source::Source;
use super::steps::Place;
use super::words::Word;
use crate::event::{Addr, Bytes, DeviceId, Nanos, Phase, PoolId, StackId, StreamHandle, StreamId, named};
use crate::replay::PhaseKind;

/// An entry that is to be written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// What happened, in PyTorch's word for it.
    pub(super) action: Word,
    pub(super) device: DeviceId,
    /// For an `oom`: what was free.
    pub(super) addr: Addr,
    /// As torch has it: what was asked for; whole segments.
    pub(super) size: Bytes,
    pub(super) stream: StreamHandle,
    pub(super) pool: PoolId,
    pub(super) stack: StackId,
    pub(super) time: Nanos,
    pub(super) phase: Option<Phase>,
    /// Told from what followed.
    pub(super) repaired: bool,
    /// Number of the event it comes from.
    pub(super) event: u64,
}

named! {
    /// What is to stand out about a block: it gets a category, and with it a colour, of its own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Standing {
        /// A finding calls it left behind.
        LeftBehind = "left behind",
        /// Freed, but kept waiting by a stream.
        Deferred = "free waits for a stream",
        /// In use for more than a step or two.
        Old = "old",
    }
}

/// Blocks that stand out, by address and birth.
pub(super) type Marked = FxHashMap<(DeviceId, Addr, Nanos), Standing>;

/// See [`Labels::text_key`].
type TextKey = (Option<PhaseKind>, DeviceId, StreamHandle, bool);

/// The category that memory_viz must find wherever there are any (it throws otherwise).
const UNKNOWN: &str = "unknown";

/// What entries say beyond PyTorch's own fields: step, phase and stream in words, and a category.
pub(super) struct Labels<'a> {
    source: Source<'a>,
    marked: Marked,
    /// Something stands out that is not merely old.
    coloured: bool,
    /// Numbers of streams by handle, each from the time on at which it appeared.
    streams: FxHashMap<(DeviceId, StreamHandle), Vec<(Nanos, StreamId)>>,
    /// Texts of the step that runs.
    texts: Vec<(TextKey, Memo)>,
    /// The last one that was made.
    text: String,
    place: Place,
    unknown_written: bool,
}

impl<'a> Labels<'a> {
    pub(super) fn new(source: Source<'a>, marked: Marked) -> Labels<'a> {
        let mut streams: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for s in source.replay.streams() {
            streams.entry((s.device, s.handle)).or_default().push((s.first_seen, s.id));
        }
        let coloured = marked.values().any(|&s| s != Standing::Old);
        Labels {
            source,
            marked,
            coloured,
            streams,
            texts: Vec::new(),
            text: String::new(),
            place: Place::default(),
            unknown_written: false,
        }
    }

    /// Writes an entry with the keys and in the order that PyTorch 2.12 has them.
    pub(super) fn write<W: Write>(&mut self, out: &mut Out<W>, e: &Entry) -> io::Result<()> {
        let key = self.text_key(e);
        let known = self.texts.iter().find(|(k, _)| *k == key).map(|(_, memo)| *memo);
        if known.is_none() {
            self.describe(e, key.0);
        }
        let category = self.category(e);
        let metadata = match known {
            _ if e.action == Word::Snapshot => Field::Text(""),
            Some(memo) => Field::Again(memo),
            None => Field::New(&self.text),
        };
        let stream = e.stream.0 as i64;
        let address = if e.action == Word::Oom { Word::DeviceFree } else { Word::Addr };
        // Absent, not empty, where no stack was recorded: as PyTorch has it.
        let frames = match self.source.names.stack(e.stack).is_empty() {
            true => Field::Absent,
            false => out.stack_field(e.stack),
        };
        let fields = [
            (Word::Action, Field::Word(e.action)),
            (address, Field::Number(e.addr.0)),
            (Word::Size, Field::Number(e.size.0)),
            (Word::Stream, u64::try_from(stream).map_or(Field::Signed(stream), Field::Number)),
            (Word::TimeUs, Field::Number(self.source.epoch_us.saturating_add(e.time.0 / 1000))),
            (Word::CompileContext, Field::Word(Word::NotAvailable)),
            (Word::UserMetadata, metadata),
            (Word::PoolId, out.pool_field(e.pool)),
            (Word::Category, category.map_or(Field::Absent, |c| out.text_field(c))),
            (Word::Frames, frames),
        ];
        if let Some(memo) = out.record(self.source.names, &fields)? {
            self.texts.push((key, memo));
        }
        Ok(())
    }

    /// Called at the end of a device's history: where categories were written and none of them was `unknown`, one entry is
    /// added that torch writes too when it takes a snapshot, and that no view draws.
    pub(super) fn close<W: Write>(&mut self, out: &mut Out<W>, time: Nanos) -> io::Result<()> {
        if !self.coloured || self.unknown_written {
            return Ok(());
        }
        let e = Entry { action: Word::Snapshot, time, event: u64::MAX, ..Entry::default() };
        self.write(out, &e)
    }

    /// What stands out about the block, else the phase that allocated it. None at all where nothing is left behind or waits:
    /// memory_viz then gives each block a colour of its own.
    fn category(&mut self, e: &Entry) -> Option<&'static str> {
        if !self.coloured {
            return None;
        }
        let c = match e.action {
            Word::Alloc => match self.marked.get(&(e.device, e.addr, e.time)) {
                Some(standing) => standing.name(),
                None => e.phase.map_or(UNKNOWN, |p| PhaseKind::of(p, self.source.steps.trained).name()),
            },
            Word::Snapshot => UNKNOWN,
            _ => return None,
        };
        self.unknown_written |= c == UNKNOWN;
        Some(c)
    }

    /// What an entry's text depends on, within the part of the run where it is.
    fn text_key(&mut self, e: &Entry) -> TextKey {
        if !self.place.events.contains(&e.event) {
            self.texts.clear();
            self.place = self.source.steps.place(e.event);
        }
        let phase = e.phase.map(|p| PhaseKind::of(p, self.source.steps.trained));
        (phase, e.device, e.stream, e.repaired)
    }

    /// `step 12 · microbatch 2 of 4 · backward · stream 1`.
    fn describe(&mut self, e: &Entry, phase: Option<PhaseKind>) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        text.push_str("step ");
        text.push_str(&self.place.step.to_string());
        if let Some((n, of)) = self.place.microbatch {
            text.push_str(&format!(" · microbatch {n} of {of}"));
        }
        if let Some(p) = phase.filter(|&p| p != PhaseKind::Unknown) {
            text.push_str(" · ");
            text.push_str(p.name());
        }
        text.push_str(" · ");
        match e.stream.0 {
            0 => text.push_str("default stream"),
            _ => text.push_str(&self.stream(e)),
        }
        if e.repaired {
            text.push_str(" · not recorded, inferred from later events");
        }
        self.text = text;
    }

    fn stream(&self, e: &Entry) -> String {
        let numbers = self.streams.get(&(e.device, e.stream)).map_or(&[][..], Vec::as_slice);
        match numbers.iter().rev().find(|(since, _)| *since <= e.time).or(numbers.first()) {
            Some((_, id)) => format!("stream {}", id.0),
            None => format!("stream 0x{:x}", e.stream.0),
        }
    }
}
