//! The boundary: every exported function runs its body through here.
//!
//! A panic is a defect of this crate and must not reach C: it becomes "unknown error".

use crate::code::{self, Code, Outcome};
use crate::trace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: Cell<Code> = const { Cell::new(Code::SUCCESS) };
}

/// Runs a call of the driver or of NVML.
pub fn driver(name: &'static str, body: impl FnOnce() -> Outcome) -> Code {
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
