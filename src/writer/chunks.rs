//! The bound on the file's size: the oldest chunk becomes a Skip page, and its storage is given back.
//!
//! The Skip page overwrites the front of the first dropped chunk and grows with each further one, so there is at most one.
//! It is rewritten before the storage goes: a reader at any moment sees either the chunk or the Skip.

use super::sink::Sink;
use crate::format::marks::Skipped;
use crate::format::page::{FRAME, Framer};
use std::collections::VecDeque;
use std::io;

/// A new chunk begins after so many bytes, where the bound on the size does not ask for smaller ones.
const CHUNK: u64 = 16 << 20;
/// Chunks are not smaller than this, even if the bound is.
const MIN_CHUNK: u64 = 16 << 10;
/// Chunks that the bound should hold.
const CHUNKS: u64 = 8;
/// What a Skip page may take at most: its frame and five varints.
const SKIP: usize = FRAME + 50;
/// Storage goes in blocks of this.
const BLOCK: u64 = 4096;

/// All chunks of the file.
pub(super) struct Chunks {
    max_size: Option<u64>,
    limit: u64,
    /// Bytes in the file, holes included.
    length: u64,
    chunks: VecDeque<Chunk>,
    begun: u64,
    /// Where the Skip page is, and what it says.
    skip: Option<(u64, Skipped)>,
    /// The file system cannot free ranges and the bound is reached: no more events.
    stopped: Option<Skipped>,
}

struct Chunk {
    start: u64,
    /// Where its events begin.
    body: u64,
    records: u64,
    from_ns: u64,
    step: u32,
    /// Its first bytes, to put back where a range turns out to be unfreeable.
    front: Vec<u8>,
}

impl Chunks {
    pub(super) fn new(header: u64, max_size: Option<u64>) -> Chunks {
        let limit = max_size.map_or(CHUNK, |m| (m / CHUNKS).clamp(MIN_CHUNK, CHUNK));
        Chunks {
            max_size,
            limit,
            length: header,
            chunks: VecDeque::new(),
            begun: 0,
            skip: None,
            stopped: None,
        }
    }

    /// Chunks begun so far.
    pub(super) fn count(&self) -> u64 {
        self.begun
    }

    /// Whether the next pages must begin a chunk.
    pub(super) fn is_new_due(&self) -> bool {
        self.stopped.is_none()
            && self.chunks.back().is_none_or(|c| self.length.saturating_sub(c.body) >= self.limit)
    }

    /// Whether a chunk that is not due by size may begin: what chunks repeat never outweighs the events between them.
    pub(super) fn may_begin_early(&self) -> bool {
        let lasts = |c: &Chunk| {
            let front = c.body.saturating_sub(c.start);
            self.length.saturating_sub(c.body) >= front
        };
        self.stopped.is_none() && self.chunks.back().is_none_or(lasts)
    }

    /// A chunk begins `ahead` bytes behind what is written.
    pub(super) fn begin(&mut self, from_ns: u64, step: u32, ahead: u64) {
        self.begun += 1;
        let start = self.length.saturating_add(ahead);
        self.chunks.push_back(Chunk { start, body: start, records: 0, from_ns, step, front: Vec::new() });
    }

    /// The pages that the chunk begins with, before its events.
    pub(super) fn front(&mut self, pages: &[u8]) {
        if let Some(c) = self.chunks.back_mut() {
            c.front = pages.get(..SKIP).unwrap_or(pages).to_vec();
            c.body = c.start.saturating_add(pages.len() as u64);
        }
    }

    /// So many bytes were written.
    pub(super) fn written(&mut self, bytes: u64) {
        self.length = self.length.saturating_add(bytes);
    }

    /// So many records were taken from the rings.
    pub(super) fn took(&mut self, records: u64) {
        if self.stopped.is_none()
            && let Some(c) = self.chunks.back_mut()
        {
            c.records = c.records.saturating_add(records);
        }
    }

    /// So many records were taken and not written.
    pub(super) fn not_written(&mut self, records: u64) {
        if let Some(s) = &mut self.stopped {
            s.records = s.records.saturating_add(records);
        }
    }

    /// Bytes on disk.
    pub(super) fn kept(&self) -> u64 {
        let first = self.chunks.front().map_or(self.length, |c| c.start);
        let dropped = self.skip.map_or(0, |(at, _)| first.saturating_sub(at));
        self.length.saturating_sub(dropped)
    }

    /// Records that are no longer, or never were, in the file.
    pub(super) fn dropped(&self) -> u64 {
        let skip = self.skip.map_or(0, |(_, s)| s.records);
        skip.saturating_add(self.stopped.map_or(0, |s| s.records))
    }

    /// No more events are written.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// What was left out since the writer stopped.
    pub(super) fn left_out(&self, now_ns: u64, steps: u32) -> Skipped {
        let s = self.stopped.unwrap_or_default();
        Skipped { to_ns: now_ns, last_step: steps.saturating_add(1), ..s }
    }

    /// Drops the oldest chunks until the bound holds. The last one stays.
    pub(super) fn shrink<S: Sink>(&mut self, sink: &mut S, framer: &mut Framer) -> io::Result<()> {
        let Some(max) = self.max_size else { return Ok(()) };
        while self.stopped.is_none() && self.kept() > max && self.chunks.len() > 1 {
            let (Some(old), Some(next)) = (self.chunks.pop_front(), self.chunks.front()) else { break };
            let (end, to_ns, last_step) = (next.start, next.from_ns, next.step);
            let (at, before) = self.skip.unwrap_or((
                old.start,
                Skipped { from_ns: old.from_ns, first_step: old.step, ..Skipped::default() },
            ));
            let records = before.records.saturating_add(old.records);
            let said = Skipped { records, to_ns, last_step, ..before };
            let length = end.saturating_sub(at).saturating_sub(FRAME as u64);
            sink.rewrite(at, &framer.skip(length, &said.encode()))?;
            let first = (at + SKIP as u64).next_multiple_of(BLOCK);
            let from = first.max(old.start / BLOCK * BLOCK);
            let to = end / BLOCK * BLOCK;
            if from < to && !sink.punch(from, to)? {
                // Nothing was given back: the chunk stays, and the file does not grow any more.
                match self.skip {
                    None => sink.rewrite(at, &old.front)?,
                    Some(_) => {
                        let length = old.start.saturating_sub(at).saturating_sub(FRAME as u64);
                        sink.rewrite(at, &framer.skip(length, &before.encode()))?;
                    }
                }
                let from = self.chunks.back().unwrap_or(&old);
                let now = Skipped { from_ns: from.from_ns, first_step: from.step, ..Skipped::default() };
                self.stopped = Some(now);
                self.chunks.push_front(old);
                return Ok(());
            }
            self.skip = Some((at, said));
        }
        Ok(())
    }
}
