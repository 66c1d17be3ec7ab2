//! The late door: a process that was started without the preload asks for it when it runs.
//!
//! Nothing stands between torch and CUDA then, as the loader bound every call before we came. [`redirect`] puts our hooks
//! where the loader would have, in each library's own table of addresses; from there on all is as with the preload. What
//! happened before is not known: torch's totals tell how much memory it left, never whose it is.
//!
//! Everything here runs once, on a thread of the job that called it, with the GIL held and no allocator lock.

mod redirect;

use crate::platform::loader::is_global;
use crate::platform::tls;
use crate::recorder::before;
use crate::recorder::devices;
use crate::torch::attach;
use crate::{hooks, pluggable, recorder};
use once_cell::sync::OnceCell;
pub(crate) use redirect::unpatch_triggers;
use serde_json::json;
use std::ffi::{CStr, CString, c_char, c_int};

/// In place of a device: there is no PyTorch in this process.
const NO_TORCH: c_int = -2;
const RECORDS: c_int = 0;
const DOES_NOT: c_int = 1;
const DID_ALREADY: c_int = 2;
const WAS_STOPPED: c_int = 3;

/// Records this process from now on. `device`: the calling thread's current CUDA device, negative where CUDA is not
/// initialized. 0: it is recorded from now on; 1: it is not (a line on stderr says why, unless it was switched off);
/// 2: it was recorded already; 3: its recording was ended by `strandline_stop`.
///
/// To be called with the GIL held, after `import torch`; with -2 for the device where the process has none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_start(device: c_int) -> c_int {
    if recorder::is_stopped() {
        return WAS_STOPPED;
    }
    // A process whose memory comes through the pluggable door records too, and lacks our hooks where it was not started with them.
    // The loader has put us before CUDA and torch itself.
    let preloaded = is_global(c"strandline_start", strandline_start as *const ());
    if recorder::is_recording() && (before::missed().is_some() || preloaded && attach::is_settled()) {
        return DID_ALREADY;
    }
    if !preloaded {
        if let Ok(device) = u8::try_from(device) {
            tls::set_usual_device(device);
        }
        before::name_autograd();
    }
    if !recorder::arm() {
        return DOES_NOT;
    }
    if !preloaded {
        let done = redirect::all();
        before::set_missed(done.missed());
        if before::has_trained() {
            recorder::record_metadata(json!({ "trained_before": true }));
        }
    }
    if attach::is_settled() && pluggable::is_open() {
        unpatch_triggers(hooks::attach_trigger());
        recorder::record_metadata(pluggable::facts());
    } else if device != NO_TORCH {
        attach::attempt();
    }
    RECORDS
}

/// What the program knows of a device: its name, and its memory in bytes. Told before `strandline_start`.
///
/// # Safety
/// `name` must be null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn strandline_device(index: c_int, name: *const c_char, total: u64) {
    // SAFETY: the caller's promise.
    let name = if name.is_null() { c"GPU" } else { unsafe { CStr::from_ptr(name) } };
    devices::note_known_device(index, name, total);
}

/// The path of this process's recording; null where there is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_recording() -> *const c_char {
    static PATH: OnceCell<CString> = OnceCell::new();
    if recorder::recording_path().is_empty() {
        return core::ptr::null();
    }
    PATH.get_or_init(|| CString::new(recorder::recording_path()).unwrap_or_default()).as_ptr()
}
