//! The boundary: every exported function runs its body through here.
//!
//! A panic is a defect of this crate and must not reach C: it becomes "unknown error".

use crate::code::{self, Code, Outcome};
use crate::trace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static LAST: Cell<Code> = const { Cell::new(Code::SUCCESS) };
}

static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// From now on a forked child gets "initialization error" for every call, as from the real libraries. Its copy of the
/// device may be locked for ever.
pub fn refuse_children() {
    // SAFETY: the handler is a function without arguments that only stores to an atomic, which a child of a
    // threaded process may do. A failure only means that a child is not refused.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// Runs a call of the driver.
pub fn driver(name: &'static str, body: impl FnOnce() -> Outcome) -> Code {
    if FORKED.load(Ordering::Relaxed) {
        return Code::NOT_INITIALIZED;
    }
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN));
    let code = code::of(outcome);
    trace::finish(name, code);
    code
}

/// Runs a call of the runtime, which also remembers a failure for `cudaGetLastError`.
pub fn runtime(name: &'static str, body: impl FnOnce() -> Outcome) -> Code {
    let code = driver(name, body);
    if code != Code::SUCCESS {
        // A thread that is being torn down has no last error; nobody can ask for it either.
        let _ = LAST.try_with(|last| last.set(code));
    }
    code
}

/// The last failure of this thread, and forgets it.
pub fn take_last() -> Code {
    LAST.try_with(|last| last.replace(Code::SUCCESS)).unwrap_or(Code::SUCCESS)
}

/// The last failure of this thread.
pub fn peek_last() -> Code {
    LAST.try_with(Cell::get).unwrap_or(Code::SUCCESS)
}
