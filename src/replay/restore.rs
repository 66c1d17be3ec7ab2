//! Checkpoints: where a recording begins whose oldest pages were dropped, and a test of our own state where
//! it did not.

use super::cohort::{CohortKey, Now};
use super::device::Peak;
use super::held::Held;
use super::progress::{Coverage, PhaseKind};
use super::site::UNKNOWN;
use super::state::Replay;
use crate::event::steps::StepMachine;
use crate::event::{Bytes, Checkpoint, LiveBlock, OpenSegment, ThreadId, total};
use rustc_hash::FxHashMap;

impl Replay {
    pub(super) fn checkpoint(&mut self, c: &Checkpoint) {
        self.settle();
        let first = self.events == 0 && self.devices.iter().all(|d| d.table.len() == 0);
        if first || self.dropped {
            self.adopt(c);
        } else if let Some(difference) = self.difference(c) {
            if c.events > self.events {
                // Pages between were dropped: the checkpoint knows more than we do.
                self.adopt(c);
            } else {
                self.inconsistent("the recording's checkpoint differs from the replay", || difference);
            }
        }
    }

    /// Begins anew from a checkpoint. Sites, facts and what was inconsistent stay.
    fn adopt(&mut self, c: &Checkpoint) {
        let old = std::mem::replace(self, Replay::new());
        (self.sites, self.meta, self.inconsistencies) = (old.sites, old.meta, old.inconsistencies);
        (self.calls, self.clock) = (old.calls, old.clock);
        if let Some(calls) = &c.calls {
            self.calls.restart(calls);
        }
        self.generation = old.generation + 1;
        let capacities = old.devices.iter().map(|d| (d.id, d.capacity, d.driver));
        self.machine = StepMachine::load(&c.step_machine).unwrap_or_default();
        self.machine.learn_from(old.machine);
        (self.steps, self.microbatches) = (c.steps, c.microbatches);
        self.now = Now { step: c.steps.saturating_add(1), microbatch: c.microbatches.saturating_add(1) };
        (self.events, self.lost, self.time, self.last_mark_time) = (c.events, c.lost, c.time, c.time);
        self.forget_answers(c.time);
        for (device, handle) in &c.streams {
            let id = self.streams.id(*device, *handle, c.time);
            if let Some(s) = self.streams.get_mut(id) {
                // When it allocated last is not kept: it is given the benefit of the doubt.
                s.pools.iter_mut().for_each(|p| p.last_step = c.steps);
            }
        }
        for (id, capacity, driver) in capacities {
            if capacity.is_some() {
                let d = self.touch(id);
                (self.devices[d].capacity, self.devices[d].driver) = (capacity, driver);
            }
        }
        for s in &c.segments {
            let d = self.touch(s.device);
            self.devices[d].segments.put(*s);
            self.devices[d].private_pools.was_there(s);
            self.devices[d].reserved.0 = self.devices[d].reserved.0.saturating_add(s.size.0);
        }
        for b in &c.blocks {
            self.restore_block(b);
        }
        for h in c.calls.iter().flatten() {
            self.runtime_call(h.op, h.device, h.addr.0, h.size.0);
        }
        for (device, row) in &c.rows {
            let d = self.touch(*device);
            self.devices[d].rows.push(*row);
        }
        for t in &c.devices {
            let d = self.touch(t.device);
            let dev = &mut self.devices[d];
            // What torch counts beyond the blocks was there before the recording.
            dev.take_totals(t.allocated, t.reserved);
            dev.accounting_drift = t.drift;
            let (time, step) = (t.peak_time, t.peak_step);
            let peak = |bytes| Peak { bytes, time, step, phase: PhaseKind::Unknown, event: c.events };
            (dev.peak_allocated, dev.peak_reserved) = (peak(t.peak_allocated), peak(t.peak_reserved));
            // The peak within the step that runs is not kept, unless it is the highest of all.
            let peak = if t.peak_step > c.steps { t.peak_allocated } else { dev.allocated };
            dev.step_peak = peak.0;
        }
        self.cohorts.remember(c.steps);
        self.trained = c.microbatches > 0;
        if !c.blocks.is_empty() || !c.devices.is_empty() {
            self.coverage = Coverage::Blocks;
        }
    }

    fn restore_block(&mut self, b: &LiveBlock) {
        let block = &b.block;
        let d = self.touch(block.device);
        let stream = self.streams.id(block.device, block.stream, b.born);
        let site = self.sites.of(block.stack, block.phase.backward, UNKNOWN);
        let (private_pool, optimizer) = (block.pool.is_private(), block.phase.optimizer);
        let key = CohortKey { device: block.device, stream, site, private_pool, optimizer };
        let cohort = self.cohorts.id(key, block.stream.0 != 0);
        if self.devices[d].table.take(block.addr.0).is_some() {
            let addr = block.addr.0;
            self.inconsistent("a checkpoint names a block twice", || format!("at {addr:#x} on device {d}"));
            return;
        }
        let h = Held {
            block: *block,
            born: b.born,
            step: b.step.clamp(1, self.now.step),
            microbatch: b.microbatch.clamp(1, self.now.microbatch),
            pending: b.pending,
            unverified: b.unverified,
            stream,
            site,
            cohort,
            waits_for: None,
            thread: ThreadId::default(),
        };
        let r = h.rounded();
        let dev = &mut self.devices[d];
        if block.pool.is_direct() {
            dev.direct(r, true);
        }
        if b.pending {
            dev.pending.0 = dev.pending.0.saturating_add(r);
            dev.wait_begins(None, r);
        } else {
            dev.blocks += 1;
            dev.allocated.0 = dev.allocated.0.saturating_add(r);
            if !b.unverified {
                self.cohorts.restore(cohort, h.size(), h.birth(), self.now, block.phase.optimizer);
            }
        }
        if b.unverified {
            dev.unverified_blocks += 1;
            dev.unverified.0 = dev.unverified.0.saturating_add(r);
        }
        dev.table.put(h);
    }

    /// The first thing in which a checkpoint differs from our own state, in words.
    fn difference(&self, c: &Checkpoint) -> Option<String> {
        let mut theirs: FxHashMap<(u8, u64), &LiveBlock> =
            c.blocks.iter().map(|b| ((b.block.device.0, b.block.addr.0), b)).collect();
        for d in &self.devices {
            for h in d.table.iter() {
                let at = (d.id.0, h.block.addr.0);
                match theirs.remove(&at) {
                    Some(b) if b.pending == h.pending && b.block.size == h.block.size => {}
                    Some(_) => {
                        return Some(format!(
                            "the checkpoint has another block at {:#x} on device {}",
                            at.1, at.0
                        ));
                    }
                    None if h.unverified => {}
                    None => {
                        return Some(format!(
                            "the checkpoint lacks the block at {:#x} on device {}",
                            at.1, at.0
                        ));
                    }
                }
            }
        }
        if let Some((at, _)) = theirs.iter().filter(|(_, b)| !b.unverified).min_by_key(|(at, _)| **at) {
            return Some(format!(
                "the checkpoint has a block at {:#x} on device {} that was freed",
                at.1, at.0
            ));
        }
        let mut segments: Vec<&OpenSegment> = c.segments.iter().collect();
        segments.sort_by_key(|s| (s.device, s.addr));
        let ours = total(self.devices.iter().flat_map(|d| d.segments.iter()).map(|s| s.size.0));
        let sum = total(segments.iter().map(|s| s.size.0));
        (sum != ours)
            .then(|| format!("the checkpoint's segments add up to {sum} bytes, the replayed ones to {ours}"))
    }
}

impl super::device::Device {
    /// torch's totals as a checkpoint has them.
    fn take_totals(&mut self, allocated: Bytes, reserved: Bytes) {
        self.distrust();
        let [allocated, reserved] = [allocated, reserved].map(|b| Bytes(b.0.saturating_sub(self.direct)));
        let compared = self.compared;
        self.compare(crate::event::Totals { allocated, reserved });
        self.compared = compared;
    }
}
