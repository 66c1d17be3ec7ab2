//! The boundary: every exported function runs its body through here.
//!
//! A panic is a defect of this crate and must not reach C: it becomes "unknown error".

use crate::code::{self, Code, Outcome};
use crate::trace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

thread_local! {
    static LAST: Cell<Code> = const { Cell::new(Code::SUCCESS) };
    /// What the call in progress is called by the program, where that is not what runs it.
    static NAME: Cell<Option<&'static str>> = const { Cell::new(None) };
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

/// What every call that has to do with the device's work returns from now on; 0: nothing is broken.
static BROKEN: AtomicI32 = AtomicI32::new(0);

/// A kernel goes wrong: the context is broken from now on.
pub fn break_context(code: i32) {
    BROKEN.store(code, Ordering::Relaxed);
}

/// What a broken context answers to this call. Who asks what there is, or which device is the thread's, is answered as ever.
fn broken(name: &str) -> Option<Code> {
    let code = BROKEN.load(Ordering::Relaxed);
    let asks =
        ["Get", "SetDevice", "SetCurrent", "Version", "Properties"].iter().any(|part| name.contains(part));
    (code != 0 && (!asks || name.ends_with("MemGetInfo"))).then_some(Code(code))
}

/// Runs a call of the driver.
pub fn driver(name: &'static str, body: impl FnOnce() -> Outcome) -> Code {
    if FORKED.load(Ordering::Relaxed) {
        return Code::NOT_INITIALIZED;
    }
    let asked = driven().unwrap_or(name);
    if let Some(code) = broken(name) {
        trace::finish(asked, code);
        return code;
    }
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN));
    let code = code::of(outcome);
    trace::finish(asked, code);
    code
}

/// The driver's call in progress, where the runtime's function of the kind does what it does.
fn driven() -> Option<&'static str> {
    NAME.try_with(Cell::get).ok().flatten()
}

/// Runs a call of the driver that does what one of the runtime's does: the trace has it by its own name.
pub fn known_as(name: &'static str, call: impl FnOnce() -> Code) -> Code {
    let _ = NAME.try_with(|own| own.set(Some(name)));
    let code = call();
    let _ = NAME.try_with(|own| own.set(None));
    code
}

/// Calls of the driver that do what one of the runtime's does.
macro_rules! alike {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) = $call:path;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(export_name = concat!("sim_", stringify!($name)))]
            pub extern "C" fn $name($($argument: $type),*) -> Code {
                crate::call::known_as(stringify!($name), || $call($($argument),*))
            }
        )*
    };
}
pub(crate) use alike;

/// Runs a call of the runtime, which also remembers a failure for `cudaGetLastError`.
pub fn runtime(name: &'static str, body: impl FnOnce() -> Outcome) -> Code {
    let code = driver(name, body);
    // What the driver answers a program is no error of the runtime's.
    if code != Code::SUCCESS && driven().is_none() {
        // A thread that is being torn down has no last error; nobody can ask for it either.
        let _ = LAST.try_with(|last| last.set(code));
    }
    code
}

/// The last failure of this thread, and forgets it.
pub fn take_last() -> Code {
    if let Some(code) = broken("") {
        return code;
    }
    LAST.try_with(|last| last.replace(Code::SUCCESS)).unwrap_or(Code::SUCCESS)
}

/// The last failure of this thread.
pub fn peek_last() -> Code {
    if let Some(code) = broken("") {
        return code;
    }
    LAST.try_with(Cell::get).unwrap_or(Code::SUCCESS)
}
