//! Rings → pages → sink, on one thread in the job. Never panics; a failing write is returned once, after which the
//! writer does nothing more.
//!
//! One *sweep* writes everything that is published: definitions first, then a page per ring, then a Sweep page. Records
//! leave their ring only after the write has returned, so `kill -9` at any moment leaves every one of them in a page, or in
//! the ring, or in both (readers tell by the index). Sweeps wait until a second has passed or a ring is a quarter full, so that
//! pages are large.
//!
//! The file is a sequence of *chunks*. Each begins with a Chunk page, all facts and definitions so far, a checkpoint, and
//! the records that the checkpoint does not hold yet: it can be read without what came before. That is what allows the
//! oldest chunk to be dropped: see `chunks`. A chunk begins where the last one is long enough, and behind every gap.

mod calls;
mod chunks;
mod ledger;
mod rings;
mod sink;
mod space;

use crate::buffer::Drain;
use crate::event::{Nanos, ThreadId};
use crate::format::clock::Clock;
use crate::format::events::Encoder;
use crate::format::fold::Fold;
use crate::format::header::Header;
use crate::format::marks::Mark;
use crate::format::merge::Merge;
use crate::format::page::{Framer, Tag};
use crate::format::region::{self, Moment, flag};
use crate::format::wire::put;
use chunks::Chunks;
use ledger::Ledger;
use rings::Rings;
use serde_json::{Map, Value};
pub use sink::{Memory, Sink};
use std::io;

/// How to write.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most bytes that the recording's file may have; the oldest events are dropped beyond. `None`: no bound.
    pub max_size: Option<u64>,
    /// Published records are written at the latest after this time, in nanoseconds.
    pub seal_after_ns: u64,
}

impl Default for Options {
    /// 256 MiB; one second.
    fn default() -> Self {
        Options { max_size: Some(256 << 20), seal_after_ns: 1_000_000_000 }
    }
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Pages were written (else it was not time yet).
    pub sealed: bool,
    /// Records taken out of the rings so far.
    pub records: u64,
    /// Records lost so far, all rings together.
    pub lost: u64,
    /// Bytes that the recording takes on disk now.
    pub bytes: u64,
    /// Records that were dropped again because of `max_size`.
    pub dropped: u64,
    /// How full the fullest ring was, in 1/1000: above 250, sweep more often.
    pub fullest: u32,
    /// Steps that have ended.
    pub steps: u32,
}

/// Writes one recording.
pub struct Writer<S: Sink> {
    sink: S,
    options: Options,
    framer: Framer,
    encoder: Encoder,
    rings: Rings,
    chunks: Chunks,
    merge: Merge,
    fold: Fold,
    clock: Option<Clock>,
    ledger: Ledger,
    /// Every definition so far: messages one after the other.
    definitions: Vec<u8>,
    facts: Map<String, Value>,
    sealed_at: Option<u64>,
    sweeps: u64,
    done: Sweep,
    finished: bool,
    /// Pages that are not written yet.
    out: Vec<u8>,
    payload: Vec<u8>,
}

impl<S: Sink> Writer<S> {
    /// Writes the header.
    ///
    /// # Errors
    /// What the sink says.
    pub fn new(mut sink: S, header: &Header, options: Options) -> io::Result<Writer<S>> {
        let head = header.encode();
        sink.write_at(0, &head)?;
        Ok(Writer {
            sink,
            options,
            framer: Framer::default(),
            encoder: Encoder::default(),
            rings: Rings::default(),
            chunks: Chunks::new(head.len() as u64, options.max_size),
            merge: Merge::default(),
            fold: Fold::default(),
            clock: None,
            ledger: Ledger::default(),
            definitions: Vec::new(),
            facts: Map::new(),
            sealed_at: None,
            sweeps: 0,
            done: Sweep::default(),
            finished: false,
            out: Vec::new(),
            payload: Vec::new(),
        })
    }

    /// Writes facts about the process: a JSON object, merged over the earlier ones by readers (docs/recording.md).
    ///
    /// # Errors
    /// What the sink says.
    pub fn meta(&mut self, drain: &Drain, facts: &Value) -> io::Result<()> {
        if self.finished {
            return Ok(());
        }
        self.note_facts(facts);
        self.flush().inspect_err(|_| self.give_up(drain))
    }

    fn note_facts(&mut self, facts: &Value) {
        if let Some(facts) = facts.as_object() {
            self.facts.extend(facts.iter().map(|(k, v)| (k.clone(), v.clone())));
            self.framer.page(&mut self.out, Tag::Meta, facts_text(facts).as_bytes());
        }
    }

    /// Looks at all rings and writes what is due. Cheap where nothing is; call it every 10 ms or so.
    ///
    /// # Errors
    /// What the sink says. Nothing that could not be written has left its ring.
    pub fn sweep(&mut self, drain: &mut Drain, now: Moment) -> io::Result<Sweep> {
        self.done.sealed = false;
        if self.finished {
            return Ok(self.done);
        }
        let region = drain.region();
        region.calibrate(now);
        let sealed_at = *self.sealed_at.get_or_insert(now.mono_ns);
        self.done.lost = region.lost();
        let (waiting, fullest) = self.rings.fullest(drain);
        self.done.fullest = fullest;
        let defined = drain.defined();
        let defined = defined.end.saturating_sub(defined.start);
        // A quarter: while pages are encoded and written the job goes on, maybe on the only core there is.
        let crowded = fullest >= 250 || defined.saturating_mul(2) >= u64::from(region.geometry().definitions);
        let late = now.mono_ns.saturating_sub(sealed_at) >= self.options.seal_after_ns;
        if crowded || (late && (waiting || defined > 0)) {
            self.seal(drain, now).inspect_err(|_| self.give_up(drain))?;
        }
        Ok(self.done)
    }

    /// Writes everything that is published, then the last facts and the End page, and marks the region as ended.
    ///
    /// # Errors
    /// What the sink says.
    pub fn end(&mut self, drain: &mut Drain, now: Moment, facts: &Value) -> io::Result<Sweep> {
        if self.finished {
            return Ok(self.done);
        }
        drain.region().calibrate(now);
        self.seal(drain, now).inspect_err(|_| self.give_up(drain))?;
        self.merge.end();
        self.feed();
        self.ledger.finish();
        self.done.steps = self.ledger.steps();
        self.note_facts(facts);
        let mark = self.mark(drain, now);
        self.framer.page(&mut self.out, Tag::End, &mark.encode());
        self.flush().inspect_err(|_| self.give_up(drain))?;
        drain.region().set_flags(flag::CLEAN_END);
        self.finished = true;
        Ok(self.done)
    }

    /// The sink: to look at.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The sink: to sync or to close it. Nothing is buffered above it between calls.
    pub fn into_sink(self) -> S {
        self.sink
    }

    fn give_up(&mut self, drain: &Drain) {
        self.finished = true;
        self.out = Vec::new();
        drain.region().set_flags(flag::WRITER_STOPPED);
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.chunks.append(&mut self.sink, &mut self.framer, &self.out)?;
        self.done.bytes = self.chunks.kept();
        self.done.dropped = self.chunks.dropped();
        // A burst's memory is given back.
        if self.out.capacity() > 4 << 20 {
            self.out = Vec::new();
        }
        self.out.clear();
        Ok(())
    }

    fn seal(&mut self, drain: &mut Drain, now: Moment) -> io::Result<()> {
        let region = drain.region();
        let began = region.began();
        let tsc = region.clock() == region::Clock::Tsc;
        let ns = now.mono_ns.saturating_sub(began.mono_ns);
        let guess = if tsc { 0.4 } else { 1.0 };
        let clock = self.clock.get_or_insert_with(|| Clock::new(began.ticks, 0, guess));
        clock.point(now.ticks, ns);
        // Heads first, definitions after: whatever a record refers to was committed before the record was published.
        self.rings.look(drain);
        let defined = drain.defined();
        let (a, b) = drain.definitions(defined.end);
        let start = self.definitions.len();
        self.definitions.extend_from_slice(a);
        self.definitions.extend_from_slice(b);
        let mended = self.ledger.is_past_new_gap() && self.chunks.may_begin_early();
        if self.chunks.is_new_due() || mended {
            self.begin_chunk(drain, now);
        } else {
            self.definition_pages(start);
        }
        let shift = if tsc { 5 } else { 3 };
        self.rings.encode(drain, shift, &mut self.encoder, |payload| {
            self.framer.page(&mut self.out, Tag::Events, payload);
        });
        self.sweeps += 1;
        let mark = self.mark(drain, now);
        self.framer.page(&mut self.out, Tag::Sweep, &mark.encode());
        self.flush()?;
        let newest = self.merge.newest();
        let taken = self.rings.take(drain, &mut self.merge);
        drain.advance_definitions(defined.end);
        self.merge.end_sweep(newest);
        self.ledger.lost(self.done.lost, Nanos(ns));
        self.feed();
        self.done.records = self.done.records.saturating_add(taken);
        self.chunks.took(taken);
        self.done.sealed = true;
        self.done.steps = self.ledger.steps();
        self.sealed_at = Some(now.mono_ns);
        Ok(())
    }

    /// Feeds the ledger with what is in order by now.
    fn feed(&mut self) {
        let Writer { merge, fold, clock, ledger, .. } = self;
        let Some(clock) = clock else { return };
        let mut events = Vec::new();
        let mut more = true;
        while more {
            more = merge.drain(1024, |r, ring, thread| {
                fold.fold(ring, r, clock.at(r.ticks), ThreadId::numbered(thread), &mut events);
            });
            events.drain(..).for_each(|e| ledger.apply(&e));
        }
    }

    fn mark(&self, drain: &Drain, now: Moment) -> Mark {
        let region = drain.region();
        Mark {
            number: self.sweeps,
            ticks: now.ticks,
            ns: now.mono_ns.saturating_sub(region.began().mono_ns),
            tsc: region.clock() == region::Clock::Tsc,
            records: self.done.records.saturating_add(self.rings.count_due()),
            lost_unowned: region.lost_unowned(),
            lost_definitions: region.lost_definitions(),
            rings: self.rings.marks(),
        }
    }

    /// Pages with the definitions from byte `start` on, cut between messages.
    fn definition_pages(&mut self, start: usize) {
        const PAGE: usize = 1 << 20;
        let mut from = start;
        while let Some(rest) = self.definitions.get(from..).filter(|r| !r.is_empty()) {
            let mut to = 0;
            while let Some(n) = rest.get(to..to + 4) {
                let n = n.iter().rev().fold(0usize, |w, &b| w << 8 | usize::from(b));
                let end = (to + 4).saturating_add(n).min(rest.len());
                if to > 0 && end > PAGE {
                    break;
                }
                to = end;
            }
            let page = rest.get(..to).filter(|p| !p.is_empty()).unwrap_or(rest);
            self.payload.clear();
            put(&mut self.payload, from as u64);
            self.payload.extend_from_slice(page);
            from += page.len();
            self.framer.page(&mut self.out, Tag::Definitions, &self.payload);
        }
    }

    fn begin_chunk(&mut self, drain: &Drain, now: Moment) {
        let began = drain.region().began();
        // The first chunk begins with the recording; later ones with this sweep.
        let at = if self.chunks.count() == 0 { began } else { now };
        let ahead = self.out.len();
        self.chunks.begin(self.ledger.time.0, self.ledger.steps() + 1, ahead as u64);
        self.chunk_pages(drain, at);
        self.chunks.front(self.out.len().saturating_sub(ahead) as u64);
    }

    /// Chunk page, facts, definitions, checkpoint, and the records that the checkpoint does not hold yet.
    fn chunk_pages(&mut self, drain: &Drain, at: Moment) {
        let mut mark = self.mark(drain, at);
        mark.number = self.chunks.count();
        mark.rings = self.rings.marks_held(&self.merge);
        self.framer.page(&mut self.out, Tag::Chunk, &mark.encode());
        if !self.facts.is_empty() {
            self.framer.page(&mut self.out, Tag::Meta, facts_text(&self.facts).as_bytes());
        }
        self.definition_pages(0);
        let state = crate::format::checkpoint::encode(&self.ledger.checkpoint());
        self.ledger.checkpointed();
        self.framer.page(&mut self.out, Tag::Checkpoint, &state);
        let shift = if mark.tsc { 5 } else { 3 };
        self.rings.encode_held(&self.merge, shift, &mut self.encoder, |payload| {
            self.framer.page(&mut self.out, Tag::Events, payload);
        });
    }
}

fn facts_text(facts: &Map<String, Value>) -> String {
    serde_json::to_string(facts).unwrap_or_default()
}
