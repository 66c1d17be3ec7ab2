//! What a job frees when its last step is over, kept apart from what its steps free.

use super::cohort::CohortId;
use super::held::Freed;
use super::leaving::WAY_OUT;
use super::state::Replay;
use crate::event::steps::{Boundary, StepSource};
use rustc_hash::FxHashMap;

impl Replay {
    /// A block that a cohort counted was freed.
    #[inline]
    pub(super) fn freed(&mut self, f: Freed) {
        if self.trailing {
            if self.freed.is_empty() {
                self.freed_from = self.events;
            }
            self.freed.push(f);
            return;
        }
        self.cohorts.gone(f.cohort, f.size, f.birth, self.now, Some(f.collected));
        if matches!(self.machine.source(), StepSource::Time | StepSource::Manual | StepSource::Iteration) {
            self.leaving.frees(f.cohort, f.size.rounded, self.time, self.now.step);
        }
    }

    /// A step ends, where these boundaries have one: what was freed since its optimizer ran may be what its job frees when its training is over.
    pub(super) fn note_tail(&mut self, boundaries: &[Option<Boundary>; 2]) {
        if boundaries.iter().flatten().any(|b| matches!(b, Boundary::Step { .. })) {
            self.leaving.tail.clear();
            let freed = self.freed.iter().map(|f| (f.cohort, f.size.rounded));
            self.leaving.tail.extend(freed);
        }
    }

    /// Of a job that has ended, freeing what it held: the step in which it began to (the first is 1), and how many bytes of a cohort it
    /// freed then.
    pub fn left_in(&self) -> Option<(u32, FxHashMap<CohortId, u64>)> {
        let (l, end) = (&self.leaving, self.ended?);
        let (step, freed) = match self.machine.source() {
            StepSource::Time | StepSource::Manual | StepSource::Iteration
                if end.0.saturating_sub(l.since.0) <= WAY_OUT.0 =>
            {
                (l.step, &l.freed)
            }
            StepSource::Optimizer | StepSource::Backward => (self.steps, &l.tail),
            _ => return None,
        };
        (!freed.is_empty()).then(|| {
            let mut all = FxHashMap::default();
            freed.iter().for_each(|(id, bytes)| *all.entry(*id).or_default() += bytes);
            (step, all)
        })
    }
}
