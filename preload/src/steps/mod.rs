//! Steps: hooks on torch's optimizers, put there in Python.
//!
//! Python lets the GIL go between any two instructions, so none of ours runs in a hook: its caller may hold a lock of PyTorch's (the
//! one of CUDA's initialization, say) that a thread waits for which then has the GIL. A pending call runs it, on the main thread
//! between two instructions of the script. A job that trains in another thread while the main one waits never comes there: there
//! the first `backward()` does, which is C that Python called, with the GIL and before any lock ([`at_backward`]). Nothing ever waits
//! for the GIL.

mod frameless;
mod nvtx;
mod optimizer_hooks;
mod optimizers;
mod pickled;
mod record;

use crate::platform::say::say;
use crate::python::interpreter::{self as python, Outcome};
use crate::python::{collector, is_torch_initializing};
use crate::recorder::at_work::in_room;
use crate::{recorder, stacks};
use serde_json::json;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};
use strandline_core::event::Room;

const NONE: u8 = 0;
/// A pending call is queued.
const QUEUED: u8 = 1;
/// It ran, but torch's optimizers were not imported yet, or the queue was full: the drain queues it again.
const AGAIN: u8 = 2;
/// It runs now. Where it has come too early it is queued again: what calls it stays.
const RUNNING: u8 = 3;
const INSTALLED: u8 = 4;
const GIVEN_UP: u8 = 5;

static STATE: AtomicU8 = AtomicU8::new(NONE);
static TRIES: AtomicU32 = AtomicU32::new(0);
static BACKWARDS: AtomicU32 = AtomicU32::new(0);
static TICKS: AtomicU32 = AtomicU32::new(0);
/// Most pending calls that are queued in a process's life.
const MOST: u32 = 600;
/// The drain comes by every 10 ms or so; every so many of its rounds the call is queued again.
const ROUNDS: u32 = 10;

/// Installs the hooks, or sees to it that they will be. Called once, after we attached, on a thread of the job.
#[cold]
pub(crate) fn install() {
    if python::prepare() && python::gil_is_held() {
        collector::watch();
    }
    if !recorder::wants_steps() || !python::prepare() {
        recorder::record_metadata(json!({ "step_hooks": "none" }));
        return;
    }
    recorder::record_metadata(json!({ "step_hooks": "none" }));
    queue();
}

fn installed(how: &str) {
    STATE.store(INSTALLED, Release);
    recorder::record_metadata(json!({ "step_hooks": how }));
}

/// Whether Python of ours is still to be run: the hooks, or the proof of what is known of frames. Two loads.
#[inline(always)]
pub(crate) fn waits_for_python() -> bool {
    matches!(STATE.load(Relaxed), QUEUED | AGAIN | RUNNING) || stacks::is_waiting()
}

/// A tensor's gradient is asked for. Where Python's own binding of PyTorch does so (`caller` is in it) and holds the GIL, it is
/// `backward()`, or an autograd function, on its way in from Python, and holds no lock of PyTorch's: what waits for Python may
/// run.
#[cold]
#[inline(never)]
pub(crate) fn at_backward(caller: u64) {
    let from_python = || stacks::native::modules::is_in(caller as usize, "/libtorch_python.so");
    if !recorder::is_recording()
        || !from_python()
        || BACKWARDS.fetch_add(1, Relaxed) >= MOST
        || !python::gil_is_held()
    {
        return;
    }
    collector::watch();
    stacks::attempt();
    // Whoever finds it waiting is the only one to run it. A pending call that is queued finds it done.
    let state = STATE.load(Acquire);
    if !matches!(state, QUEUED | AGAIN) || STATE.compare_exchange(state, RUNNING, AcqRel, Acquire).is_err() {
        return;
    }
    if attempt("backward") {
        python::raise_later();
    }
}

/// Installs the hooks, where Python may run. Whether a script's own exception is set, which its thread must see.
fn attempt(how: &str) -> bool {
    let _at_work = in_room(Room::Python);
    match optimizer_hooks::run() {
        Outcome::Installed => installed(how),
        Outcome::NotYet => STATE.store(AGAIN, Release),
        Outcome::Failed => {
            STATE.store(GIVEN_UP, Release);
            say!("the hooks on optimizers could not be installed: steps are detected from allocations only");
        }
        Outcome::HandOn => {
            STATE.store(AGAIN, Release);
            return true;
        }
    }
    false
}

fn queue() {
    STATE.store(QUEUED, Release);
    if !python::add_pending_call(pending) {
        STATE.store(AGAIN, Release);
    }
}

/// Called by the drain: queues the pending call again where the last one came too early. Takes no lock of Python's but
/// that of its queue.
#[cold]
pub(crate) fn retry() {
    if STATE.load(Acquire) != AGAIN || !TICKS.fetch_add(1, Relaxed).is_multiple_of(ROUNDS) {
        return;
    }
    if python::is_finalizing() {
        STATE.store(GIVEN_UP, Release);
    } else if python::is_there() {
        // Before it begins, in a program that embeds it, nothing is tried.
        if TRIES.fetch_add(1, Relaxed) >= MOST {
            STATE.store(GIVEN_UP, Release);
        } else {
            queue();
        }
    }
}

/// Runs on the main thread, with the GIL, between two instructions of the script.
extern "C" fn pending(_: *mut c_void) -> c_int {
    if STATE.load(Acquire) == QUEUED && is_torch_initializing() && python::add_pending_call(pending) {
        return 0; // as soon as it is done
    }
    let next = if recorder::is_recording() { RUNNING } else { GIVEN_UP };
    if STATE.compare_exchange(QUEUED, next, AcqRel, Acquire).is_err() || next == GIVEN_UP {
        return 0;
    }
    collector::watch();
    if attempt("pending") { -1 } else { 0 }
}
