//! The state that the history leads to, and the history made whole.
//!
//! Readers replay a snapshot backwards and break on one that contradicts itself: a block outside of every segment, a
//! segment that vanishes twice. A recording with holes contradicts itself. So each event is held against the state,
//! and where something must have happened in between, entries that say so are put before it.

use std::collections::BTreeMap;

use super::entry::{Action, Entry};
use crate::event::{
    self, Addr, Body, Bytes, Checkpoint, DeviceId, Event, Nanos, Phase, PoolId, SegmentOp, StackId,
    StreamHandle,
};

/// The page that segments are made of, for those that were never reported.
const PAGE: u64 = 2 << 20;
/// What block sizes are multiples of.
const GRAIN: u64 = 512;

/// A segment, or a contiguous mapped range of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) size: u64,
    pub(super) stream: StreamHandle,
    pub(super) pool: PoolId,
    pub(super) expandable: bool,
    /// Never reported: blocks were handed out there.
    pub(super) made_up: bool,
}

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    /// Rounded; where that was not reported, the request rounded up.
    pub(super) size: u64,
    pub(super) requested: u64,
    pub(super) stream: StreamHandle,
    pub(super) pool: PoolId,
    pub(super) stack: StackId,
    pub(super) born: Nanos,
    pub(super) pending: bool,
}

/// One device.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) blocks: BTreeMap<u64, Block>,
}

/// All devices.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracker {
    pub(super) devices: BTreeMap<DeviceId, Device>,
}

impl Tracker {
    /// Takes an event; appends what it is in the history, after what must have gone before it.
    pub(super) fn event(&mut self, e: &Event, out: &mut Vec<Entry>) {
        let device = match &e.body {
            Body::Alloc(b) | Body::FreeRequested(b) | Body::FreeCompleted(b) => b.device,
            Body::Segment { device, .. } | Body::Oom { device, .. } => *device,
            // torch writes this one under device 0, whatever the device.
            Body::Snapshot { .. } => self.devices.keys().next().copied().unwrap_or_default(),
            _ => return,
        };
        let d = self.devices.entry(device).or_default();
        let mut log = Log { out, device, time: e.time };
        match &e.body {
            Body::Alloc(b) => d.alloc(b, &mut log),
            Body::FreeRequested(b) => d.free_requested(b, &mut log),
            Body::FreeCompleted(b) => d.free_completed(b, &mut log),
            Body::Segment { op, addr, size, stream, pool, .. } => {
                let s = Segment {
                    size: size.0,
                    stream: *stream,
                    pool: *pool,
                    expandable: *op == SegmentOp::Map,
                    made_up: false,
                };
                d.segment(*op, addr.0, s, &mut log);
            }
            Body::Oom { requested, free, stream, stack, .. } => {
                log.add(Action::Oom, free.0, requested.0, *stream).stack = *stack;
            }
            Body::Snapshot { active } => drop(log.add(Action::Snapshot, 0, active.0, StreamHandle(0))),
            _ => {}
        }
    }

    /// Takes a checkpoint. `begins`: the recording begins with it, and what it holds was there before the history.
    /// Later ones repeat what is known, unless something was lost since.
    pub(super) fn checkpoint(&mut self, c: &Checkpoint, begins: bool, out: &mut Vec<Entry>) {
        let mut then = Tracker::default();
        for s in &c.segments {
            let segment = Segment {
                size: s.size.0,
                stream: s.stream,
                pool: s.pool,
                expandable: s.expandable,
                made_up: false,
            };
            then.devices.entry(s.device).or_default().insert(s.addr.0, segment);
        }
        let mut unused = Vec::new();
        for l in &c.blocks {
            let b = &l.block;
            let mut log = Log { out: &mut unused, device: b.device, time: l.born };
            let d = then.devices.entry(b.device).or_default();
            d.alloc(b, &mut log);
            if let Some(x) = d.blocks.get_mut(&b.addr.0) {
                x.pending = l.pending;
            }
        }
        if begins {
            *self = then;
            return;
        }
        for (&device, now) in &mut self.devices {
            let then = then.devices.remove(&device).unwrap_or_default();
            now.become_like(then, &mut Log { out, device, time: c.time });
        }
        for (device, then) in then.devices {
            let now = self.devices.entry(device).or_default();
            now.become_like(then, &mut Log { out, device, time: c.time });
        }
    }
}

/// Where entries go.
struct Log<'a> {
    out: &'a mut Vec<Entry>,
    device: DeviceId,
    time: Nanos,
}

impl Log<'_> {
    fn add(&mut self, action: Action, addr: u64, size: u64, stream: StreamHandle) -> &mut Entry {
        let at = self.out.len();
        self.out.push(Entry {
            action,
            device: self.device,
            addr: Addr(addr),
            size: Bytes(size),
            stream,
            pool: PoolId::DEFAULT,
            stack: StackId(0),
            time: self.time,
            phase: None,
            repaired: false,
            event: 0,
        });
        &mut self.out[at]
    }

    fn block(&mut self, action: Action, addr: u64, b: &Block, phase: Option<Phase>, stack: StackId) {
        let e = self.add(action, addr, b.requested, b.stream);
        (e.pool, e.phase, e.stack) = (b.pool, phase, stack);
    }

    fn segment(&mut self, action: Action, addr: u64, s: &Segment, repaired: bool) {
        let e = self.add(action, addr, s.size, s.stream);
        (e.pool, e.repaired) = (s.pool, repaired);
    }
}

impl Block {
    fn new(b: &event::Block, born: Nanos) -> Block {
        let requested = b.size.0;
        let up = requested.max(1).checked_next_multiple_of(GRAIN).unwrap_or(u64::MAX);
        // torch can hand a whole larger block out, so what it reported counts; below the request it cannot be.
        let size = if b.rounded.0 >= requested && b.rounded.0 > 0 { b.rounded.0 } else { up };
        Block { size, requested, stream: b.stream, pool: b.pool, stack: b.stack, born, pending: false }
    }
}

impl Device {
    fn alloc(&mut self, b: &event::Block, log: &mut Log<'_>) {
        let mut block = Block::new(b, log.time);
        let addr = b.addr.0;
        self.evict_blocks(addr, addr.saturating_add(block.size), log);
        self.adopt(addr, &mut block, log);
        log.block(Action::Alloc, addr, &block, Some(b.phase), b.stack);
        self.blocks.insert(addr, block);
    }

    fn free_requested(&mut self, b: &event::Block, log: &mut Log<'_>) {
        let Some(block) = self.blocks.get_mut(&b.addr.0) else { return };
        if !block.pending {
            block.pending = true;
            let block = *block;
            log.block(Action::FreeRequested, b.addr.0, &block, Some(b.phase), b.stack);
        }
    }

    fn free_completed(&mut self, b: &event::Block, log: &mut Log<'_>) {
        if let Some(block) = self.blocks.remove(&b.addr.0) {
            log.block(Action::FreeCompleted, b.addr.0, &block, Some(b.phase), b.stack);
        }
    }

    fn segment(&mut self, op: SegmentOp, addr: u64, s: Segment, log: &mut Log<'_>) {
        let end = addr.saturating_add(s.size);
        if s.size == 0 {
            return;
        }
        match op {
            SegmentOp::Alloc | SegmentOp::Map => {
                self.evict(addr, end, log);
                self.come(addr, s, false, log);
            }
            SegmentOp::Free => {
                self.evict_blocks(addr, end, log);
                if self.segments.get(&addr).is_some_and(|known| known.size == s.size && !known.expandable) {
                    self.segments.remove(&addr);
                    log.segment(Action::SegmentFree, addr, &s, false);
                } else {
                    self.evict(addr, end, log);
                }
            }
            SegmentOp::Unmap => {
                self.evict_blocks(addr, end, log);
                let before = self.segments.range(..=addr).next_back();
                let whole = before.is_some_and(|(&a, known)| known.expandable && end <= a + known.size);
                if whole {
                    self.cut(addr, end);
                    log.segment(Action::SegmentUnmap, addr, &s, false);
                } else {
                    self.evict(addr, end, log);
                }
            }
        }
    }

    /// A segment comes, where nothing is in its way.
    fn come(&mut self, addr: u64, s: Segment, repaired: bool, log: &mut Log<'_>) {
        if s.expandable {
            // Readers merge what touches a mapped range on the same stream, whatever it is.
            let before = self.segments.range(..addr).next_back().filter(|&(&a, b)| a + b.size == addr);
            let after = self.segments.get_key_value(&addr.saturating_add(s.size));
            let stray = |&(_, x): &(&u64, &Segment)| x.made_up && !x.expandable && x.stream == s.stream;
            let strays: Vec<u64> = before.into_iter().chain(after).filter(stray).map(|(&a, _)| a).collect();
            for a in strays {
                self.recast(a, log);
            }
        }
        let action = if s.expandable { Action::SegmentMap } else { Action::SegmentAlloc };
        log.segment(action, addr, &s, repaired);
        self.insert(addr, s);
    }

    /// A segment that was made up turns out to be a part of an expandable one: it comes again as that.
    fn recast(&mut self, addr: u64, log: &mut Log<'_>) {
        let Some(s) = self.segments.get(&addr).copied() else { return };
        let blocks: Vec<(u64, Block)> =
            self.blocks.range(addr..addr + s.size).map(|(&a, b)| (a, *b)).collect();
        self.evict(addr, addr + s.size, log);
        let s = Segment { expandable: true, ..s };
        log.segment(Action::SegmentMap, addr, &s, true);
        self.insert(addr, s);
        for (a, b) in blocks {
            self.appear(a, b, log);
        }
    }

    /// A block is there, though nothing was said of it.
    fn appear(&mut self, addr: u64, b: Block, log: &mut Log<'_>) {
        log.block(Action::Alloc, addr, &b, None, b.stack);
        log.mark();
        if b.pending {
            log.block(Action::FreeRequested, addr, &b, None, StackId(0));
            log.mark();
        }
        self.blocks.insert(addr, b);
    }

    /// Puts a segment in; ranges of an expandable segment that touch are one.
    fn insert(&mut self, mut addr: u64, mut s: Segment) {
        let same = |a: &Segment, b: &Segment| {
            a.expandable && b.expandable && a.stream == b.stream && a.pool == b.pool
        };
        if let Some((&a, before)) = self.segments.range(..addr).next_back()
            && a + before.size == addr
            && same(before, &s)
        {
            s.size += before.size;
            addr = a;
        }
        if let Some(next) = self.segments.get(&(addr.saturating_add(s.size))).copied()
            && same(&next, &s)
        {
            self.segments.remove(&(addr + s.size));
            s.size += next.size;
        }
        self.segments.insert(addr, s);
    }

    /// Takes `addr..end` out of the segment it lies in.
    fn cut(&mut self, addr: u64, end: u64) {
        let Some((&a, &s)) = self.segments.range(..=addr).next_back() else { return };
        let whole_end = a + s.size;
        self.segments.remove(&a);
        if a < addr {
            self.segments.insert(a, Segment { size: addr - a, ..s });
        }
        if end < whole_end {
            self.segments.insert(end, Segment { size: whole_end - end, ..s });
        }
    }

    /// Frees what is in use within a range where it cannot be any more.
    fn evict_blocks(&mut self, from: u64, end: u64, log: &mut Log<'_>) {
        let mut gone: Vec<u64> = self.blocks.range(from..end).map(|(&a, _)| a).collect();
        if let Some((&a, b)) = self.blocks.range(..from).next_back()
            && a.saturating_add(b.size) > from
        {
            gone.push(a);
        }
        for a in gone {
            self.evict_block(a, log);
        }
    }

    fn evict_block(&mut self, addr: u64, log: &mut Log<'_>) {
        let Some(b) = self.blocks.remove(&addr) else { return };
        if !b.pending {
            log.block(Action::FreeRequested, addr, &b, None, StackId(0));
            log.mark();
        }
        log.block(Action::FreeCompleted, addr, &b, None, StackId(0));
        log.mark();
    }

    /// Removes segments that a new one overlaps, with their blocks: they must have gone unseen.
    fn evict(&mut self, from: u64, end: u64, log: &mut Log<'_>) {
        let mut hit: Vec<u64> = self.segments.range(from..end).map(|(&a, _)| a).collect();
        if let Some((&a, s)) = self.segments.range(..from).next_back()
            && a + s.size > from
        {
            hit.push(a);
        }
        for a in hit {
            let Some(s) = self.segments.get(&a).copied() else { continue };
            if s.expandable {
                let (lo, hi) = (a.max(from), (a + s.size).min(end));
                self.evict_blocks(lo, hi, log);
                self.cut(lo, hi);
                log.segment(Action::SegmentUnmap, lo, &Segment { size: hi - lo, ..s }, true);
            } else {
                self.evict_blocks(a, a + s.size, log);
                self.segments.remove(&a);
                log.segment(Action::SegmentFree, a, &s, true);
            }
        }
    }

    /// Sees to it that a block that is handed out lies in one segment: one that was never reported is made up.
    fn adopt(&mut self, addr: u64, block: &mut Block, log: &mut Log<'_>) {
        if let Some((&a, s)) = self.segments.range(..=addr).next_back()
            && addr < a + s.size
        {
            block.size = block.size.min(a + s.size - addr);
            return;
        }
        let floor = self.segments.range(..=addr).next_back().map_or(0, |(&a, s)| a + s.size);
        let ceiling = self.segments.range(addr..).next().map_or(u64::MAX, |(&a, _)| a);
        let from = (addr - addr % PAGE).max(floor);
        let end =
            addr.saturating_add(block.size).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX).min(ceiling);
        block.size = block.size.min(end - addr);
        let touches = |x: &Segment| x.expandable && x.stream == block.stream;
        let before = self.segments.range(..from).next_back().filter(|&(&a, s)| a + s.size == from);
        let expandable =
            before.is_some_and(|(_, s)| touches(s)) || self.segments.get(&end).is_some_and(touches);
        let (stream, pool) = (block.stream, block.pool);
        let s = Segment { size: end - from, stream, pool, expandable, made_up: true };
        self.come(from, s, true, log);
    }

    /// After a loss: what vanished is freed, what appeared is allocated, by entries that say so.
    fn become_like(&mut self, then: Device, log: &mut Log<'_>) {
        let stale = |now: &Block, then: Option<&Block>| {
            then.is_none_or(|t| t.born != now.born && t.requested != now.requested)
        };
        let gone: Vec<u64> =
            self.blocks.iter().filter(|(a, b)| stale(b, then.blocks.get(a))).map(|(&a, _)| a).collect();
        for a in gone {
            self.evict_block(a, log);
        }
        let holes: Vec<(u64, u64)> =
            self.segments.iter().flat_map(|(&a, s)| uncovered(a, a + s.size, &then.segments)).collect();
        for (from, end) in holes {
            self.evict(from, end, log);
        }
        for (&addr, s) in &then.segments {
            let end = addr.saturating_add(s.size);
            let known = self.segments.range(..=addr).next_back();
            if known.is_none_or(|(&a, k)| end > a + k.size) {
                self.evict(addr, end, log);
                log.segment(
                    if s.expandable { Action::SegmentMap } else { Action::SegmentAlloc },
                    addr,
                    s,
                    true,
                );
                self.insert(addr, *s);
            }
        }
        for (&addr, b) in &then.blocks {
            if !self.blocks.contains_key(&addr) {
                let mut b = *b;
                self.evict_blocks(addr, addr.saturating_add(b.size), log);
                self.adopt(addr, &mut b, log);
                self.appear(addr, b, log);
            }
        }
    }
}

impl Log<'_> {
    /// The last entry was told from what followed.
    fn mark(&mut self) {
        if let Some(e) = self.out.last_mut() {
            e.repaired = true;
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
