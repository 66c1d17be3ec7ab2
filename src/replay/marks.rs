//! What a mark does: rows, ages, side streams; folding of steps that were parts of one; losses.

use super::cohort::CohortId;
use super::progress::Progress;
use super::state::Replay;
use crate::event::steps::Boundary;
use crate::event::{Nanos, Phase, total};
use rustc_hash::FxHashMap;

impl Replay {
    /// Steps or microbatches ended just before the event at `time`.
    #[cold]
    pub(super) fn pass(&mut self, boundaries: [Option<Boundary>; 2], time: Nanos) -> Progress {
        let mut p = Progress::default();
        for b in boundaries.into_iter().flatten() {
            match b {
                Boundary::Step { n, .. } => {
                    if n <= self.steps {
                        self.merge_steps_from(n);
                        p.folded = true;
                    }
                    self.end_step(n, time);
                    p.step = Some(n);
                }
                Boundary::Microbatch(n) => {
                    self.cohorts.mark_microbatch(n);
                    self.microbatches = n;
                    self.now.microbatch = n.saturating_add(1);
                    p.microbatch = Some(n);
                }
            }
        }
        p
    }

    /// The recording is over: steps whose optimizer has run have ended.
    ///
    /// It ended before the job freed what it held, as a Python that ends does.
    pub fn finish(&mut self) -> Progress {
        let ends = self.machine.finish();
        if ends.is_empty() {
            self.settle();
            return Progress::default();
        }
        self.leaving.tail.clear();
        self.torn_down.clone_from(&self.freed);
        let freed: Vec<(usize, u64)> =
            self.torn_down().map(|(c, rounded)| (usize::from(c.key.device.0), rounded)).collect();
        let mut all = vec![0u64; self.devices.len()];
        for (device, rounded) in freed {
            all.get_mut(device).into_iter().for_each(|sum| *sum = sum.saturating_add(rounded));
        }
        let held = |devices: &mut [super::Device], of: fn(u64, u64) -> u64| {
            devices.iter_mut().zip(&all).for_each(|(d, sum)| d.allocated.0 = of(d.allocated.0, *sum));
        };
        // Of what it freed then, what waits for a stream was not waiting yet.
        let waiting = self.freed_and_waiting();
        let wait = |devices: &mut [super::Device], of: fn(u64, u64) -> u64| {
            devices.iter_mut().zip(&waiting).for_each(|(d, sum)| d.pending.0 = of(d.pending.0, *sum));
        };
        held(&mut self.devices, u64::saturating_add);
        wait(&mut self.devices, u64::saturating_sub);
        let mut progress = Progress::default();
        for ends in ends {
            progress.join(self.pass(ends, self.time));
        }
        held(&mut self.devices, u64::saturating_sub);
        wait(&mut self.devices, u64::saturating_add);
        self.settle();
        progress
    }

    /// Of each device, what the job has freed since its last step and waits for a stream.
    fn freed_and_waiting(&self) -> Vec<u64> {
        let mut freed: FxHashMap<CohortId, u64> = FxHashMap::default();
        for f in &self.freed {
            let sum = freed.entry(f.cohort).or_default();
            *sum = u64::saturating_add(*sum, f.size.rounded);
        }
        let waits = |d: &super::Device| {
            let mut left = freed.clone();
            let take = |h: &super::Held| {
                let left = left.get_mut(&h.cohort)?;
                let part = h.rounded().min(*left);
                *left -= part;
                Some(part)
            };
            let pending = total(d.table.iter().filter(|h| h.pending).filter_map(take));
            pending.min(d.pending.0)
        };
        self.devices.iter().map(waits).collect()
    }

    /// Tells cohorts what was freed since the last optimizer or backward ended.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.trailing = false;
        self.go_on_trailing();
    }

    /// The same where the step has not ended yet: something was allocated that ends none, such as by another thread.
    #[inline]
    pub(super) fn go_on_trailing(&mut self) {
        for f in self.freed.drain(..) {
            self.cohorts.gone(f.cohort, f.size, f.birth, self.now, Some(f.collected));
        }
    }

    /// Something is allocated: what that says of Python's collector.
    #[inline]
    pub(super) fn see_collector(&mut self, phase: Phase) {
        if phase.collector {
            self.collected = Some(self.collected.map_or_else(Default::default, |_| self.now));
        }
    }

    fn end_step(&mut self, n: u32, time: Nanos) {
        for d in self.devices.iter_mut().filter(|d| d.is_seen()) {
            d.end_step(n, time);
        }
        self.cohorts.mark_step(n);
        // What a job gives back as it ends was there at its last mark before.
        if self.ended.is_none() {
            self.calls.mark(n);
            self.devices.iter_mut().for_each(|d| d.private_pools.end_step());
        }
        self.quiet.mark();
        for s in &mut self.streams.list {
            s.known_done = self.quiet.known_done(s.id);
            s.quiet_old = self.quiet.old(s.id);
        }
        self.steps = n;
        self.now.step = n.saturating_add(1);
        self.last_mark_time = time;
        self.clock.end(n, time);
    }

    /// Steps from `n` on were parts of step `n`, which ends now.
    fn merge_steps_from(&mut self, n: u32) {
        self.clock.merge_steps_from(n);
        self.cohorts.forget_steps(n);
        self.calls.merge_steps_from(n);
        for d in &mut self.devices {
            d.merge_steps_from(n);
            for h in d.table.iter_mut() {
                h.step = h.step.min(n);
                if !h.pending && !h.unverified {
                    self.cohorts.put_back_step(h.cohort, h.block.rounded.0, h.step, n);
                }
            }
        }
        if let Some(seen) = &mut self.collected {
            seen.step = seen.step.min(n);
        }
        // What a job that ends has freed already was there when its step ended.
        for f in &mut self.freed {
            f.birth.step = f.birth.step.min(n);
            self.cohorts.put_back_step(f.cohort, f.size.rounded, f.birth.step, n);
        }
        self.now.step = n;
    }

    /// Records of a thread were lost: blocks open across this may be gone, totals may have moved.
    #[cold]
    pub(super) fn gap(&mut self, lost: u64) {
        self.settle();
        self.lost = self.lost.saturating_add(lost);
        self.gaps += 1;
        for d in &mut self.devices {
            d.distrust();
            for h in d.table.iter_mut().filter(|h| !h.unverified) {
                if !h.pending {
                    self.cohorts.gone(h.cohort, h.size(), h.birth(), self.now, None);
                }
                h.unverified = true;
                d.unverified_blocks += 1;
                d.unverified.0 = d.unverified.0.saturating_add(h.block.rounded.0);
            }
        }
        self.calls.forget_lines();
        self.quiet.forget_events();
    }
}
