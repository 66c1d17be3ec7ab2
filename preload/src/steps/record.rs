//! What is recorded where an optimizer's step begins and ends.

use super::optimizers;
use crate::python::interpreter::none;
use crate::python::object::Object;
use crate::recorder::guard::enter;
use crate::{probe, stacks};
use strandline_core::event::HookId;
use strandline_core::format::raw::Kind;

/// What the shared memory calls both hooks.
const STEP: HookId = HookId::of("optimizer");
/// An optimizer's step has begun.
pub(super) fn begun(optimizer: Object, closure: u64) -> Object {
    stacks::attempt();
    let number = optimizers::number(optimizer);
    if let Some(mut t) = enter(STEP) {
        t.optimizer = true;
        t.note(Kind::OptimizerBegin, 0, number, closure, 0);
    }
    none()
}

/// An optimizer's step has ended.
pub(super) extern "C" fn end(_: Object, optimizer: Object) -> Object {
    let number = optimizers::number(optimizer);
    if let Some(mut t) = enter(STEP) {
        t.note(Kind::OptimizerEnd, 0, number, 0, 0);
        t.optimizer = false;
    }
    probe::pass_by();
    none()
}
