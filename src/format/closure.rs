//! Where an optimizer calls a closure: that has forward and backward of the step in it, and is none of the optimizer's work.
//!
//! PyTorch Lightning gives every optimizer one, LBFGS needs one. The hooks on an optimizer's `step` are outside of both, so
//! records of the closure's forward say "optimizer", and records after its backward do not (the preload takes a backward
//! inside for a step that an exception ended).

use super::raw::Kind;
use crate::event::{Phase, ThreadId};

/// Where a thread is in the `step` of an optimizer that was given a closure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    /// No backward has begun yet: the closure's forward.
    Forward,
    /// In a backward.
    Backward,
    /// After it.
    Updating,
}

/// What must be remembered from record to record.
#[derive(Clone, Debug, Default)]
pub(super) struct Closures {
    /// By thread.
    places: Vec<Place>,
    /// Some thread is not outside.
    any: bool,
}

impl Closures {
    /// A record that begins or ends an optimizer's step (one with a closure?) or an outermost backward.
    pub(super) fn mark(&mut self, kind: Kind, closure: bool, thread: ThreadId) {
        let at = thread.0 as usize;
        if at >= self.places.len() {
            if !closure {
                return;
            }
            self.places.resize(at + 1, Place::Outside);
        }
        let Some(place) = self.places.get_mut(at) else { return };
        *place = match (kind, *place) {
            (Kind::OptimizerBegin, _) if closure => Place::Forward,
            (Kind::OptimizerBegin | Kind::OptimizerEnd, _) => Place::Outside,
            (Kind::BackwardBegin, Place::Forward | Place::Updating) => Place::Backward,
            (Kind::BackwardEnd, Place::Backward) => Place::Updating,
            (_, same) => same,
        };
        self.any = self.places.iter().any(|p| *p != Place::Outside);
    }

    /// What a thread was doing that allocated. Optimizers work without gradients, closures with them.
    #[inline]
    pub(super) fn alloc(&self, phase: Phase, thread: ThreadId) -> Phase {
        if !self.any {
            return phase;
        }
        match self.place(thread) {
            Place::Forward if !phase.no_grad => Phase { optimizer: false, ..phase },
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
            Place::Forward => Phase { optimizer: false, ..phase },
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
    const UPDATE: Phase = Phase { no_grad: true, ..OPTIMIZER };

    #[test]
    fn a_closures_forward_is_no_optimizer_and_what_follows_its_backward_is_one() {
        let mut c = Closures::default();
        for _ in 0..2 {
            c.mark(Kind::OptimizerBegin, true, T);
            assert_eq!((c.alloc(OPTIMIZER, T), c.free(OPTIMIZER, T)), (NONE, NONE));
            c.mark(Kind::BackwardBegin, false, T);
            assert_eq!(c.alloc(Phase { backward: true, ..NONE }, T), Phase { backward: true, ..NONE });
            c.mark(Kind::BackwardEnd, false, T);
            assert_eq!(c.alloc(NONE, T), NONE, "the forward of a closure that is called again");
            assert_eq!(c.alloc(Phase { no_grad: true, ..NONE }, T), UPDATE);
            assert_eq!(c.free(NONE, T), OPTIMIZER);
            assert_eq!(c.free(NONE, ThreadId(0)), NONE, "another thread's");
            c.mark(Kind::OptimizerEnd, false, T);
            assert_eq!(c.free(NONE, T), NONE);
        }
    }

    #[test]
    fn an_optimizer_without_a_closure_is_left_as_it_is() {
        let mut c = Closures::default();
        for _ in 0..2 {
            c.mark(Kind::OptimizerBegin, false, T);
            assert_eq!(c.alloc(OPTIMIZER, T), OPTIMIZER, "one that works with gradients on");
            assert_eq!((c.alloc(UPDATE, T), c.free(OPTIMIZER, T)), (UPDATE, OPTIMIZER));
            // A step that an exception ended.
            c.mark(Kind::BackwardBegin, false, T);
            c.mark(Kind::BackwardEnd, false, T);
            assert_eq!(c.free(NONE, T), NONE);
            // And one with a closure.
            c.mark(Kind::OptimizerBegin, true, T);
        }
    }
}
