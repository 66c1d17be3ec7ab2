//! The kernel's numbers and names of threads.

use crate::platform::tls;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Where this C library keeps a thread's number (glibc on x86-64 since 2.4), held against the kernel's word at arming.
const TID_AT: usize = 720;
static TID_IS_THERE: AtomicBool = AtomicBool::new(false);

/// Looks whether a thread's number can be read without a system call: once when the process is armed, and once more on
/// our own thread, whose number is not the process's.
#[cold]
pub(crate) fn check() {
    // SAFETY: gettid has no arguments.
    let kernel = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    TID_IS_THERE.store(tls::tid_at(TID_AT) == kernel, Relaxed);
}

/// The kernel's number of this thread.
pub(crate) fn tid() -> u32 {
    if TID_IS_THERE.load(Relaxed) {
        return tls::tid_at(TID_AT);
    }
    // SAFETY: gettid has no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// What the kernel calls a thread of this process, zero-padded; for the drain, which has the time to ask. `None`: it has
/// ended.
#[cold]
pub(crate) fn name_of(tid: u32) -> Option<[u8; 16]> {
    let text = std::fs::read(format!("/proc/self/task/{tid}/comm")).ok()?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    let mut name = [0; 16];
    name.iter_mut().zip(text).for_each(|(n, &t)| *n = t);
    Some(name)
}
