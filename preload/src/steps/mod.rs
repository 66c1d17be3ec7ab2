//! Steps: hooks on torch's optimizers, put there in Python.
//!
//! Where the GIL is held already when we attach, they are installed at once: a pending call runs only on the main thread,
//! and a job that trains in a worker thread while main waits would never get there. Else by a pending call. Nothing ever
//! waits for the GIL.

mod nvtx;
pub(crate) mod python;

use crate::probe::collector;
use crate::session;
use serde_json::json;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};

const NONE: u8 = 0;
/// A pending call is queued.
const QUEUED: u8 = 1;
/// It ran, but torch's optimizers were not imported yet, or the queue was full: the drain queues it again.
const AGAIN: u8 = 2;
const INSTALLED: u8 = 3;
const GIVEN_UP: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(NONE);
static TRIES: AtomicU32 = AtomicU32::new(0);
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
    if !session::wants_steps() || !python::prepare() {
        session::tell(json!({ "step_hooks": "none" }));
        return;
    }
    if python::gil_is_held() {
        match python::run() {
            python::Outcome::Installed => return installed("direct"),
            python::Outcome::HandOn => python::raise_later(),
            python::Outcome::NotYet | python::Outcome::Failed => {}
        }
    }
    session::tell(json!({ "step_hooks": "none" }));
    queue();
}

fn installed(how: &str) {
    STATE.store(INSTALLED, Release);
    session::tell(json!({ "step_hooks": how }));
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
    if TRIES.fetch_add(1, Relaxed) >= MOST || python::is_finalizing() {
        STATE.store(GIVEN_UP, Release);
        return;
    }
    queue();
}

/// Runs on the main thread, with the GIL, between two instructions of the script.
extern "C" fn pending(_: *mut c_void) -> c_int {
    if !session::is_recording() {
        return 0;
    }
    collector::watch();
    match python::run() {
        python::Outcome::Installed => installed("pending"),
        python::Outcome::NotYet => STATE.store(AGAIN, Release),
        python::Outcome::Failed => STATE.store(GIVEN_UP, Release),
        python::Outcome::HandOn => {
            STATE.store(AGAIN, Release);
            return -1;
        }
    }
    0
}
