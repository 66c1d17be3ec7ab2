//! What is live, as the job's own drain sees it: enough to write a checkpoint, and no judgement.

use super::calls::Calls;
use crate::event::steps::{Boundary, StepMachine};
use crate::event::{
    Addr, Block, Body, Bytes, Checkpoint, DeviceId, DeviceTotals, Event, LiveBlock, Nanos, OpenSegment,
    SegmentOp, Segments, StepRow, StreamHandle, Totals,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// Rows of a device beyond which the older ones are thinned.
const MAX_ROWS: usize = 4096;

/// State of the process, fed in order.
#[derive(Default)]
pub(super) struct Ledger {
    live: FxHashMap<(DeviceId, Addr), LiveBlock>,
    devices: Vec<Device>,
    streams: Vec<(DeviceId, StreamHandle)>,
    known_streams: FxHashSet<(DeviceId, StreamHandle)>,
    calls: Calls,
    machine: StepMachine,
    /// Of the last event.
    pub(super) time: Nanos,
    events: u64,
    lost: u64,
    /// When the last gap was noticed: blocks born until then are unverified. Later than it happened, never earlier.
    gap: Option<Nanos>,
    /// The last gap that a checkpoint stands behind.
    told_gap: Option<Nanos>,
}

#[derive(Default)]
struct Device {
    segments: Segments,
    totals: DeviceTotals,
    peak_in_step: Bytes,
    /// What blocks of no cache hold: they are in our totals, and in none of torch's.
    direct: u64,
    blocks: u32,
    rows: Vec<StepRow>,
    /// What torch counted beyond our blocks and segments when it first told, and has not given back since: it was there
    /// before the recording. `None`: torch has not told yet.
    outside: Option<[u64; 2]>,
}

impl Ledger {
    /// Steps that have ended.
    pub(super) fn steps(&self) -> u32 {
        self.machine.steps()
    }

    /// Records were lost, so many in all; `now` is when that was seen. Events of before that may come yet.
    pub(super) fn lost(&mut self, lost: u64, now: Nanos) {
        if lost > self.lost {
            self.lost = lost;
            self.gap = self.gap.max(Some(now));
        }
    }

    /// Everything before the last gap has been fed, and no checkpoint tells it yet.
    pub(super) fn is_past_new_gap(&self) -> bool {
        self.gap > self.told_gap && self.gap <= Some(self.time)
    }

    /// The state was written.
    pub(super) fn checkpointed(&mut self) {
        if self.gap <= Some(self.time) {
            self.told_gap = self.gap;
        }
    }

    /// The next event.
    pub(super) fn apply(&mut self, e: &Event) {
        self.events += 1;
        self.time = self.time.max(e.time);
        for boundary in self.machine.feed(e).into_iter().flatten() {
            if let Boundary::Step { n, .. } = boundary {
                self.step(n, e.time);
            }
        }
        match &e.body {
            Body::Alloc(b) => self.alloc(b, e.time),
            Body::FreeRequested(b) => self.request(b),
            Body::FreeCompleted(b) => self.complete(b),
            Body::Segment { .. } => match OpenSegment::of(&e.body) {
                Some((SegmentOp::Alloc | SegmentOp::Map, s)) => self.map(s),
                Some((_, s)) => self.unmap(s.device, s.addr, s.size),
                None => {}
            },
            Body::Report { device, addr, rounded, allocated, totals } => {
                self.report(*device, *addr, *rounded, *allocated, *totals);
            }
            Body::Scope { device, to, .. } => self.stream(*device, *to),
            Body::Runtime { .. } => self.calls.apply(&e.body),
            _ => {}
        }
    }

    /// The recording is over.
    pub(super) fn finish(&mut self) {
        for boundary in self.machine.finish().into_iter().flatten().flatten() {
            if let Boundary::Step { n, .. } = boundary {
                self.step(n, self.time);
            }
        }
    }

    fn device(&mut self, d: DeviceId) -> &mut Device {
        let i = match self.devices.iter().position(|x| x.totals.device == d) {
            Some(i) => i,
            None => {
                let totals = DeviceTotals { device: d, ..DeviceTotals::default() };
                self.devices.push(Device { totals, ..Device::default() });
                self.devices.len() - 1
            }
        };
        // In bounds: just found, or just pushed.
        &mut self.devices[i]
    }

    fn stream(&mut self, d: DeviceId, s: StreamHandle) {
        if self.known_streams.insert((d, s)) {
            self.streams.push((d, s));
        }
    }

    fn alloc(&mut self, b: &Block, time: Nanos) {
        self.stream(b.device, b.stream);
        let (step, microbatch) = (self.machine.steps() + 1, self.machine.microbatches() + 1);
        let block = Block { totals: None, ..*b };
        let live = LiveBlock { block, born: time, step, microbatch, pending: false, unverified: false };
        if b.pool.is_direct() {
            let d = self.device(b.device);
            d.direct = d.direct.saturating_add(b.rounded.0);
            d.reserve(b.rounded);
        }
        // A block that is live at this address already: its free was lost.
        if let Some(old) = self.live.insert((b.device, b.addr), live) {
            self.forget(b.device, &old);
        }
        let d = self.device(b.device);
        d.blocks += 1;
        d.add(b.rounded, time, step);
        d.check(b.totals);
    }

    fn forget(&mut self, device: DeviceId, old: &LiveBlock) {
        let d = self.device(device);
        let rounded = old.block.rounded.0;
        if old.block.pool.is_direct() {
            d.direct = d.direct.saturating_sub(rounded);
            d.totals.reserved = Bytes(d.totals.reserved.0.saturating_sub(rounded));
        }
        let total = if old.pending { &mut d.totals.pending } else { &mut d.totals.allocated };
        *total = Bytes(total.0.saturating_sub(rounded));
        if !old.pending {
            d.blocks = d.blocks.saturating_sub(1);
        }
    }

    fn request(&mut self, b: &Block) {
        let (device, addr) = self.place(b);
        let rounded = match self.live.get_mut(&(device, addr)) {
            Some(l) if !l.pending => {
                l.pending = true;
                l.block.rounded
            }
            // Not seen being allocated: from before, or a gap hid it, and then there is nothing to take back.
            _ => {
                self.calls.freed(b);
                let d = self.device(device);
                let t = &mut d.totals.allocated;
                *t = Bytes(t.0.saturating_sub(leave(&mut d.outside, 0, b.rounded.0)));
                return d.check(b.totals);
            }
        };
        let d = self.device(device);
        d.blocks = d.blocks.saturating_sub(1);
        d.totals.allocated = Bytes(d.totals.allocated.0.saturating_sub(rounded.0));
        d.totals.pending = Bytes(d.totals.pending.0.saturating_add(rounded.0));
        d.check(b.totals);
    }

    fn complete(&mut self, b: &Block) {
        let (device, addr) = self.place(b);
        if let Some(l) = self.live.remove(&(device, addr)) {
            self.forget(device, &l);
        }
    }

    /// Where a block that is freed lies: of one that CUDA itself handed out, the thread that frees it may be on another
    /// device.
    fn place(&self, b: &Block) -> (DeviceId, Addr) {
        let here = (b.device, b.addr);
        if !b.pool.is_direct() || self.live.contains_key(&here) {
            return here;
        }
        let mut all = self.devices.iter().map(|d| (d.totals.device, b.addr));
        all.find(|at| self.live.contains_key(at)).unwrap_or(here)
    }

    fn report(&mut self, device: DeviceId, addr: Addr, rounded: Bytes, allocated: bool, totals: Totals) {
        let (step, time) = (self.machine.steps() + 1, self.time);
        let news = match self.live.get_mut(&(device, addr)) {
            Some(l) if allocated && l.block.rounded == Bytes(0) => {
                l.block.rounded = rounded;
                true
            }
            _ => false,
        };
        let d = self.device(device);
        if news {
            d.add(rounded, time, step);
        }
        d.check(Some(totals));
    }

    /// A range is there; an expandable segment's neighbours on the same stream and pool grow together in `unmap` only.
    fn map(&mut self, s: OpenSegment) {
        let d = self.device(s.device);
        d.reserve(s.size);
        d.segments.put(s);
    }

    /// A range is gone. It may be part of a mapped range, or span several.
    fn unmap(&mut self, device: DeviceId, addr: Addr, size: Bytes) {
        let d = self.device(device);
        let gone = d.segments.unmap(addr, size);
        let gone = gone.saturating_add(leave(&mut d.outside, 1, size.0.saturating_sub(gone)));
        d.totals.reserved = Bytes(d.totals.reserved.0.saturating_sub(gone));
    }

    fn step(&mut self, n: u32, time: Nanos) {
        let mut folded = false;
        for d in &mut self.devices {
            let t = d.totals;
            let mut peak = d.peak_in_step;
            while let Some(last) = d.rows.last().filter(|r| r.step >= n) {
                peak = peak.max(last.peak);
                d.rows.pop();
                folded = true;
            }
            d.rows.push(StepRow {
                step: n,
                time,
                allocated: t.allocated,
                reserved: t.reserved,
                pending: t.pending,
                peak: peak.max(t.allocated),
                blocks: d.blocks,
            });
            d.peak_in_step = t.allocated;
            if d.rows.len() > MAX_ROWS {
                StepRow::thin(&mut d.rows);
            }
        }
        if folded {
            for l in self.live.values_mut() {
                l.step = l.step.min(n);
            }
        }
    }

    /// The state as it is now.
    pub(super) fn checkpoint(&self) -> Checkpoint {
        let known = |l: &LiveBlock| LiveBlock { unverified: Some(l.born) <= self.gap, ..*l };
        let mut blocks: Vec<LiveBlock> = self.live.values().map(known).collect();
        blocks.sort_unstable_by_key(|l| (l.block.device, l.block.addr));
        let mut segments: Vec<_> = self.devices.iter().flat_map(|d| d.segments.iter()).copied().collect();
        segments.sort_unstable_by_key(|s| (s.device, s.addr));
        Checkpoint {
            time: self.time,
            steps: self.machine.steps(),
            microbatches: self.machine.microbatches(),
            events: self.events,
            lost: self.lost,
            step_machine: self.machine.save(),
            blocks,
            segments,
            devices: self.devices.iter().map(|d| d.totals).collect(),
            rows: self.devices.iter().flat_map(|d| d.rows.iter().map(|r| (d.totals.device, *r))).collect(),
            streams: self.streams.clone(),
            calls: Some(self.calls.held()),
        }
    }
}

impl Device {
    fn add(&mut self, rounded: Bytes, time: Nanos, step: u32) {
        let t = &mut self.totals;
        t.allocated = Bytes(t.allocated.0.saturating_add(rounded.0));
        self.peak_in_step = self.peak_in_step.max(t.allocated);
        if t.allocated > t.peak_allocated {
            t.peak_allocated = t.allocated;
            t.peak_time = time;
            t.peak_step = step;
        }
    }

    fn reserve(&mut self, bytes: Bytes) {
        let t = &mut self.totals;
        t.reserved = Bytes(t.reserved.0.saturating_add(bytes.0));
        t.peak_reserved = t.peak_reserved.max(t.reserved);
    }

    fn check(&mut self, torch: Option<Totals>) {
        if let Some(torch) = torch {
            let t = &mut self.totals;
            let own = [t.allocated, t.reserved].map(|total| total.0.saturating_sub(self.direct));
            if self.outside.is_none() {
                let beyond =
                    [torch.allocated.0.saturating_sub(own[0]), torch.reserved.0.saturating_sub(own[1])];
                self.outside = Some(beyond);
                (t.allocated.0, t.reserved.0) =
                    (t.allocated.0.saturating_add(beyond[0]), t.reserved.0.saturating_add(beyond[1]));
                (t.peak_allocated, t.peak_reserved) =
                    (t.peak_allocated.max(t.allocated), t.peak_reserved.max(t.reserved));
            }
            let own = [t.allocated, t.reserved].map(|total| total.0.saturating_sub(self.direct));
            let off = own[0].abs_diff(torch.allocated.0).max(own[1].abs_diff(torch.reserved.0));
            t.drift = t.drift.max(Bytes(off));
        }
    }
}

/// Of what was there before, `bytes` go: 0 for blocks, 1 for segments. So many could.
fn leave(outside: &mut Option<[u64; 2]>, which: usize, bytes: u64) -> u64 {
    match outside.as_mut().and_then(|o| o.get_mut(which)).filter(|o| **o >= bytes) {
        Some(o) => {
            *o -= bytes;
            bytes
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ThreadId;

    fn feed(l: &mut Ledger, time: u64, body: Body) {
        l.apply(&Event { time: Nanos(time), thread: ThreadId(1), body });
    }

    fn block(addr: u64, size: u64, allocated: u64, reserved: u64) -> Block {
        let totals = Some(Totals { allocated: Bytes(allocated), reserved: Bytes(reserved) });
        Block { addr: Addr(addr), size: Bytes(size), rounded: Bytes(size), totals, ..Block::default() }
    }

    fn segment(op: SegmentOp, addr: u64, size: u64) -> Body {
        let (device, stream, pool) = Default::default();
        Body::Segment { op, device, addr: Addr(addr), size: Bytes(size), stream, pool }
    }

    #[test]
    fn totals_peaks_pending_and_drift() {
        let mut l = Ledger::default();
        feed(&mut l, 1, segment(SegmentOp::Alloc, 0, 4096));
        feed(&mut l, 2, Body::Alloc(block(0, 512, 512, 4096)));
        feed(&mut l, 3, Body::Alloc(block(512, 1024, 1536, 4096)));
        feed(&mut l, 4, Body::FreeRequested(block(512, 1024, 512, 4096)));
        let c = l.checkpoint();
        let d = c.devices[0];
        assert_eq!((d.allocated, d.pending, d.reserved), (Bytes(512), Bytes(1024), Bytes(4096)));
        assert_eq!((d.peak_allocated, d.peak_time, d.drift), (Bytes(1536), Nanos(3), Bytes(0)));
        assert_eq!(c.blocks.iter().map(|b| b.pending).collect::<Vec<_>>(), [false, true]);
        feed(&mut l, 5, Body::FreeCompleted(Block { totals: None, ..block(512, 1024, 0, 0) }));
        l.lost(3, Nanos(5));
        assert!(l.is_past_new_gap());
        feed(&mut l, 6, Body::Alloc(block(512, 512, 1000, 4096)));
        let c = l.checkpoint();
        assert_eq!((c.devices[0].pending, c.devices[0].drift), (Bytes(0), Bytes(24)));
        assert_eq!(c.blocks.iter().map(|b| b.unverified).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn what_was_there_before_is_no_drift() {
        let mut l = Ledger::default();
        feed(&mut l, 1, Body::Alloc(block(512, 512, 4096, 8192)));
        feed(&mut l, 2, Body::FreeRequested(block(4096, 1024, 3072, 8192)));
        feed(&mut l, 3, segment(SegmentOp::Free, 1 << 30, 4096));
        feed(&mut l, 4, Body::Alloc(block(1024, 512, 3584, 4096)));
        let d = l.checkpoint().devices[0];
        assert_eq!((d.allocated, d.reserved, d.drift), (Bytes(3584), Bytes(4096), Bytes(0)));
        assert_eq!((d.peak_allocated, d.peak_reserved), (Bytes(4096), Bytes(8192)));
    }

    #[test]
    fn unmapping_cuts_mapped_ranges() {
        let mut l = Ledger::default();
        feed(&mut l, 1, segment(SegmentOp::Map, 100, 100));
        feed(&mut l, 2, segment(SegmentOp::Map, 200, 100));
        feed(&mut l, 3, segment(SegmentOp::Unmap, 150, 100));
        let c = l.checkpoint();
        assert_eq!(c.devices[0].reserved, Bytes(100));
        let left: Vec<_> = c.segments.iter().map(|s| (s.addr.0, s.size.0)).collect();
        assert_eq!(left, [(100, 50), (250, 50)]);
    }

    #[test]
    fn rows_are_thinned_and_keep_their_peaks() {
        let mut l = Ledger::default();
        for n in 1..=10_000u32 {
            l.device(DeviceId(0)).peak_in_step = Bytes(if n == 77 { 1 << 40 } else { 5 });
            l.step(n, Nanos(u64::from(n)));
        }
        let rows = l.checkpoint().rows;
        assert!((MAX_ROWS / 2..=MAX_ROWS).contains(&rows.len()), "{}", rows.len());
        assert!(
            rows[rows.len() - 1000..].iter().map(|r| r.1.step).eq(9_001..=10_000),
            "the newest are whole"
        );
        assert_eq!(rows.iter().map(|r| r.1.peak).max(), Some(Bytes(1 << 40)));
        assert!(rows.is_sorted_by_key(|r| r.1.step));
        assert_eq!(rows.last().map(|r| r.1.step), Some(10_000));
        l.step(9_990, Nanos(1));
        assert_eq!(l.checkpoint().rows.last().map(|r| r.1.step), Some(9_990), "folded");
    }
}
