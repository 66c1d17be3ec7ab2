//! What a job frees on its way out, where neither an optimizer nor a backward ends its steps.
//!
//! Where a clock does, a job that ends frees what it held in the middle of a step and in the next: at that one's end nothing is
//! left of a leak that it had to its last moment. (Where an optimizer or a backward ends a step, marks are made before such frees:
//! [`Replay::is_torn_down`].)

use super::cohort::CohortId;
use super::state::{Freed, Replay};
use crate::event::Nanos;
use crate::event::steps::StepSource;
use rustc_hash::FxHashMap;

/// The longest that a job takes to free what it held and end. A server that has nothing to do for longer than this had freed it for
/// another reason.
const WAY_OUT: Nanos = Nanos(5_000_000_000);

/// What was freed since something was allocated last.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    since: Nanos,
    step: u32,
    freed: Vec<(CohortId, u64)>,
}

impl Leaving {
    /// Something is allocated: the job goes on.
    #[inline]
    pub(super) fn goes_on(&mut self) {
        self.freed.clear();
    }

    #[inline]
    fn frees(&mut self, cohort: CohortId, bytes: u64, time: Nanos, step: u32) {
        if self.freed.is_empty() {
            (self.since, self.step) = (time, step);
        }
        self.freed.push((cohort, bytes));
    }
}

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
        self.cohorts.gone(f.cohort, f.rounded, f.birth, self.now, Some(f.collected));
        if matches!(self.machine.source(), StepSource::Time | StepSource::Manual) {
            self.leaving.frees(f.cohort, f.rounded, self.time, self.now.step);
        }
    }

    /// Of such a job that has ended, freeing what it held: the step in which it began to (the first is 1), and how many bytes of a cohort it
    /// freed then.
    pub fn left_in(&self) -> Option<(u32, FxHashMap<CohortId, u64>)> {
        let l = &self.leaving;
        let brief = self.ended.is_some_and(|end| end.0.saturating_sub(l.since.0) <= WAY_OUT.0);
        (brief && !l.freed.is_empty()).then(|| {
            let mut all = FxHashMap::default();
            l.freed.iter().for_each(|(id, bytes)| *all.entry(*id).or_default() += bytes);
            (l.step, all)
        })
    }
}
