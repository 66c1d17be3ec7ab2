//! Waiting on a thread of the job's.

use super::errno;
use std::time::Duration;

/// Waits about so long, below a second. A signal may end it sooner; where the kernel refuses to wait (a filter of system calls), others get
/// the processor at least. `std::thread::sleep` takes any error but `EINTR` for a defect, and panics.
#[cold]
pub(crate) fn pause(time: Duration) {
    let _errno = errno::keep();
    let time = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: a whole number of nanoseconds below a second; what is left of it is not asked for. May be called where a process forks.
    if unsafe { libc::nanosleep(&time, core::ptr::null_mut()) } != 0 {
        std::thread::yield_now();
    }
}
