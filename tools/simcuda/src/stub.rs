//! What is not simulated says so, by name: a generated library jumps here for a function that has no counterpart.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, PoisonError};

/// Says once that `name` of `library` is not simulated, and returns `code`, that library's "not supported".
/// `STRANDLINE_SIM_STUB=quiet` says nothing; `abort` ends the process, for a backtrace.
///
/// # Safety
/// * `name` and `library` are terminated strings that live for ever: they are literals of a generated library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_stub(name: *const c_char, library: *const c_char, code: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let (name, library) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(library)) };
    let setting = std::env::var("STRANDLINE_SIM_STUB").unwrap_or_default();
    if setting != "quiet" {
        complain(&name.to_string_lossy(), &library.to_string_lossy());
    }
    if setting == "abort" {
        std::process::abort();
    }
    code
}

/// The first time only; a function may be called once per step.
fn complain(name: &str, library: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(format!("{library}/{name}")) {
        eprintln!("strandline-sim: {name} ({library}) is not simulated");
    }
}
