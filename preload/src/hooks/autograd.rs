//! Where a backward begins and ends, which of its nodes runs, and where a gradient scaler says that a step is over.

use super::functions::{P, id, pass_on};
use crate::platform::real::{Library, look_up};
use crate::platform::tls;
use crate::recorder::guard::{enter, peek_thread};
use crate::recorder::thread::Thread;
use crate::{stacks, steps};
use core::ptr::NonNull;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use strandline_core::event::HookId;
use strandline_core::format::raw::{Kind, Record, flag};

/// `Engine::execute`, which every backward goes through on the thread that called it. The Python stack here is the one
/// that called backward. A calling hook, since the end must be seen as well, also when an exception passes through.
#[expect(clippy::too_many_arguments, reason = "the engine's own eight, two of them on the stack")]
pub(super) unsafe fn execute(
    out: P,
    engine: P,
    roots: P,
    inputs: P,
    keep: u64,
    create: u64,
    accumulate: u64,
    outputs: P,
) -> P {
    let _running = if is_traced() { None } else { begin() };
    // `out` is where the result goes; `bool`s travel as their registers do.
    pass_on!(ENGINE_EXECUTE(out, engine, roots, inputs, keep, create, accumulate, outputs) else out)
}

/// Where a tensor's gradient comes from: what `backward()` asks first, straight from Python. Until our Python has run, it may be run
/// here: a job that trains in a thread while its main one waits never comes to a pending call.
pub(super) unsafe fn gradient_edge(out: P, tensor: P) -> P {
    if steps::waits_for_python() {
        steps::at_backward(tls::caller());
    }
    // The result is where the first says.
    pass_on!(GRADIENT_EDGE(out, tensor) else out)
}

/// `c10::impl::TorchDispatchModeTLS::any_modes_set(bool skip_infra_modes)`; null where there is none.
static ANY_MODES: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks up what tells a backward that is only traced. Outside of hooks.
#[cold]
pub(crate) fn prepare() {
    let name = c"_ZN3c104impl20TorchDispatchModeTLS13any_modes_setEb";
    ANY_MODES.store(look_up(name, Library::C10), Relaxed);
}

/// Whether this thread only traces, as `torch.compile` does when it derives a graph's backward: PyTorch's own dispatch modes are on
/// (fake tensors, a proxy for each), and none of the user's. No gradient comes of it.
fn is_traced() -> bool {
    let f = ANY_MODES.load(Relaxed);
    if f.is_null() {
        return false;
    }
    // SAFETY: the symbol is that static member function: its parameter is in the name, and it returns whether. It reads thread-locals.
    let any: extern "C-unwind" fn(bool) -> bool = unsafe { core::mem::transmute(f) };
    any(false) && !any(true)
}

/// A backward is running on this thread; its end is recorded when this goes, also by an exception.
struct Running {
    nested: u8,
}

fn begin() -> Option<Running> {
    let mut t = enter(id::ENGINE_EXECUTE)?;
    let nested = if t.autograd || t.backward > 0 { flag::NESTED } else { 0 };
    t.backward = t.backward.saturating_add(1);
    if nested == 0 {
        t.optimizer = false; // a step that was left by an exception is over
    }
    let stack = stacks::current(&mut t);
    let record = t.record(Kind::BackwardBegin, tls::device());
    t.push(Record { stack, flags: nested, ..record });
    Some(Running { nested })
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut t) = enter(id::ENGINE_EXECUTE) else { return };
        t.backward = t.backward.saturating_sub(1);
        let record = t.record(Kind::BackwardEnd, tls::device());
        t.push(Record { flags: self.nested, ..record });
    }
}

/// `Engine::evaluate_function`: one node of the graph runs on this thread, a nested one where the node itself called
/// backward. A calling hook, since what is allocated after it is not the node's.
pub(super) unsafe fn evaluate_function(engine: P, task: P, node: P, inputs: P, queue: P) {
    // SAFETY: the engine dereferences the node itself; it is polymorphic, so its first word is its vtable.
    let _evaluating = unsafe { evaluate(node) };
    pass_on!(ENGINE_EVALUATE(engine, task, node, inputs, queue))
}

/// A node runs on this thread; the one before is told again when this goes, also by an exception. A node begins and ends
/// without a token, since one word changes and nothing is recorded.
struct Evaluating {
    thread: NonNull<Thread>,
    before: u64,
}

/// # Safety
/// `node` must be null or a live polymorphic object.
#[inline(always)]
unsafe fn evaluate(node: P) -> Option<Evaluating> {
    let thread = peek_thread().or_else(claimed)?;
    // SAFETY: the caller's promise.
    let vtable = if node.is_null() { 0 } else { unsafe { *node.cast::<u64>() } };
    // SAFETY: this thread's own place, of which nobody has a reference while no hook of ours is at work on it.
    let before = unsafe { (&raw mut (*thread.as_ptr()).node).replace(vtable) };
    Some(Evaluating { thread, before })
}

/// The place of a thread whose first event this is.
#[cold]
#[inline(never)]
fn claimed() -> Option<NonNull<Thread>> {
    drop(enter(HookId::NONE));
    peek_thread()
}

impl Drop for Evaluating {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: as above: the same thread, whose place is its own as long as it runs.
        unsafe { (&raw mut (*self.thread.as_ptr()).node).write(self.before) };
    }
}

/// `_amp_update_scale_`: the scaler's update, after the optimizer, whether or not that was skipped.
pub(super) unsafe fn amp_update_scale(
    scale: P,
    tracker: P,
    found: P,
    growth: f64,
    backoff: f64,
    interval: i64,
) -> P {
    if let Some(mut t) = enter(id::AMP_UPDATE_SCALE) {
        t.note(Kind::ScalerUpdate, tls::device(), 0, 0, 0);
    }
    // The result is a reference to the first.
    pass_on!(AMP_UPDATE_SCALE(scale, tracker, found, growth, backoff, interval) else scale)
}
