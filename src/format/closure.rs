//! Where an optimizer calls a closure: that has forward and backward of the step in it, and is none of the optimizer's work.
//!
//! PyTorch Lightning gives every optimizer one, LBFGS needs one. The hooks on an optimizer's `step` are outside of both, so
//! records of the closure's forward say "optimizer", and records after its backward do not (the preload takes a backward
//! inside for a step that an exception ended).

use super::raw::Kind;
use crate::event::{Phase, ThreadId};

/// Where a thread is in an optimizer's `step`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    /// No backward has begun yet: what runs is the closure's forward or the optimizer itself.
    Begun,
    /// In a backward, which only a closure calls.
    Backward,
    /// After it.
    Updating,
}

/// What must be remembered from record to record.
#[derive(Clone, Debug, Default)]
pub(super) struct Closures {
    /// By thread.
    places: Vec<Place>,
    /// A step with a backward inside has ended: this job's optimizers call closures.
    seen: bool,
    /// Some thread is not outside.
    any: bool,
}

impl Closures {
    /// A record that begins or ends an optimizer's step or an outermost backward.
    pub(super) fn mark(&mut self, kind: Kind, thread: ThreadId) {
        let at = thread.0 as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1, Place::Outside);
        }
        let Some(place) = self.places.get_mut(at) else { return };
        *place = match (kind, *place) {
            (Kind::OptimizerBegin, _) => Place::Begun,
            (Kind::BackwardBegin, Place::Begun | Place::Updating) => Place::Backward,
            (Kind::BackwardEnd, Place::Backward) => Place::Updating,
            (Kind::OptimizerEnd, before) => {
                self.seen |= before == Place::Updating;
                Place::Outside
            }
            (_, same) => same,
        };
        self.any = self.places.iter().any(|p| *p != Place::Outside);
    }

    /// What a thread was doing that allocated.
    #[inline]
    pub(super) fn alloc(&self, phase: Phase, thread: ThreadId) -> Phase {
        if !self.any {
            return phase;
        }
        match self.place(thread) {
            // Optimizers work without gradients, closures with them.
            Place::Begun if self.seen && !phase.no_grad => Phase { optimizer: false, ..phase },
            Place::Updating if phase.no_grad && !phase.backward => Phase { optimizer: true, ..phase },
            _ => phase,
        }
    }

    /// What a thread was doing that freed: whether gradients were on is not known of it.
    #[inline]
    pub(super) fn free(&self, phase: Phase, thread: ThreadId) -> Phase {
        if !self.any {
            return phase;
        }
        match self.place(thread) {
            Place::Begun if self.seen => Phase { optimizer: false, ..phase },
            Place::Updating if !phase.backward => Phase { optimizer: true, ..phase },
            _ => phase,
        }
    }

    fn place(&self, thread: ThreadId) -> Place {
        self.places.get(thread.0 as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: ThreadId = ThreadId(1);
    const OPTIMIZER: Phase =
        Phase { optimizer: true, backward: false, no_grad: false, capture: false, collector: false };
    const NONE: Phase = Phase { optimizer: false, ..OPTIMIZER };

    /// One step with a closure: is its forward the optimizer's, and is its update?
    fn step(c: &mut Closures) -> (bool, bool) {
        c.mark(Kind::OptimizerBegin, T);
        let forward = c.alloc(OPTIMIZER, T);
        assert_eq!(c.free(OPTIMIZER, T), forward);
        c.mark(Kind::BackwardBegin, T);
        assert_eq!(c.alloc(Phase { backward: true, ..NONE }, T), Phase { backward: true, ..NONE });
        c.mark(Kind::BackwardEnd, T);
        assert_eq!(c.alloc(NONE, T), NONE, "another closure's forward");
        let update = c.alloc(Phase { no_grad: true, ..NONE }, T);
        assert_eq!(c.alloc(NONE, ThreadId(0)), NONE, "another thread's");
        c.mark(Kind::OptimizerEnd, T);
        (forward.optimizer, update.optimizer)
    }

    #[test]
    fn a_closure_is_known_by_its_backward_from_the_second_step_on() {
        let mut c = Closures::default();
        assert_eq!(step(&mut c), (true, true));
        assert_eq!(step(&mut c), (false, true));
        c.mark(Kind::OptimizerBegin, T);
        let update = Phase { no_grad: true, ..OPTIMIZER };
        assert_eq!(c.alloc(update, T), update);
        c.mark(Kind::OptimizerEnd, T);
        assert_eq!(c.alloc(NONE, T), NONE);
    }

    #[test]
    fn an_optimizer_without_a_closure_is_left_as_it_is() {
        let mut c = Closures::default();
        for _ in 0..3 {
            c.mark(Kind::BackwardBegin, T);
            c.mark(Kind::BackwardEnd, T);
            assert_eq!(c.free(NONE, T), NONE);
            c.mark(Kind::OptimizerBegin, T);
            assert_eq!(c.alloc(OPTIMIZER, T), OPTIMIZER, "one that works with gradients on");
            assert_eq!(c.free(OPTIMIZER, T), OPTIMIZER);
            c.mark(Kind::OptimizerEnd, T);
        }
        // A step that an exception ended, and the next one.
        c.mark(Kind::OptimizerBegin, T);
        c.mark(Kind::BackwardBegin, T);
        c.mark(Kind::BackwardEnd, T);
        c.mark(Kind::OptimizerBegin, T);
        assert_eq!(c.alloc(OPTIMIZER, T), OPTIMIZER);
    }
}
