//! The state that the history leads to, and the history made whole.
//!
//! Readers replay a snapshot backwards and break on one that contradicts itself: a block outside of every segment, a
//! segment that vanishes twice. A recording with holes contradicts itself. So each event is held against the state,
//! and where something must have happened in between, entries that say so are put before it.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::filter::Filter;
use super::layout::{Block, Layout, Segment, in_reach};
use super::log::Log;
use super::origin::Origins;
use super::words::Word;
use crate::event::{
    self, Addr, Body, Checkpoint, DeviceId, Event, OpenSegment, RuntimeOp, SegmentOp, StackId, StreamHandle,
    ThreadId,
};

/// One device.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    pub(super) layout: Layout,
    pub(super) origins: Origins,
    /// Calls of the driver whose allocation has not come yet.
    called: Vec<Called>,
    /// The block whose free the last event requested: where nothing waits for it, its completion is the next.
    asked: Option<u64>,
    /// What a thread did whose next event has not come, and which tells the stack of its allocation.
    within: Option<Within>,
    /// A thread that the driver has just refused memory: it is within an allocation.
    refused: Option<ThreadId>,
}

/// A segment or range that torch obtained for an allocation that follows: that tells the stack.
#[derive(Clone, Copy, Debug)]
struct Called {
    thread: ThreadId,
    addr: u64,
    /// For a mapped range: where the block that it joined begins.
    start: u64,
}

/// Entries that come of an allocation before it is made: so many of the last ones of a kind.
#[derive(Clone, Copy, Debug)]
struct Within {
    thread: ThreadId,
    /// Completions of earlier frees.
    completed: usize,
    /// Segments and ranges that were given back to the driver.
    released: usize,
}

/// Requests up to this size come from the pools of small blocks (torch's `kSmallSize`).
pub(super) const SMALL_REQUEST: u64 = 1 << 20;

/// All devices.
#[derive(Clone, Debug, Default)]
pub(super) struct Tracker {
    pub(super) devices: BTreeMap<DeviceId, Device>,
    /// What the snapshot leaves out.
    filter: Filter,
    /// Who takes a snapshot, and of how many devices it has been said: torch says it of one after the other.
    taking: Option<(ThreadId, u8)>,
}

impl Tracker {
    pub(super) fn new(filter: Filter) -> Tracker {
        Tracker { filter, ..Tracker::default() }
    }

    /// Takes an event; appends what it is in the history, after what must have gone before it.
    pub(super) fn event(&mut self, e: &Event, out: &mut Vec<Entry>) {
        let device = match &e.body {
            Body::Alloc(b) | Body::FreeRequested(b) | Body::FreeCompleted(b) => b.device,
            Body::Segment { device, .. } | Body::Oom { device, .. } => *device,
            Body::Snapshot { active } => return self.snapshot(e, active.0, out),
            Body::Runtime { op: RuntimeOp::Malloc, addr: Addr(0), device, .. } => {
                return self.devices.get_mut(device).into_iter().for_each(|d| d.refused = Some(e.thread));
            }
            // Its completion is another event, even where it is the next.
            Body::FreeWaits { device, .. } => {
                return self.devices.get_mut(device).into_iter().for_each(|d| d.asked = None);
            }
            _ => return,
        };
        self.taking = self.taking.filter(|(thread, _)| *thread != e.thread);
        let d = self.devices.entry(device).or_default();
        let mut log = Log { out, device, time: e.time, filter: &self.filter };
        let asked = d.asked.take();
        d.within = d.within.filter(|w| w.thread == e.thread);
        d.refused = d.refused.filter(|thread| *thread == e.thread);
        match &e.body {
            Body::Alloc(b) => {
                d.answer(e.thread, b.stack, Some(b.size.0 <= SMALL_REQUEST), &mut log);
                d.alloc(b, &mut log);
            }
            Body::FreeRequested(b) => d.free_requested(b, &mut log),
            Body::FreeCompleted(b) => {
                let told = d.free_completed(b, &mut log);
                let more = d.also_within(e.thread, usize::from(told), 0);
                d.within = (asked != Some(b.addr.0)).then_some(more);
            }
            Body::Segment { op, addr, size, stream, pool, .. } => {
                let size = in_reach(addr.0, size.0);
                let (stream, pool, expandable) = (*stream, *pool, *op == SegmentOp::Map);
                let s = Segment { size, stream, pool, expandable, ..Segment::default() };
                d.segment(*op, addr.0, s, e.thread, &mut log);
            }
            Body::Oom { requested, free, stream, stack, .. } => {
                d.answer(e.thread, *stack, None, &mut log);
                log.add(Word::Oom, free.0, requested.0, *stream).stack = *stack;
            }
            _ => {}
        }
    }

    /// torch took a snapshot. It always says device 0, but says it of each of its devices in turn.
    fn snapshot(&mut self, e: &Event, active: u64, out: &mut Vec<Entry>) {
        let before = self.taking.filter(|(thread, _)| *thread == e.thread).map_or(0, |(_, n)| n);
        let next = DeviceId(before);
        // A device that is not used has nothing active; and after the last one, the next snapshot begins.
        let first = self.devices.keys().next().copied().unwrap_or_default();
        let device = if self.devices.contains_key(&next) || active == 0 { next } else { first };
        self.taking = Some((e.thread, device.0.saturating_add(1)));
        self.devices.entry(device).or_default();
        let mut log = Log { out, device, time: e.time, filter: &self.filter };
        log.add(Word::Snapshot, 0, active, StreamHandle(0));
    }

    /// Entries that were collected may still be completed by what follows.
    pub(super) fn is_waiting(&self) -> bool {
        self.devices.values().any(|d| !d.called.is_empty() || d.within.is_some())
    }

    /// Takes a checkpoint. `begins`: the recording begins with it, and what it holds was there before the history.
    /// Later ones repeat what is known, unless something was lost since.
    pub(super) fn checkpoint(&mut self, c: &Checkpoint, begins: bool, out: &mut Vec<Entry>) {
        let mut then = Tracker::default();
        for s in &c.segments {
            let &OpenSegment { device, addr, size, stream, pool, expandable } = s;
            let size = in_reach(addr.0, size.0);
            let segment = Segment { size, stream, pool, expandable, ..Segment::default() };
            then.devices.entry(device).or_default().insert(addr.0, segment);
        }
        let mut unused = Vec::new();
        for l in &c.blocks {
            let b = &l.block;
            let mut log = Log { out: &mut unused, device: b.device, time: l.born, filter: &self.filter };
            let d = then.devices.entry(b.device).or_default();
            d.alloc(b, &mut log);
            if let Some(x) = d.layout.blocks.get_mut(&b.addr.0) {
                x.pending = l.pending;
            }
        }
        if begins {
            self.devices = then.devices;
            return;
        }
        for (&device, now) in &mut self.devices {
            let then = then.devices.remove(&device).unwrap_or_default();
            now.repair_to(then, &mut Log { out, device, time: c.time, filter: &self.filter });
        }
        for (device, then) in then.devices {
            let now = self.devices.entry(device).or_default();
            now.repair_to(then, &mut Log { out, device, time: c.time, filter: &self.filter });
        }
    }
}

impl Device {
    /// The allocation (or its failure) for which this thread has called the driver.
    fn answer(&mut self, thread: ThreadId, stack: StackId, small: Option<bool>, log: &mut Log<'_>) {
        for c in std::mem::take(&mut self.called) {
            // Another thread comes between only where torch lets go of its lock while it calls the driver.
            let made = self.layout.segments.range_mut(..=c.addr).next_back().filter(|_| c.thread == thread);
            let Some((_, s)) = made else { continue };
            s.small = s.small.or(small);
            let (kind, expandable) = ((s.stream, s.pool, s.small.unwrap_or(false)), s.expandable);
            if expandable {
                self.origins.map_called(c.start, c.addr, kind, stack);
            } else {
                self.origins.segment(c.addr, stack);
            }
            let device = log.device;
            let mut fresh = log.out.iter_mut().rev();
            let obtained = |w| matches!(w, Word::SegmentAlloc | Word::SegmentMap);
            let entry = fresh.find(|e| e.device == device && e.addr.0 == c.addr && obtained(e.action));
            entry.into_iter().for_each(|e| e.stack = stack);
        }
        self.refused = None;
        // An allocation begins with the completion of what waited for a stream and need not any more: torch tells its stack of
        // that, and of all that is completed and released where the driver has no memory left.
        if let Some(within) = self.within.take()
            && stack != StackId(0)
        {
            let device = log.device;
            let completed =
                |e: &&mut Entry| e.device == device && e.action == Word::FreeCompleted && !e.repaired;
            log.out.iter_mut().rev().filter(completed).take(within.completed).for_each(|e| e.stack = stack);
            let released = |e: &&mut Entry| {
                let gone = matches!(e.action, Word::SegmentFree | Word::SegmentUnmap);
                e.device == device && gone && !e.repaired
            };
            log.out.iter_mut().rev().filter(released).take(within.released).for_each(|e| e.stack = stack);
        }
    }

    fn alloc(&mut self, b: &event::Block, log: &mut Log<'_>) {
        let mut block = Block::new(b, log.time);
        let addr = b.addr.0;
        block.hidden = log.filter.hides(log.device, addr, &block);
        self.evict_blocks(addr, addr.saturating_add(block.size), log);
        self.adopt(addr, &mut block, log);
        if self.origins.has(addr) {
            self.origins.handed_out(addr, block.size, self.layout.free_until(addr));
        }
        log.block(Word::Alloc, addr, &block, Some(b.phase));
        self.layout.blocks.insert(addr, block);
    }

    /// What this thread has done within its allocation, with so much more.
    fn also_within(&self, thread: ThreadId, completed: usize, released: usize) -> Within {
        let w = self.within.unwrap_or(Within { thread, completed: 0, released: 0 });
        Within { completed: w.completed + completed, released: w.released + released, ..w }
    }

    /// A segment or range is given back: for an allocation, if the driver has just refused one; else by `empty_cache`, which has no
    /// stack in torch's history of allocations.
    fn given_back(&mut self, thread: ThreadId) {
        self.within = self.refused.map(|_| self.also_within(thread, 0, 1));
    }

    fn free_requested(&mut self, b: &event::Block, log: &mut Log<'_>) {
        (self.asked, self.within, self.refused) = (Some(b.addr.0), None, None);
        let Some(block) = self.layout.blocks.get_mut(&b.addr.0) else { return };
        if !block.pending {
            block.pending = true;
            let block = *block;
            log.block(Word::FreeRequested, b.addr.0, &block, Some(b.phase));
        }
    }

    /// `true`: there is an entry of it now.
    fn free_completed(&mut self, b: &event::Block, log: &mut Log<'_>) -> bool {
        let Some(block) = self.remove_block(b.addr.0) else { return false };
        log.block(Word::FreeCompleted, b.addr.0, &block, Some(b.phase));
        !block.hidden
    }

    pub(super) fn remove_block(&mut self, addr: u64) -> Option<Block> {
        let block = self.layout.blocks.remove(&addr)?;
        let end = addr.saturating_add(block.size);
        if self.origins.has(addr) || self.origins.has(end) {
            let (before, after) = self.layout.free_around(addr, end);
            self.origins.merged(addr, end, before, after);
        }
        Some(block)
    }

    fn segment(&mut self, op: SegmentOp, addr: u64, s: Segment, thread: ThreadId, log: &mut Log<'_>) {
        let end = addr.saturating_add(s.size);
        if s.size == 0 {
            return;
        }
        match op {
            SegmentOp::Alloc | SegmentOp::Map => {
                self.evict(addr, end, log);
                let start = if s.expandable { self.origins.mapped(&self.layout, addr, end) } else { addr };
                self.add_segment(addr, s, false, log);
                self.called.push(Called { thread, addr, start });
            }
            SegmentOp::Free => {
                self.evict_blocks(addr, end, log);
                if self
                    .layout
                    .segments
                    .get(&addr)
                    .is_some_and(|known| known.size == s.size && !known.expandable)
                {
                    self.layout.segments.remove(&addr);
                    let stack = self.origins.freed(addr);
                    log.segment(Word::SegmentFree, addr, &s, stack, false);
                    self.given_back(thread);
                } else {
                    self.evict(addr, end, log);
                }
            }
            SegmentOp::Unmap => {
                self.evict_blocks(addr, end, log);
                let before = self.layout.segments.range(..=addr).next_back();
                let whole = before.is_some_and(|(&a, known)| known.expandable && end <= a + known.size);
                if whole {
                    let stack = self.origins.unmapped(&self.layout, addr, end);
                    self.cut(addr, end);
                    log.segment(Word::SegmentUnmap, addr, &s, stack, false);
                    self.given_back(thread);
                } else {
                    self.evict(addr, end, log);
                }
            }
        }
    }
}
