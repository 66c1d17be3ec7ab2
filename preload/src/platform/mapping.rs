//! Memory that is mapped, and how much of it is there.

use core::ptr::NonNull;
use std::ffi::{c_int, c_long, c_void};
use std::io;

/// Maps memory at an address of the kernel's choice, which overlaps nothing. The kernel is asked itself: to a profiler that stands before the C
/// library's `mmap` this would be memory of the job's.
///
/// # Errors
/// The kernel's.
pub(crate) fn map(len: usize, protection: c_int, flags: c_int, fd: c_int) -> io::Result<NonNull<u8>> {
    // The kernel reads whole registers, of which a `c_int` would fill a half.
    let [protection, flags, fd] = [protection, flags, fd].map(c_long::from);
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing; the call takes these six words.
    let p = unsafe { libc::syscall(libc::SYS_mmap, 0usize, len, protection, flags, fd, 0usize) };
    if p == -1 {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(p as *mut u8).ok_or_else(|| io::Error::other("mapped at 0"))
}

/// Gives it back.
///
/// # Safety
/// It is of [`map`], of this length, and nobody uses it any more.
pub(crate) unsafe fn unmap(p: *mut c_void, len: usize) {
    // SAFETY: the caller's promise; the call takes these two words.
    unsafe { libc::syscall(libc::SYS_munmap, p, len) };
}

/// Anonymous zeroed memory that costs nothing until it is touched.
///
/// # Safety
/// Always sound; marked because the memory belongs to whoever calls and is never unmapped.
pub(crate) unsafe fn reserved(bytes: usize) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
}

/// Bytes of `base..base + len` that have memory behind them.
///
/// # Safety
/// The range must be a mapping of ours that is never unmapped, and `base` the start of a page.
#[cold]
pub(crate) unsafe fn resident(base: *mut u8, len: usize) -> u64 {
    const PAGE: usize = 4096;
    let mut pages = vec![0u8; len.div_ceil(PAGE)];
    // SAFETY: the range is mapped (the caller's promise) and there is a byte for each of its pages.
    if unsafe { libc::mincore(base.cast(), len, pages.as_mut_ptr()) } != 0 {
        return 0;
    }
    (pages.iter().filter(|&&p| p & 1 != 0).count() * PAGE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_never_touched_costs_nothing() {
        // SAFETY: a fresh mapping of our own, as large as is said, never unmapped.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let both = libc::PROT_READ | libc::PROT_WRITE;
            let p = map(16 * 4096, both, flags, -1).expect("a mapping").as_ptr();
            assert_eq!(resident(p, 16 * 4096), 0);
            p.write(1);
            p.add(5 * 4096).write(1);
            assert_eq!(resident(p, 16 * 4096), 2 * 4096);
        }
    }
}
