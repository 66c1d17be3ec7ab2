//! What a mark does: rows, ages, side streams; folding of steps that were parts of one; losses.

use super::progress::Progress;
use super::state::Replay;
use crate::event::Nanos;
use crate::event::steps::Boundary;

impl Replay {
    /// Steps or microbatches ended just before the event at `time`.
    #[cold]
    pub(super) fn pass(&mut self, boundaries: [Option<Boundary>; 2], time: Nanos) -> Progress {
        let mut p = Progress::default();
        for b in boundaries.into_iter().flatten() {
            match b {
                Boundary::Step { n, .. } => {
                    if n <= self.steps {
                        self.fold(n);
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

    /// The recording is over: a step whose optimizer has run has ended.
    pub fn finish(&mut self) -> Progress {
        let ends = self.machine.finish();
        if ends == [None, None] { Progress::default() } else { self.pass(ends, self.time) }
    }

    fn end_step(&mut self, n: u32, time: Nanos) {
        for d in self.devices.iter_mut().filter(|d| d.is_seen()) {
            d.end_step(n, time);
        }
        self.cohorts.mark_step(n);
        self.quiet.mark();
        for s in &mut self.streams.list {
            s.known_done = self.quiet.known_done(s.id);
            s.quiet_old = self.quiet.old(s.id);
        }
        self.steps = n;
        self.now.step = n.saturating_add(1);
        self.last_mark_time = time;
    }

    /// Steps from `n` on were parts of step `n`, which ends now.
    fn fold(&mut self, n: u32) {
        self.cohorts.forget_steps(n);
        for d in &mut self.devices {
            d.fold(n);
            for h in d.table.iter_mut() {
                h.step = h.step.min(n);
                if !h.pending && !h.unverified {
                    self.cohorts.put_back_step(h.cohort, h.block.rounded.0, n - h.step);
                }
            }
        }
        self.now.step = n;
    }

    /// Records of a thread were lost: blocks open across this may be gone, totals may have moved.
    #[cold]
    pub(super) fn gap(&mut self, lost: u64) {
        self.lost = self.lost.saturating_add(lost);
        self.gaps += 1;
        for d in &mut self.devices {
            d.distrust();
            for h in d.table.iter_mut().filter(|h| !h.unverified) {
                if !h.pending {
                    self.cohorts.gone(h.cohort, h.block.rounded.0, h.birth(), self.now, false);
                }
                h.unverified = true;
                d.unverified_blocks += 1;
                d.unverified.0 = d.unverified.0.saturating_add(h.block.rounded.0);
            }
        }
        self.quiet.forget_events();
    }
}
