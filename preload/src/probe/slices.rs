//! Slices: who takes one, when, and what all of them may take of the job.

use super::budget::{Budget, usage};
use super::looks::Looks;
use super::running::{Finished, Running, Slice};
use super::work::Progress;
use crate::platform::clock;
use crate::python::interpreter;
use crate::recorder::{self, overhead, since_began};
use std::ffi::{c_int, c_void};
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// The processor's time that all slices together may take.
const IN_ALL: u64 = 3_000_000_000;
/// A pending call that has not run for so long is not waited for: the optimizer's hook takes the slice.
const LATE: u64 = 100_000_000;

pub(super) static RUNNING: Mutex<Option<Running>> = Mutex::new(None);
/// There is a probe under way: what the hooks look at.
pub(super) static WANTED: AtomicBool = AtomicBool::new(false);
/// A pending call is queued, since this moment; 0: none is.
pub(super) static QUEUED: AtomicU64 = AtomicU64::new(0);
/// Holders that are counted again, and that a count is due.
pub(super) static LOOKS: Mutex<Option<Looks>> = Mutex::new(None);
pub(super) static COUNT: AtomicBool = AtomicBool::new(false);
/// What was counted is to be told.
pub(super) static COUNTED: AtomicBool = AtomicBool::new(false);
/// The watcher has nothing more to ask.
pub(super) static LAST_ASKED: AtomicBool = AtomicBool::new(false);
/// The interpreter has begun to end.
pub(super) static ENDING: AtomicBool = AtomicBool::new(false);
/// What counts for the budget: the processor's nanoseconds of all slices, and those that the end was put off. What others did on a busy
/// machine while a slice waited for its turn does not.
pub(super) static CHARGED: AtomicU64 = AtomicU64::new(0);
/// The job was paused for so long, of which so much counts for the budget.
pub(super) fn add_pause(nanos: u64, charged: u64) {
    overhead::add_pause(nanos);
    CHARGED.fetch_add(charged, Relaxed);
}

/// Whether the interpreter has begun to end, and the last question is waited for.
pub(super) fn is_ending() -> bool {
    ENDING.load(Acquire)
}

pub(super) fn charged() -> u64 {
    CHARGED.load(Relaxed)
}

/// A probe that has ended, on its way to the writing thread.
pub(super) static FINISHED: Mutex<Option<Finished>> = Mutex::new(None);
pub(super) fn lock_looks() -> std::sync::MutexGuard<'static, Option<Looks>> {
    LOOKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Queues a pending call, where none is.
pub(super) fn queue(now: u64) {
    if QUEUED.compare_exchange(0, now.max(1), AcqRel, Relaxed).is_ok()
        && !interpreter::add_pending_call(pending)
    {
        QUEUED.store(0, Release);
    }
}

pub(super) fn lock() -> std::sync::MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs on the main thread, with the GIL, between two instructions of the script.
extern "C" fn pending(_: *mut c_void) -> c_int {
    QUEUED.store(0, Release);
    guarded_slice();
    if COUNT.load(Acquire) {
        look_again();
    }
    0
}

/// Counts what is in the holders that were found. With the GIL held.
#[cold]
pub(super) fn look_again() {
    if !recorder::is_recording() {
        return;
    }
    // A panic has been explained, and the recording has ended, by the time it is caught.
    let _ = std::panic::catch_unwind(|| {
        let Ok(mut guard) = LOOKS.try_lock() else { return };
        let Some(looks) = guard.as_mut() else { return };
        let began = clock::moment().mono_ns;
        // SAFETY: the callers hold the GIL.
        unsafe { looks.look(began, since_began(began)) };
        let took = clock::moment().mono_ns.saturating_sub(began);
        add_pause(took, took);
        COUNTED.store(true, Release);
    });
    COUNT.store(false, Release);
}

/// An optimizer's hook has come by, with the GIL. A load where nothing is asked.
#[inline]
pub(crate) fn pass_by() {
    if WANTED.load(Relaxed) || COUNT.load(Relaxed) {
        late_slice();
    }
}

#[cold]
pub(super) fn late_slice() {
    let queued = QUEUED.load(Acquire);
    if queued != 0 && clock::moment().mono_ns.saturating_sub(queued) > LATE {
        guarded_slice();
        if COUNT.load(Acquire) {
            look_again();
        }
    }
}

#[cold]
pub(super) fn guarded_slice() {
    if recorder::is_recording() && WANTED.load(Acquire) {
        // A panic has been explained, and the recording has ended, by the time it is caught.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(slice));
    }
}

/// One slice. With the GIL held, which keeps two of them apart.
fn slice() {
    let Ok(mut guard) = RUNNING.try_lock() else { return };
    let Some(running) = guard.as_mut() else { return };
    let (now, needs) = (clock::moment().mono_ns, running.work.needs());
    if !running.pace.allows(needs, since_began(now), charged(), is_ending()) {
        running.rests = now + running.pace.rest(0, needs, since_began(now), charged());
        return;
    }
    let budget = Budget::new();
    let (stage, before) = (running.work.stage(), usage());
    // SAFETY: the callers hold the GIL.
    let progress = unsafe { running.slice(&budget) };
    let (pause, spent) = budget.used();
    running.spent += spent;
    *running.stages.entry(stage).or_default() += spent;
    add_pause(pause, spent);
    // The job gets as much before the next one, and more where the budget is used up.
    let now = clock::moment().mono_ns;
    let needs = running.work.needs();
    running.rests = now + running.pace.rest(spent, needs, since_began(now), charged());
    running.pause += pause;
    running.slices += 1;
    if pause > running.longest.pause {
        let ([a, b, c], [others, waits, faults]) = (before, usage());
        running.longest =
            Slice { stage, pause, spent, others: others - a, waits: waits - b, faults: faults - c };
    }
    let answer = match progress {
        Ok(Progress::More) if running.spent < IN_ALL => return,
        Ok(Progress::More) => Err("the search took too long".to_string()),
        Ok(Progress::Answered(answers)) => Ok(answers),
        Err(why) => Err(why),
    };
    if let Some(running) = guard.take() {
        *FINISHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((running, answer));
    }
}
