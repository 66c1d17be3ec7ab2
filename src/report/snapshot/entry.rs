//! One entry of the history, and the words that go with it.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::out::Out;
use super::pickle::Memo;
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
    texts: FxHashMap<(Option<PhaseKind>, DeviceId, StreamHandle, bool), Memo>,
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
            texts: FxHashMap::default(),
            place: Place::default(),
            unknown_written: false,
        }
    }

    /// Writes an entry with the keys and in the order that PyTorch 2.12 has them.
    pub(super) fn write<W: Write>(&mut self, out: &mut Out<W>, e: &Entry) -> io::Result<()> {
        out.dict()?;
        let address = if e.action == Word::Oom { Word::DeviceFree } else { Word::Addr };
        out.word(Word::Action)?.word(e.action)?;
        out.word(address)?.unsigned(e.addr.0)?;
        out.word(Word::Size)?.unsigned(e.size.0)?;
        out.word(Word::Stream)?.int(e.stream.0 as i64)?;
        out.word(Word::TimeUs)?.unsigned(self.source.epoch_us.saturating_add(e.time.0 / 1000))?;
        out.word(Word::CompileContext)?.word(Word::NotAvailable)?;
        self.metadata(out.word(Word::UserMetadata)?, e)?;
        out.word(Word::PoolId)?.pool(e.pool)?;
        if let Some(c) = self.category(e) {
            out.word(Word::Category)?.text(c)?;
        }
        // Absent, not empty, where no stack was recorded: as PyTorch has it.
        if !self.source.names.stack(e.stack).is_empty() {
            out.word(Word::Frames)?.stack(self.source.names, e.stack)?;
        }
        out.close()
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

    /// `step 12 · microbatch 2 of 4 · backward · stream 1`.
    fn metadata<W: Write>(&mut self, out: &mut Out<W>, e: &Entry) -> io::Result<()> {
        if e.action == Word::Snapshot {
            return out.text("");
        }
        if !self.place.events.contains(&e.event) {
            self.texts.clear();
            self.place = self.source.steps.place(e.event);
        }
        let phase = e.phase.map(|p| PhaseKind::of(p, self.source.steps.trained));
        let key = (phase, e.device, e.stream, e.repaired);
        if let Some(&m) = self.texts.get(&key) {
            return out.again(m);
        }
        let mut text = format!("step {}", self.place.step);
        if let Some((n, of)) = self.place.microbatch {
            text.push_str(&format!(" · microbatch {n} of {of}"));
        }
        if let Some(p) = phase.filter(|&p| p != PhaseKind::Unknown) {
            text.push_str(" · ");
            text.push_str(p.name());
        }
        text.push_str(" · ");
        text.push_str(&self.stream(e));
        if e.repaired {
            text.push_str(" · not recorded, inferred from later events");
        }
        let memo = out.shared_text(&text)?;
        self.texts.insert(key, memo);
        Ok(())
    }

    fn stream(&self, e: &Entry) -> String {
        if e.stream.0 == 0 {
            return "default stream".to_owned();
        }
        let numbers = self.streams.get(&(e.device, e.stream)).map_or(&[][..], Vec::as_slice);
        match numbers.iter().rev().find(|(since, _)| *since <= e.time).or(numbers.first()) {
            Some((_, id)) => format!("stream {}", id.0),
            None => format!("stream 0x{:x}", e.stream.0),
        }
    }
}
