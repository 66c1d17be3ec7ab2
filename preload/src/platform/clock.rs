//! The clock that records carry: the TSC where the kernel itself trusts it, else the monotonic clock.

use super::loader;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};
use strandline_core::format::region::{Clock, Moment};

#[unsafe(link_section = ".data.strandline_hot")]
static TSC: AtomicBool = AtomicBool::new(false);

type Gettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// The C library's own `clock_gettime`; null before it is known. Another preloaded library may stand before it and show the job another
/// time, which runs fast, or back: a recording's times are the machine's.
#[unsafe(link_section = ".data.strandline_hot")]
static GETTIME: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Chooses the clock, once, when the process is armed. The kernel's own choice of clock source tells whether the TSC is
/// constant and the same on all cores; c10 reads the TSC for `time_` in any case.
#[cold]
pub(crate) fn choose() -> Clock {
    GETTIME.store(gettime(), Relaxed);
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let tsc = std::fs::read_to_string(source).is_ok_and(|s| s.trim() == "tsc");
    TSC.store(tsc, Relaxed);
    if tsc { Clock::Tsc } else { Clock::Nanoseconds }
}

/// Looks it up in the C library alone, which is never unloaded.
fn gettime() -> *mut c_void {
    let _in_loader = loader::enter();
    // SAFETY: C strings; nothing is loaded that is not loaded already, and the handle is asked only where there is one. It is kept open.
    unsafe {
        let library = loader::open(Some(c"libc.so.6"));
        if library.is_null() {
            return core::ptr::null_mut();
        }
        libc::dlvsym(library, c"clock_gettime".as_ptr(), c"GLIBC_2.17".as_ptr())
    }
}

/// As if the kernel trusted the TSC.
#[cfg(test)]
pub(crate) fn pretend_tsc() {
    TSC.store(true, Relaxed);
}

/// Whether [`ticks`] are cycles of the TSC.
#[inline(always)]
pub(crate) fn is_tsc() -> bool {
    TSC.load(Relaxed)
}

/// Now, in ticks of the chosen clock.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    if is_tsc() { rdtsc() } else { nanoseconds(libc::CLOCK_MONOTONIC) }
}

/// The time stamp counter.
#[inline(always)]
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: the instruction is part of every x86-64 and touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Now on all clocks. The ticks are the middle of two readings around the others.
#[cold]
pub(crate) fn moment() -> Moment {
    let before = ticks();
    let mono_ns = nanoseconds(libc::CLOCK_MONOTONIC);
    let after = ticks();
    let ticks = before + (after.saturating_sub(before)) / 2;
    Moment { ticks, mono_ns, unix_ns: nanoseconds(libc::CLOCK_REALTIME) }
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let known = GETTIME.load(Relaxed);
    // SAFETY: the structure is ours; both clocks exist on every Linux, so the call fills it. What is known is the C library's function of
    // this name, so of this type.
    unsafe {
        let call = if known.is_null() {
            libc::clock_gettime as Gettime
        } else {
            core::mem::transmute::<*mut c_void, Gettime>(known)
        };
        call(clock, &mut t)
    };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
