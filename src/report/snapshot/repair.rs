//! What must have happened where a recording has holes: entries that say so, put before what contradicts the state.

use std::collections::BTreeMap;

use super::layout::{Block, Segment};
use super::log::Log;
use super::track::Device;
use super::words::Word;
use crate::event::StackId;

/// The page that segments are made of, for those that were never reported.
const PAGE: u64 = 2 << 20;

impl Device {
    /// Adds a segment at an address where nothing else is.
    pub(super) fn add_segment(&mut self, addr: u64, s: Segment, repaired: bool, log: &mut Log<'_>) {
        if s.expandable {
            // Readers merge what touches a mapped range on the same stream, whatever it is.
            let before = self.layout.segments.range(..addr).next_back().filter(|&(&a, b)| a + b.size == addr);
            let after = self.layout.segments.get_key_value(&addr.saturating_add(s.size));
            let stray = |&(_, x): &(&u64, &Segment)| x.made_up && !x.expandable && x.stream == s.stream;
            let strays: Vec<u64> = before.into_iter().chain(after).filter(stray).map(|(&a, _)| a).collect();
            for a in strays {
                self.recast(a, log);
            }
        }
        let action = if s.expandable { Word::SegmentMap } else { Word::SegmentAlloc };
        log.segment(action, addr, &s, StackId(0), repaired);
        self.insert(addr, s);
    }

    /// A segment that was made up turns out to be a part of an expandable one: it comes again as that.
    fn recast(&mut self, addr: u64, log: &mut Log<'_>) {
        let Some(s) = self.layout.segments.get(&addr).copied() else { return };
        let blocks: Vec<(u64, Block)> =
            self.layout.blocks.range(addr..addr + s.size).map(|(&a, b)| (a, *b)).collect();
        self.evict(addr, addr + s.size, log);
        let s = Segment { expandable: true, ..s };
        log.segment(Word::SegmentMap, addr, &s, StackId(0), true);
        self.insert(addr, s);
        for (a, b) in blocks {
            self.appear(a, b, log);
        }
    }

    /// A block is there, though nothing was said of it.
    fn appear(&mut self, addr: u64, b: Block, log: &mut Log<'_>) {
        log.block_made_up(Word::Alloc, addr, &b);
        if b.pending {
            log.block_made_up(Word::FreeRequested, addr, &b);
        }
        self.layout.blocks.insert(addr, b);
    }

    /// Puts a segment in; ranges of an expandable segment that touch are one.
    pub(super) fn insert(&mut self, mut addr: u64, mut s: Segment) {
        let same = |a: &Segment, b: &Segment| {
            a.expandable && b.expandable && a.stream == b.stream && a.pool == b.pool
        };
        if let Some((&a, before)) = self.layout.segments.range(..addr).next_back()
            && a + before.size == addr
            && same(before, &s)
        {
            s.size += before.size;
            s.small = s.small.or(before.small);
            addr = a;
        }
        if let Some(next) = self.layout.segments.get(&(addr.saturating_add(s.size))).copied()
            && same(&next, &s)
        {
            self.layout.segments.remove(&(addr + s.size));
            s.size += next.size;
            s.small = s.small.or(next.small);
        }
        self.layout.segments.insert(addr, s);
    }

    /// Takes `addr..end` out of the segment it lies in.
    pub(super) fn cut(&mut self, addr: u64, end: u64) {
        let Some((&a, &s)) = self.layout.segments.range(..=addr).next_back() else { return };
        let whole_end = a + s.size;
        self.layout.segments.remove(&a);
        if a < addr {
            self.layout.segments.insert(a, Segment { size: addr - a, ..s });
        }
        if end < whole_end {
            self.layout.segments.insert(end, Segment { size: whole_end - end, ..s });
        }
    }

    /// Frees what is in use within a range where it cannot be any more.
    pub(super) fn evict_blocks(&mut self, from: u64, end: u64, log: &mut Log<'_>) {
        let mut gone: Vec<u64> = self.layout.blocks.range(from..end).map(|(&a, _)| a).collect();
        if let Some((&a, b)) = self.layout.blocks.range(..from).next_back()
            && a.saturating_add(b.size) > from
        {
            gone.push(a);
        }
        for a in gone {
            self.evict_block(a, log);
        }
    }

    fn evict_block(&mut self, addr: u64, log: &mut Log<'_>) {
        let Some(b) = self.remove_block(addr) else { return };
        if !b.pending {
            log.block_made_up(Word::FreeRequested, addr, &b);
        }
        log.block_made_up(Word::FreeCompleted, addr, &b);
    }

    /// Removes segments that a new one overlaps, with their blocks: they must have gone unseen.
    pub(super) fn evict(&mut self, from: u64, end: u64, log: &mut Log<'_>) {
        let mut hit: Vec<u64> = self.layout.segments.range(from..end).map(|(&a, _)| a).collect();
        if let Some((&a, s)) = self.layout.segments.range(..from).next_back()
            && a + s.size > from
        {
            hit.push(a);
        }
        for a in hit {
            let Some(s) = self.layout.segments.get(&a).copied() else { continue };
            if s.expandable {
                let (lo, hi) = (a.max(from), (a + s.size).min(end));
                self.evict_blocks(lo, hi, log);
                self.cut(lo, hi);
                log.segment(Word::SegmentUnmap, lo, &Segment { size: hi - lo, ..s }, StackId(0), true);
            } else {
                self.evict_blocks(a, a + s.size, log);
                self.layout.segments.remove(&a);
                let stack = self.origins.freed(a);
                log.segment(Word::SegmentFree, a, &s, stack, true);
            }
        }
    }

    /// Sees to it that a block that is handed out lies in one segment: one that was never reported is made up.
    pub(super) fn adopt(&mut self, addr: u64, block: &mut Block, log: &mut Log<'_>) {
        if let Some((&a, s)) = self.layout.segments.range(..=addr).next_back()
            && addr < a + s.size
        {
            block.size = block.size.min(a + s.size - addr);
            return;
        }
        let floor = self.layout.segments.range(..=addr).next_back().map_or(0, |(&a, s)| a + s.size);
        let ceiling = self.layout.segments.range(addr..).next().map_or(u64::MAX, |(&a, _)| a);
        let from = (addr - addr % PAGE).max(floor);
        let end =
            addr.saturating_add(block.size).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX).min(ceiling);
        block.size = block.size.min(end - addr);
        let touches = |x: &Segment| x.expandable && x.stream == block.stream;
        let before = self.layout.segments.range(..from).next_back().filter(|&(&a, s)| a + s.size == from);
        let expandable =
            before.is_some_and(|(_, s)| touches(s)) || self.layout.segments.get(&end).is_some_and(touches);
        let (stream, pool) = (block.stream, block.pool);
        let s = Segment { size: end - from, stream, pool, expandable, small: None, made_up: true };
        self.add_segment(from, s, true, log);
    }

    /// After a loss: makes the state equal to `then`, with made-up entries that free what vanished and allocate what appeared.
    pub(super) fn repair_to(&mut self, then: Device, log: &mut Log<'_>) {
        let stale = |now: &Block, then: Option<&Block>| {
            then.is_none_or(|t| t.born != now.born && t.requested != now.requested)
        };
        let gone: Vec<u64> = self
            .layout
            .blocks
            .iter()
            .filter(|(a, b)| stale(b, then.layout.blocks.get(a)))
            .map(|(&a, _)| a)
            .collect();
        for a in gone {
            self.evict_block(a, log);
        }
        let holes: Vec<(u64, u64)> = self
            .layout
            .segments
            .iter()
            .flat_map(|(&a, s)| uncovered(a, a + s.size, &then.layout.segments))
            .collect();
        for (from, end) in holes {
            self.evict(from, end, log);
        }
        for (&addr, s) in &then.layout.segments {
            let end = addr.saturating_add(s.size);
            let known = self.layout.segments.range(..=addr).next_back();
            if known.is_none_or(|(&a, k)| end > a + k.size) {
                self.evict(addr, end, log);
                log.segment(
                    if s.expandable { Word::SegmentMap } else { Word::SegmentAlloc },
                    addr,
                    s,
                    StackId(0),
                    true,
                );
                self.insert(addr, *s);
            }
        }
        for (&addr, b) in &then.layout.blocks {
            if !self.layout.blocks.contains_key(&addr) {
                let mut b = *b;
                self.evict_blocks(addr, addr.saturating_add(b.size), log);
                self.adopt(addr, &mut b, log);
                self.appear(addr, b, log);
            }
        }
    }
}

/// The parts of `from..end` that no segment covers.
fn uncovered(from: u64, end: u64, segments: &BTreeMap<u64, Segment>) -> Vec<(u64, u64)> {
    let mut at = from;
    let mut holes = Vec::new();
    let before = segments.range(..from).next_back();
    for (&a, s) in before.into_iter().chain(segments.range(from..end)) {
        if a > at {
            holes.push((at, a));
        }
        at = at.max(a.saturating_add(s.size));
    }
    if at < end {
        holes.push((at, end));
    }
    holes
}
