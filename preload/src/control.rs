//! What a program can tell us itself: the C interface.

use crate::recorder;
use crate::recorder::guard::enter;
use serde_json::json;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};
use strandline_core::event::HookId;
use strandline_core::format::definition;
use strandline_core::format::raw::Kind;

const DONE: c_int = 0;
const NOT_RECORDING: c_int = 1;
const BAD_ARGUMENT: c_int = 2;

static TEXTS: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);
static SNAPSHOTS: AtomicU64 = AtomicU64::new(0);

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(v) => v,
    Err(_) => c"unknown",
};

/// Step `n` has ended. 0: recorded; 1: this process does not record.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_step(n: u64) -> c_int {
    note(Kind::ManualStep, n)
}

/// A phase of the user's own begins. 0: recorded; 1: this process does not record; 2: no name.
///
/// # Safety
/// `name` must be null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn strandline_phase(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { named(Kind::NamedPhase, name) }
}

/// Something to be found again in the recording. 0: recorded; 1: this process does not record; 2: no name.
///
/// # Safety
/// `name` must be null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn strandline_mark(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { named(Kind::Mark, name) }
}

/// Asks whoever watches the recording for a snapshot of now, to be written to `path` below the recording's folder. 0: asked; 1: this process does not
/// record; 2: no path.
///
/// # Safety
/// `path` must be null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn strandline_snapshot(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let Some(path) = (unsafe { text(path) }) else { return BAD_ARGUMENT };
    if !recorder::is_recording() {
        return NOT_RECORDING;
    }
    let n = SNAPSHOTS.fetch_add(1, Relaxed) + 1;
    let marked = mark(Kind::Mark, &format!("snapshot {n}"));
    if marked == DONE {
        // For people: the path counts from the recording's folder, wherever the job is.
        let cwd = std::env::current_dir().unwrap_or_default();
        let mark = format!("snapshot {n}");
        let asked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        recorder::record_metadata(json!({
            "snapshot_request": {
                "number": n, "path": path, "cwd": cwd.to_string_lossy(), "mark": mark, "unix_ms": asked.as_millis() as u64,
            }
        }));
    }
    marked
}

/// The version, as a static string.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_version() -> *const c_char {
    VERSION.as_ptr()
}

unsafe fn text(p: *const c_char) -> Option<String> {
    if p.is_null() {
        return None;
    }
    // SAFETY: not null, hence a C string by the caller's promise.
    Some(unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
}

unsafe fn named(kind: Kind, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { text(name) }) else { return BAD_ARGUMENT };
    mark(kind, &name)
}

fn mark(kind: Kind, name: &str) -> c_int {
    match number(name) {
        Some(n) => note(kind, u64::from(n)),
        None => NOT_RECORDING,
    }
}

/// The number of a text, defined in the recording before this returns.
fn number(name: &str) -> Option<u32> {
    let region = recorder::region().filter(|_| recorder::is_recording())?;
    let mut guard = TEXTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let texts = guard.get_or_insert_default();
    if let Some(&n) = texts.get(name) {
        return Some(n);
    }
    let n = texts.len() as u32 + 1;
    let mut message = Vec::new();
    definition::put_text(&mut message, n, name);
    if !region.define(&message) {
        return None;
    }
    texts.insert(name.to_string(), n);
    Some(n)
}

fn note(kind: Kind, a: u64) -> c_int {
    const STEP: HookId = HookId::of("strandline_step");
    match enter(STEP) {
        Some(mut t) => {
            t.note(kind, 0, a, 0, 0);
            DONE
        }
        None => NOT_RECORDING,
    }
}
