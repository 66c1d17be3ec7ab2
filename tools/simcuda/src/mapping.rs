//! The host pages behind device memory: reserved at once, committed by the kernel at the first touch.
//!
//! # Safety
//! Every range handled here was reserved by [`reserve`] and is given back once, by [`release`]; callers keep
//! the ranges in tables that hold each at most once.

use crate::code::{Code, Outcome};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::OnceLock;

const PAGE: usize = 4096;

/// How much is looked at and copied at once.
const PIECE: usize = 512 * PAGE;

/// Copies smaller than this are just made.
const WORTH_A_LOOK: usize = 16 * PAGE;

/// What a program may do with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing: reserved addresses.
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Access {
    fn flags(self) -> i32 {
        match self {
            Access::None => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

const LAZY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Reserves `bytes` of address space aligned to `align` (a power of two, at least a page).
pub fn reserve(bytes: usize, align: usize, access: Access) -> Outcome<usize> {
    let Some(padded) = bytes.checked_add(align) else { return Err(Code::OUT_OF_MEMORY) };
    // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing.
    let start = unsafe { libc::mmap(ptr::null_mut(), padded, access.flags(), LAZY, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(Code::OUT_OF_MEMORY);
    }
    let start = start as usize;
    let base = start.next_multiple_of(align);
    let (head, tail) = (base - start, start + padded - (base + bytes));
    // SAFETY: both pieces lie inside the mapping made above, outside [base, base + bytes), and nobody knows them.
    unsafe {
        if head > 0 {
            libc::munmap(start as *mut _, head);
        }
        if tail > 0 {
            libc::munmap((base + bytes) as *mut _, tail);
        }
    }
    Ok(base)
}

/// Gives a reserved range back to the kernel.
pub fn release(base: usize, bytes: usize) {
    // SAFETY: the range was reserved here and its owner has just taken it out of its table.
    unsafe { libc::munmap(base as *mut _, bytes) };
}

/// Changes what a program may do with part of a reserved range.
pub fn protect(base: usize, bytes: usize, access: Access) -> Outcome {
    // SAFETY: the range lies in one that was reserved here; only the program's own accesses are affected.
    match unsafe { libc::mprotect(base as *mut _, bytes, access.flags()) } {
        0 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Makes part of a reserved range empty and inaccessible again.
pub fn empty(base: usize, bytes: usize) -> Outcome {
    let flags = LAZY | libc::MAP_FIXED;
    // SAFETY: the range lies in one that was reserved here, and its content is what the caller wants to lose.
    match unsafe { libc::mmap(base as *mut _, bytes, libc::PROT_NONE, flags, -1, 0) } {
        libc::MAP_FAILED => Err(Code::OUT_OF_MEMORY),
        _ => Ok(()),
    }
}

/// Copies bytes between ranges that may overlap.
///
/// # Safety
/// * `source` is valid for reads and `target` for writes of `bytes` bytes.
pub unsafe fn copy(target: usize, source: usize, bytes: usize) {
    // SAFETY: the caller's promise; `copy` allows overlap.
    unsafe { ptr::copy(source as *const u8, target as *mut u8, bytes) }
}

/// Copies between two ranges of this device without committing pages for what was never written: kernels do not
/// run, so most of what a program copies is untouched, and reads as zeros on both sides.
///
/// # Safety
/// * `source` is valid for reads and `target` for writes of `bytes` bytes, and all of both was reserved by
///   [`reserve`].
pub unsafe fn copy_sparse(target: usize, source: usize, bytes: usize) {
    let apart = target.abs_diff(source) >= bytes;
    if bytes < WORTH_A_LOOK || !apart {
        // SAFETY: the caller's promise.
        return unsafe { copy(target, source, bytes) };
    }
    let mut done = 0;
    while done < bytes {
        // Pieces end where huge pages of the source do, so that reading one does not commit the next.
        let piece = (PIECE - (source + done) % PIECE).min(bytes - done);
        // SAFETY: the pieces make up the caller's ranges.
        unsafe {
            if untouched(source + done, piece) {
                zero(target + done, piece);
            } else {
                copy(target + done, source + done, piece);
            }
        }
        done += piece;
    }
}

/// Whether no page of a range was ever written or read: the kernel's page table says so. Where it cannot be asked
/// the answer is no.
fn untouched(base: usize, bytes: usize) -> bool {
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    static PAGEMAP: OnceLock<Option<(u32, File)>> = OnceLock::new();
    let opened = PAGEMAP.get_or_init(|| Some((std::process::id(), File::open("/proc/self/pagemap").ok()?)));
    // A forked child would read its parent's.
    let Some((_, pagemap)) = opened.as_ref().filter(|(pid, _)| *pid == std::process::id()) else {
        return false;
    };
    let (first, last) = (base / PAGE, (base + bytes - 1) / PAGE);
    let mut entries = [0u8; (PIECE / PAGE + 1) * 8];
    let Some(entries) = entries.get_mut(..(last - first + 1) * 8) else { return false };
    if pagemap.read_exact_at(entries, first as u64 * 8).is_err() {
        return false;
    }
    entries
        .chunks_exact(8)
        .all(|entry| entry.try_into().is_ok_and(|entry| u64::from_ne_bytes(entry) & PRESENT_OR_SWAPPED == 0))
}

/// Fills bytes.
///
/// # Safety
/// * `target` is valid for writes of `bytes` bytes.
pub unsafe fn fill(target: usize, value: u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { ptr::write_bytes(target as *mut u8, value, bytes) }
}

/// Fills a range of private anonymous pages with zeros by letting the kernel forget them, which also
/// uncommits them: a large `torch.zeros` costs nothing.
///
/// # Safety
/// * `target` is valid for writes of `bytes` bytes, and all of it was reserved by [`reserve`].
pub unsafe fn zero(target: usize, bytes: usize) {
    let first = target.next_multiple_of(PAGE);
    let last = (target + bytes) & !(PAGE - 1);
    if first >= last {
        // SAFETY: the caller's promise.
        return unsafe { fill(target, 0, bytes) };
    }
    // SAFETY: the three pieces make up the caller's range; the middle is whole pages of a private anonymous
    // mapping, which read as zeros after MADV_DONTNEED.
    unsafe {
        fill(target, 0, first - target);
        if libc::madvise(first as *mut _, last - first, libc::MADV_DONTNEED) != 0 {
            fill(first, 0, last - first);
        }
        fill(last, 0, target + bytes - last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroing_keeps_the_neighbours() {
        let base = reserve(1 << 20, 2 << 20, Access::ReadWrite).unwrap();
        assert_eq!(base % (2 << 20), 0);
        // SAFETY: the range was reserved above and is written within its bounds.
        unsafe {
            fill(base, 7, 1 << 20);
            zero(base + 100, 3 * PAGE);
            let at = |offset: usize| *((base + offset) as *const u8);
            assert_eq!((at(99), at(100), at(100 + 3 * PAGE - 1), at(100 + 3 * PAGE)), (7, 0, 0, 7));
        }
        release(base, 1 << 20);
    }
    #[test]
    fn a_sparse_copy_is_a_copy() {
        const SIZE: usize = 8 << 20;
        let source = reserve(SIZE, 2 << 20, Access::ReadWrite).unwrap();
        let target = reserve(SIZE, 2 << 20, Access::ReadWrite).unwrap();
        // SAFETY: both ranges were reserved above and are used within their bounds.
        unsafe {
            fill(target, 9, SIZE);
            fill(source + (3 << 20), 5, 1);
            copy_sparse(target + 5, source + 5, SIZE - 10);
            let copied = std::slice::from_raw_parts(target as *const u8, SIZE);
            assert!(copied[..5].iter().all(|&b| b == 9) && copied[SIZE - 5..].iter().all(|&b| b == 9));
            assert_eq!(copied[5..SIZE - 5].iter().position(|&b| b != 0), Some((3 << 20) - 5));
            assert_eq!(copied[3 << 20], 5);
            assert!(untouched(source + (6 << 20), 1 << 20), "the copy committed what it read");
        }
        release(source, SIZE);
        release(target, SIZE);
    }
}
