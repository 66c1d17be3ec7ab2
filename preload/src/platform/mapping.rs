//! Memory that is mapped once and kept, and how much of it is there.

use core::ptr::NonNull;

/// Anonymous zeroed memory that costs nothing until it is touched.
///
/// # Safety
/// Always sound; marked because the memory belongs to whoever calls and is never unmapped.
pub(crate) unsafe fn reserved(bytes: usize) -> std::io::Result<NonNull<u8>> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice overlaps nothing.
    let p = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    match NonNull::new(p.cast::<u8>()) {
        Some(p) if p.as_ptr().cast() != libc::MAP_FAILED => Ok(p),
        _ => Err(std::io::Error::last_os_error()),
    }
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
            let p = libc::mmap(core::ptr::null_mut(), 16 * 4096, both, flags, -1, 0).cast::<u8>();
            assert_eq!(resident(p, 16 * 4096), 0);
            p.write(1);
            p.add(5 * 4096).write(1);
            assert_eq!(resident(p, 16 * 4096), 2 * 4096);
        }
    }
}
