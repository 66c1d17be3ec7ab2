//! What a device looked like when an allocation failed: copied then, because what unwinds afterwards frees it.

use super::cohort::Now;
use super::table::Table;
use crate::event::{Bytes, PoolId, Segments, SiteId, StreamHandle, StreamId};
use rustc_hash::FxHashMap;

/// Blocks of one line and stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The line that allocated them.
    pub site: SiteId,
    /// Their stream.
    pub stream: StreamId,
    /// How many.
    pub blocks: u64,
    /// Their rounded sizes.
    pub bytes: Bytes,
    /// The step in which the oldest was allocated (from 1).
    pub first_step: u32,
    /// The part of `bytes` that the step which failed had allocated, and in how many blocks.
    pub of_this_step: Bytes,
    /// See `of_this_step`.
    pub blocks_of_this_step: u64,
}

/// A device at the moment of a failed allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// The failure: see [`super::OomEvent::event`].
    pub event: u64,
    /// The microbatch that ran (from 1).
    pub microbatch: u32,
    /// Bytes of segments that no block occupies, live or pending.
    pub cached: Bytes,
    /// In how many pieces.
    pub pieces: u64,
    /// The largest piece that the stream which asked may use: of its own, and of no private pool.
    pub largest: Bytes,
    /// The part of `cached` that other streams' and private pools' segments have.
    pub elsewhere: Bytes,
    /// What an optimizer has allocated in the step that failed, and has still: its state, and temporary copies.
    pub of_optimizer: Bytes,
    /// Allocated before the recording began, and live: of no line.
    pub before_recording: Bytes,
    /// Live blocks by line and stream, most bytes first; at most [`HOLDERS`].
    pub holders: Vec<Holder>,
}

/// Lines that a [`Scene`] names.
pub const HOLDERS: usize = 8;

impl Scene {
    /// The scene of failure `event` of an allocation for `stream`, on a device with these blocks and segments.
    pub(super) fn of(
        blocks: &Table,
        segments: &Segments,
        event: u64,
        now: Now,
        stream: StreamHandle,
    ) -> Scene {
        let mut scene = Scene { event, microbatch: now.microbatch, ..Scene::default() };
        scene.pieces(blocks, segments, stream);
        let mut by: FxHashMap<(u32, u32), Holder> = FxHashMap::default();
        for h in blocks.iter().filter(|h| !h.pending && !h.unverified) {
            let (site, stream) = (h.site, h.stream);
            let none = Holder { site, stream, first_step: h.step, ..Holder::default() };
            let e = by.entry((site.0, stream.0)).or_insert(none);
            e.blocks += 1;
            e.bytes.0 = e.bytes.0.saturating_add(h.rounded());
            e.first_step = e.first_step.min(h.step);
            if h.step >= now.step {
                e.of_this_step.0 = e.of_this_step.0.saturating_add(h.rounded());
                e.blocks_of_this_step += 1;
                if h.block.phase.optimizer {
                    scene.of_optimizer.0 = scene.of_optimizer.0.saturating_add(h.rounded());
                }
            }
        }
        scene.holders = by.into_values().collect();
        scene.holders.sort_by_key(|h| (std::cmp::Reverse(h.bytes), h.site, h.stream));
        scene.holders.truncate(HOLDERS);
        scene
    }

    /// Walks segments and blocks by address.
    fn pieces(&mut self, blocks: &Table, segments: &Segments, stream: StreamHandle) {
        let mut blocks: Vec<(u64, u64)> = blocks.iter().map(|h| (h.block.addr.0, h.rounded())).collect();
        blocks.sort_unstable();
        let mut blocks = blocks.into_iter().peekable();
        // A piece that reaches the end of a mapped range goes on in the next one of its expandable segment.
        let mut open: Option<(u64, u64, bool)> = None;
        for s in segments.iter() {
            let (mut at, end) = (s.addr.0, s.addr.end(s.size).0);
            let own = s.stream == stream && s.pool == PoolId::DEFAULT;
            match open.take() {
                Some((from, to, was_own)) if s.expandable && to == at && was_own == own => at = from,
                Some((from, to, was_own)) => self.piece(to - from, was_own),
                None => {}
            }
            while let Some((addr, size)) = blocks.next_if(|b| b.0 < end) {
                if addr > at {
                    self.piece(addr - at, own);
                }
                at = at.max(addr.saturating_add(size));
            }
            if at < end {
                if s.expandable { open = Some((at, end, own)) } else { self.piece(end - at, own) }
            }
        }
        if let Some((from, to, own)) = open {
            self.piece(to - from, own);
        }
    }

    fn piece(&mut self, size: u64, own: bool) {
        self.cached.0 = self.cached.0.saturating_add(size);
        self.pieces += 1;
        if own {
            self.largest.0 = self.largest.0.max(size);
        } else {
            self.elsewhere.0 = self.elsewhere.0.saturating_add(size);
        }
    }
}
