//! One event's effect.

use super::cohort::{CohortKey, Size};
use super::device::{Capacity, Device, Peak};
use super::held::{Freed, Held};
use super::limit::device_fact;
use super::progress::{Coverage, PhaseKind, Progress};
use super::refused::Asked;
use super::site::UNKNOWN;
use super::state::Replay;
use crate::event::{
    Block, Body, Bytes, DeviceId, Event, OpenSegment, RuntimeOp, StreamHandle, StreamId, ThreadId,
};

/// Sizes without a report are rounded as the allocator does at least.
fn round_up(size: u64) -> u64 {
    size.max(1).checked_next_multiple_of(512).unwrap_or(size)
}

impl Replay {
    /// Takes the next event: the fast path of [`Replay::apply`].
    #[inline]
    pub fn apply_event(&mut self, e: &Event) -> Progress {
        self.note_answers(e.time);
        let boundaries = self.machine.feed(e);
        let progress = match boundaries {
            [None, None] => Progress::default(),
            b => {
                self.note_tail(&b);
                self.settle();
                self.pass(b, e.time)
            }
        };
        self.time = e.time;
        match &e.body {
            Body::Alloc(b) => self.alloc(e, b),
            Body::FreeRequested(b) => self.free(b),
            Body::FreeCompleted(b) => self.complete(b),
            _ => self.other(e),
        }
        self.events += 1;
        progress
    }

    /// Makes sure that the device exists.
    #[inline]
    pub(super) fn touch(&mut self, id: DeviceId) -> usize {
        let i = id.0 as usize;
        if self.devices.len() <= i {
            self.devices.resize_with(i + 1, Device::default);
            self.sizes_from_facts();
        }
        self.devices[i].note(id);
        i
    }

    /// Sizes of devices that the recording's facts state (the program asked for their properties), where
    /// nothing better told.
    #[cold]
    pub(super) fn sizes_from_facts(&mut self) {
        for (id, dev) in
            (0..=u8::MAX).map(DeviceId).zip(&mut self.devices).filter(|(_, d)| d.capacity.is_none())
        {
            let total = device_fact(&self.meta, id)["capacity_bytes"].as_u64().filter(|&total| total > 0);
            let of = |total| Capacity { total: Bytes(total), others: Bytes(0), source: "properties" };
            dev.capacity = total.map(of);
        }
    }

    #[inline]
    fn alloc(&mut self, e: &Event, b: &Block) {
        if self.trailing {
            self.go_on_trailing();
        }
        self.leaving.goes_on();
        if !self.refused.is_empty() {
            self.goes_on(e.thread, e.time);
        }
        self.see_collector(b.phase);
        self.coverage = Coverage::Blocks;
        let d = self.touch(b.device);
        let stream = self.streams.id(b.device, b.stream, e.time);
        if b.stream.0 != 0 {
            self.quiet.alloc(stream);
        }
        let phase = PhaseKind::of(b.phase, self.trained);
        let mut backward = self.backward;
        let t = self.thread(e.thread);
        t.phase = phase;
        if t.backward.1 > 0 {
            backward = t.backward.0;
        }
        let site = self.sites.of(b.stack, b.phase.backward, backward);
        let (private_pool, optimizer) = (b.pool.is_private(), b.phase.optimizer);
        let key = CohortKey { device: b.device, stream, site, private_pool, optimizer };
        let cohort = self.cohorts.id(key, b.stream.0 != 0);
        let mut block = *b;
        if block.rounded.0 == 0 {
            block.rounded = Bytes(round_up(b.size.0));
        }
        let rounded = block.rounded.0;
        let size = Size { rounded, requested: b.size.0 };
        self.cohorts.born(cohort, size, (e.thread, self.now), b.phase.optimizer);
        if let Some(s) = self.streams.get_mut(stream) {
            s.allocs += 1;
            let pool = &mut s.pools[usize::from(private_pool)];
            pool.allocs += 1;
            pool.last_step = self.now.step;
            if rounded > pool.largest.0.0 {
                pool.largest = (Bytes(rounded), site);
            }
        }
        if private_pool {
            self.devices[d].private_pools.allocates(b.pool, rounded, site);
        }
        let displaced = self.devices[d].table.put(Held {
            block,
            born: e.time,
            step: self.now.step,
            microbatch: self.now.microbatch,
            pending: false,
            unverified: false,
            stream,
            site,
            cohort,
            waits_for: None,
            thread: e.thread,
        });
        if let Some(h) = displaced {
            self.displaced(d, &h);
        }
        let dev = &mut self.devices[d];
        dev.blocks += 1;
        dev.unused = 0;
        dev.allocated.0 = dev.allocated.0.saturating_add(rounded);
        if b.pool.is_direct() {
            dev.direct(rounded, true);
        }
        if let Some(t) = b.totals {
            dev.compare(t);
        }
        let peak = |bytes| Peak { bytes, time: e.time, step: self.now.step, phase, event: self.events };
        if dev.allocated > dev.peak_allocated.bytes {
            dev.peak_allocated = peak(dev.allocated);
        }
        if dev.reserved > dev.peak_reserved.bytes {
            dev.peak_reserved = peak(dev.reserved);
        }
        dev.step_peak = dev.step_peak.max(dev.allocated.0);
    }

    /// An address is handed out while we still hold a block there.
    #[cold]
    fn displaced(&mut self, d: usize, h: &Held) {
        self.forget(d, h);
        if h.unverified {
            self.devices[d].was_gone(if h.pending { 0 } else { h.rounded() });
            return;
        }
        let (what, addr, device) =
            ("an address that was in use was allocated again", h.block.addr.0, h.block.device.0);
        self.inconsistent(what, || {
            format!("block of {} bytes at {addr:#x} on device {device}, born in step {}", h.rounded(), h.step)
        });
    }

    /// Takes a block out of all sums but torch's total.
    fn forget(&mut self, d: usize, h: &Held) {
        let dev = &mut self.devices[d];
        let r = h.rounded();
        if h.block.pool.is_direct() {
            dev.direct(r, false);
        }
        if h.pending {
            dev.pending.0 = dev.pending.0.saturating_sub(r);
            dev.wait_ends(h.waits_for, r);
        } else {
            dev.blocks = dev.blocks.saturating_sub(1);
            if !h.unverified {
                dev.allocated.0 = dev.allocated.0.saturating_sub(r);
                self.cohorts.gone(h.cohort, h.size(), h.birth(), self.now, Some(false));
            }
        }
        if h.unverified {
            dev.unverified_blocks = dev.unverified_blocks.saturating_sub(1);
            dev.unverified.0 = dev.unverified.0.saturating_sub(r);
        }
    }

    #[inline]
    fn free(&mut self, b: &Block) {
        self.coverage = Coverage::Blocks;
        let d = self.place(b);
        let dev = &mut self.devices[d];
        match dev.table.get_mut(b.addr.0) {
            Some(h) if !h.pending => {
                let r = h.rounded();
                let (unverified, waits_for) = (h.unverified, h.waits_for);
                let freed = Freed {
                    cohort: h.cohort,
                    size: h.size(),
                    birth: h.birth(),
                    collected: b.phase.collector,
                };
                h.pending = true;
                if unverified {
                    h.unverified = false;
                    dev.unverified_blocks = dev.unverified_blocks.saturating_sub(1);
                    dev.unverified.0 = dev.unverified.0.saturating_sub(r);
                }
                dev.blocks = dev.blocks.saturating_sub(1);
                dev.allocated.0 = dev.allocated.0.saturating_sub(r);
                dev.pending.0 = dev.pending.0.saturating_add(r);
                dev.wait_begins(waits_for, r);
                if !unverified {
                    self.freed(freed);
                }
            }
            Some(_) => {
                let (addr, device) = (b.addr.0, b.device.0);
                self.inconsistent("a block was freed twice", || format!("at {addr:#x} on device {device}"));
            }
            None => self.free_unknown(d, b),
        }
        if let Some(t) = b.totals {
            self.devices[d].compare(t);
        }
    }

    /// The device of a block that is freed: of one that CUDA itself handed out, the thread that frees it may be on another.
    #[inline]
    fn place(&mut self, b: &Block) -> usize {
        let d = self.touch(b.device);
        if !b.pool.is_direct() || self.devices[d].table.get(b.addr.0).is_some() {
            return d;
        }
        self.devices.iter().position(|dev| dev.table.get(b.addr.0).is_some()).unwrap_or(d)
    }

    /// A free of a block that was there before the recording, or that a loss hid.
    #[cold]
    fn free_unknown(&mut self, d: usize, b: &Block) {
        if b.pool.is_direct() {
            // Handed out before blocks were told apart, or before the recording.
            self.calls.apply(RuntimeOp::Free, b.device, b.addr.0, 0, b.stack, None);
            return self.runtime_call(RuntimeOp::Free, DeviceId(d as u8), b.addr.0, 0);
        }
        let rounded = if b.rounded.0 > 0 { b.rounded.0 } else { round_up(b.size.0) };
        // After a loss the allocation of it may be what was lost.
        if !self.devices[d].free_outside(rounded) && self.gaps == 0 {
            let (addr, device) = (b.addr.0, b.device.0);
            self.inconsistent("a block was freed that was never allocated", || {
                format!("{rounded} bytes at {addr:#x} on device {device}")
            });
        }
    }

    #[inline]
    fn complete(&mut self, b: &Block) {
        let d = self.place(b);
        // None there: the completion of a free from before the recording, or of one that a loss hid.
        if let Some(h) = self.devices[d].table.take(b.addr.0) {
            let live = !h.pending;
            self.forget(d, &h);
            if live && !h.unverified {
                let (addr, device) = (b.addr.0, b.device.0);
                self.inconsistent("a block became reusable without a request to free it", || {
                    format!("at {addr:#x} on device {device}, born in step {}", h.step)
                });
            } else if live {
                // Its request was among the lost records.
                self.devices[d].was_gone(h.rounded());
            }
        }
        if let Some(t) = b.totals {
            self.devices[d].compare(t);
        }
    }

    fn other(&mut self, e: &Event) {
        // Who marks something still works: what was freed before was not freed on the way out.
        let works = matches!(e.body, Body::Mark { .. }) && self.trailing;
        if works || matches!(e.body, Body::OptimizerEnd(_) | Body::BackwardEnd { .. }) {
            self.settle();
            self.trailing = true;
        }
        if matches!(e.body, Body::OptimizerEnd(_) | Body::BackwardEnd { .. } | Body::ManualStep(_)) {
            self.trained_until = e.time;
        }
        match e.body {
            Body::Segment { .. } => {
                OpenSegment::of(&e.body).into_iter().for_each(|(op, s)| self.segment(op, s, e));
            }
            Body::Report { device, addr, rounded, allocated, totals } => {
                let d = self.touch(device);
                if allocated {
                    self.late_size(d, addr.0, rounded.0);
                }
                self.devices[d].compare(totals);
            }
            Body::Oom { device, requested, free, stream, stack } => {
                let asked = Asked { device, requested, free: Some(free), stream, stack, call: None };
                self.out_of_memory(e, asked);
            }
            Body::Scope { device, from, to } => self.scope(e, device, from, to),
            Body::StreamDestroy(handle) => {
                if let Some(id) = self.streams.destroy(handle, e.time) {
                    self.quiet.destroy(id);
                }
            }
            Body::EventRecord { event, stream } => match self.streams.known(stream) {
                Some(s) => self.quiet.record(event, s),
                None => self.quiet.forget(event),
            },
            Body::EventDestroy(event) => self.quiet.forget(event),
            Body::StreamWait { stream, event } => {
                if let Some(s) = self.streams.known(stream) {
                    self.quiet.wait(s, event);
                }
            }
            Body::StreamDone(stream) => {
                if let Some(s) = self.streams.known(stream) {
                    self.quiet.stream_done(s);
                }
            }
            Body::EventDone(event) => self.quiet.event_done(event),
            Body::DeviceDone(device) => {
                for s in self.streams.list.iter().filter(|s| s.device == device) {
                    self.quiet.stream_done(s.id);
                }
            }
            Body::FreeWaits { device, addr, stream } => self.waits(device, addr.0, stream, e),
            Body::CaptureBegin(stream) => {
                if let Some(s) = self.streams.known(stream).and_then(|s| self.streams.get_mut(s)) {
                    s.captures += 1;
                }
            }
            Body::OptimizerEnd(_) => {
                self.trained = true;
                if self.threads.get(e.thread.0 as usize).is_none_or(|t| t.backward.1 == 0) {
                    self.current_at_mark(e.thread);
                }
            }
            Body::ManualStep(_) => self.current_at_mark(e.thread),
            Body::BackwardBegin { stack, nested } => {
                self.trained = true;
                let site = self.sites.of_backward(stack);
                let t = self.thread(e.thread);
                if t.backward.1 == 0 && site != UNKNOWN {
                    t.backward.0 = site;
                }
                t.backward.1 = t.backward.1.saturating_add(1);
                if !nested {
                    self.backward = t.backward.0;
                }
            }
            Body::BackwardEnd { nested } => {
                let t = self.thread(e.thread);
                t.backward.1 = t.backward.1.saturating_sub(1);
                if !nested {
                    self.current_at_mark(e.thread);
                }
            }
            Body::MemInfo { device, free, total } => {
                self.told_free(e.thread, device, free);
                self.capacity(device, total, free, "program");
            }
            Body::Runtime { op, device, addr, size, stream, stack } if addr.0 == 0 => {
                let asked = Asked { device, requested: size, free: None, stream, stack, call: Some(op) };
                self.refuse(e, asked);
            }
            Body::Runtime { op, device, addr, size, stack, .. } => {
                if size.0 > 0 && !self.refused.is_empty() {
                    self.goes_on(e.thread, e.time);
                }
                let has_line = self.calls.has_line(op, stack);
                let site = has_line.then(|| self.sites.of(stack, false, UNKNOWN));
                self.calls.apply(op, device, addr.0, size.0, stack, site);
                self.runtime_call(op, device, addr.0, size.0);
            }
            Body::Failed(fault) => self.fails(e, fault),
            Body::Gap { lost } => self.gap(lost),
            _ => {}
        }
    }

    #[cold]
    fn late_size(&mut self, d: usize, addr: u64, rounded: u64) {
        let dev = &mut self.devices[d];
        let Some(h) = dev.table.get_mut(addr).filter(|h| !h.pending && rounded > 0) else { return };
        let old = h.rounded();
        h.block.rounded = Bytes(rounded);
        let (cohort, birth, unverified) = (h.cohort, h.birth(), h.unverified);
        if unverified {
            dev.unverified.0 = dev.unverified.0.saturating_sub(old).saturating_add(rounded);
        } else {
            self.cohorts.resized(cohort, old, rounded, birth, self.now);
        }
        dev.allocated.0 = dev.allocated.0.saturating_sub(old).saturating_add(rounded);
    }

    fn scope(&mut self, e: &Event, device: DeviceId, from: StreamHandle, to: StreamHandle) {
        let to = self.streams.id(device, to, e.time);
        let from = self.streams.find(device, from);
        if from != Some(to) {
            self.quiet.enter(e.thread, to);
            if let Some(s) = self.streams.get_mut(to) {
                s.entered += 1;
            }
            if let Some(from) = from
                && self.quiet.leave(e.thread, from)
                && let Some(s) = self.streams.get_mut(from)
            {
                s.left += 1;
            }
        }
        self.currents.insert((e.thread.0, device.0), to);
    }

    /// The thread that trains ends something: what is current on it now is no side stream.
    fn current_at_mark(&mut self, thread: ThreadId) {
        for d in 0..self.devices.len() as u32 {
            let d = d as u8;
            if !self.devices[d as usize].is_seen() {
                continue;
            }
            let id = match self.currents.get(&(thread.0, d)) {
                Some(id) => *id,
                None => self.streams.id(DeviceId(d), StreamHandle(0), self.time),
            };
            if let Some(s) = self.streams.get_mut(id) {
                s.at_marks += 1;
            }
            *self.streams.marks.entry(d).or_default() += 1;
        }
    }

    fn waits(&mut self, device: DeviceId, addr: u64, stream: StreamHandle, e: &Event) {
        let d = self.touch(device);
        let waits_for: Option<StreamId> = Some(self.streams.id(device, stream, e.time));
        let dev = &mut self.devices[d];
        let Some(h) = dev.table.get_mut(addr) else { return };
        let (before, pending, r) = (h.waits_for, h.pending, h.rounded());
        h.waits_for = waits_for;
        if pending {
            dev.wait_ends(before, r);
            dev.wait_begins(waits_for, r);
        }
    }

    pub(super) fn capacity(&mut self, device: DeviceId, total: Bytes, free: Bytes, source: &'static str) {
        let d = self.touch(device);
        let dev = &mut self.devices[d];
        let used = total.0.saturating_sub(free.0);
        dev.capacity = Some(Capacity { total, others: Bytes(used.saturating_sub(dev.reserved.0)), source });
    }

    pub(super) fn runtime_call(&mut self, op: RuntimeOp, device: DeviceId, addr: u64, size: u64) {
        self.coverage = self.coverage.max(Coverage::Segments);
        let d = self.touch(device);
        let dev = &mut self.devices[d];
        match op {
            RuntimeOp::Malloc | RuntimeOp::MallocAsync | RuntimeOp::MallocManaged => {
                self.runtime.insert(addr, size);
                dev.runtime.0 = dev.runtime.0.saturating_add(size);
            }
            RuntimeOp::Free | RuntimeOp::FreeAsync => {
                let size = self.runtime.remove(&addr).unwrap_or(0);
                dev.runtime.0 = dev.runtime.0.saturating_sub(size);
            }
            RuntimeOp::HostAlloc | RuntimeOp::HostFree => {}
        }
    }
}
