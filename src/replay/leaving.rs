//! What a job frees on its way out, where neither an optimizer nor a backward ends its steps.
//!
//! Where a clock does, a job that ends frees what it held in the middle of a step and in the next: at that one's end nothing is
//! left of a leak that it had to its last moment. (Where an optimizer or a backward ends a step, marks are made before such frees:
//! [`super::Replay::is_torn_down`].) A job that goes on without steps, as one that is tested after its training, frees what its last step had
//! left before that step's end.

use super::cohort::CohortId;
use crate::event::Nanos;

/// The longest that a job takes to free what it held and end. A server that has nothing to do for longer than this had freed it for
/// another reason.
pub(super) const WAY_OUT: Nanos = Nanos(5_000_000_000);

/// What was freed since something was allocated last.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    pub(super) since: Nanos,
    pub(super) step: u32,
    pub(super) freed: Vec<(CohortId, u64)>,
    /// What was freed between the last optimizer (or backward) of the last step and that step's end.
    pub(super) tail: Vec<(CohortId, u64)>,
}

impl Leaving {
    /// Something is allocated: the job goes on.
    #[inline]
    pub(super) fn goes_on(&mut self) {
        self.freed.clear();
    }

    #[inline]
    pub(super) fn frees(&mut self, cohort: CohortId, bytes: u64, time: Nanos, step: u32) {
        if self.freed.is_empty() {
            (self.since, self.step) = (time, step);
        }
        self.freed.push((cohort, bytes));
    }
}
