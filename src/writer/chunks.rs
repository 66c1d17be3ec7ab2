//! The bound on the file's size: the oldest chunk becomes a Skip page, and new pages go where its bytes were (`space`).
//!
//! The Skip page overwrites the front of the first dropped chunk and grows with each further one, so there is at most one.
//! It is rewritten before the bytes go: a reader at any moment sees either the chunk or the Skip.

use super::sink::Sink;
use super::space::Space;
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
/// What a Skip page may take at most: its frame and five varints. A chunk is longer.
const SKIP: u64 = FRAME as u64 + 50;

/// All chunks of the file.
pub(super) struct Chunks {
    max_size: Option<u64>,
    limit: u64,
    space: Space,
    chunks: VecDeque<Chunk>,
    begun: u64,
    /// Where the Skip page is, and what it says.
    skip: Option<(u64, Skipped)>,
}

struct Chunk {
    start: u64,
    /// Where its events begin.
    body: u64,
    records: u64,
    from_ns: u64,
    step: u32,
}

impl Chunks {
    pub(super) fn new(header: u64, max_size: Option<u64>) -> Chunks {
        let limit = max_size.map_or(CHUNK, |m| (m / CHUNKS).clamp(MIN_CHUNK, CHUNK));
        Chunks { max_size, limit, space: Space::new(header), chunks: VecDeque::new(), begun: 0, skip: None }
    }

    /// Chunks begun so far.
    pub(super) fn count(&self) -> u64 {
        self.begun
    }

    /// Whether the next pages must begin a chunk.
    pub(super) fn is_new_due(&self) -> bool {
        self.chunks.back().is_none_or(|c| self.space.end().saturating_sub(c.body) >= self.limit)
    }

    /// Whether a chunk that is not due by size may begin: what chunks repeat never outweighs the events between them.
    pub(super) fn may_begin_early(&self) -> bool {
        let lasts = |c: &Chunk| {
            let front = c.body.saturating_sub(c.start);
            self.space.end().saturating_sub(c.body) >= front
        };
        self.chunks.back().is_none_or(lasts)
    }

    /// A chunk begins `ahead` bytes behind what is written.
    pub(super) fn begin(&mut self, from_ns: u64, step: u32, ahead: u64) {
        self.begun += 1;
        let start = self.space.end().saturating_add(ahead);
        self.chunks.push_back(Chunk { start, body: start, records: 0, from_ns, step });
    }

    /// So many bytes of pages come before the events of the chunk that began.
    pub(super) fn front(&mut self, bytes: u64) {
        if let Some(c) = self.chunks.back_mut() {
            c.body = c.start.saturating_add(bytes);
        }
    }

    /// Writes pages, behind all others; the oldest chunks make room for them.
    pub(super) fn append<S: Sink>(
        &mut self,
        sink: &mut S,
        framer: &mut Framer,
        pages: &[u8],
    ) -> io::Result<()> {
        self.make_room(sink, framer, pages.len() as u64)?;
        self.space.append(sink, pages)
    }

    /// So many records were taken from the rings.
    pub(super) fn took(&mut self, records: u64) {
        if let Some(c) = self.chunks.back_mut() {
            c.records = c.records.saturating_add(records);
        }
    }

    /// Bytes on disk.
    pub(super) fn kept(&self) -> u64 {
        self.space.kept()
    }

    /// Records that are no longer in the file.
    pub(super) fn dropped(&self) -> u64 {
        self.skip.map_or(0, |(_, s)| s.records)
    }

    /// Drops the oldest chunks until so many bytes more keep the bound. The last one that is written stays.
    fn make_room<S: Sink>(&mut self, sink: &mut S, framer: &mut Framer, more: u64) -> io::Result<()> {
        let Some(max) = self.max_size else { return Ok(()) };
        while self.kept().saturating_add(more) > max {
            let written = self.space.end();
            let (Some(old), Some(next)) = (self.chunks.front(), self.chunks.get(1)) else { break };
            if next.start >= written {
                break;
            }
            let (at, before) = self.skip.unwrap_or((
                old.start,
                Skipped { from_ns: old.from_ns, first_step: old.step, ..Skipped::default() },
            ));
            let records = before.records.saturating_add(old.records);
            let said = Skipped { records, to_ns: next.from_ns, last_step: next.step, ..before };
            let length = next.start.saturating_sub(at).saturating_sub(FRAME as u64);
            let (from, to) = (old.start.max(at.saturating_add(SKIP)), next.start);
            self.space.rewrite(sink, at, &framer.skip(length, &said.encode()))?;
            self.space.release(sink, from, to)?;
            self.skip = Some((at, said));
            self.chunks.pop_front();
        }
        Ok(())
    }
}
