//! The orderly end of a recording: with its process, or where the program says so.

use crate::platform::say::say;
use crate::recorder::{self, Control};
use crate::torch;
use crossbeam_channel::bounded;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the end of the process waits for the last pages: they are written in milliseconds, unless the disk stalls.
const LAST_SWEEP: Duration = Duration::from_secs(10);

/// Has the recording end as the process ends, before the libraries that are loaded by now destroy their objects. Called again once
/// PyTorch is there: the drain asks its objects, and a process may have called CUDA before it loaded them.
pub(super) fn end_at_exit() {
    // SAFETY: the function has the required signature and this library is never unloaded.
    unsafe { on_exit(ended, core::ptr::null_mut()) };
}

unsafe extern "C" {
    /// glibc's `atexit` that also tells the status.
    fn on_exit(f: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// The process ends in an orderly way.
extern "C" fn ended(status: c_int, _: *mut c_void) {
    end(Some(status));
}

const DONE: c_int = 0;
const NOT_RECORDING: c_int = 1;
const NOT_WRITTEN: c_int = 2;

/// Ends the recording; the process goes on, and is not recorded again. Hooks stay where they are, and only forward. 0: the recording is
/// complete; 1: this process does not record; 2: its last pages were not written in time.
///
/// To be called without the GIL and without a lock of PyTorch's: it waits for the thread that writes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_stop() -> c_int {
    end(None)
}

/// The last pages are written, for a bounded time. `status`: that of the process, which ends; `None`: it goes on.
fn end(status: Option<c_int>) -> c_int {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    let Some(s) = recorder::session().filter(|_| recorder::is_recording()) else { return NOT_RECORDING };
    if BEGUN.swap(true, Relaxed) {
        return NOT_RECORDING;
    }
    if status.is_none() {
        recorder::set_stopped();
    }
    torch::fraction::end();
    let (done, wait) = bounded(1);
    let deadline = Instant::now() + LAST_SWEEP;
    let told = s.control.send_deadline(Control::End(done, status), deadline).is_ok();
    let path = s.path.display();
    // Where that takes too long, what is missing in the file stays in the tail.
    if !told || wait.recv_deadline(deadline).is_err() {
        if status.is_none() {
            recorder::fail(format_args!(
                "cannot write the end of {path} in time: recording stops here, the job goes on"
            ));
        }
        return NOT_WRITTEN;
    }
    let recording = recorder::pass_through();
    // What this user may not look for any more is there.
    if recording && !s.config.quiet && s.path.try_exists().unwrap_or(true) {
        say!("recorded {path}; next: strandline report {path}");
    } else if recording && !s.config.quiet {
        say!("{path} was deleted while the job ran: nothing is recorded");
    }
    // The thread that writes has said what failed.
    if recording { DONE } else { NOT_WRITTEN }
}
