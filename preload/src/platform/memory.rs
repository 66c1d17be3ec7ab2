//! Copies of this process's memory, made by the kernel: what an address that is none gives is nothing, not a fault.
//!
//! Two ways: one call for many addresses (`process_vm_readv`), which a sandbox may forbid; and a pipe, which works everywhere and takes two
//! calls for each address.

use super::descriptor::open;
use std::ffi::c_int;

/// Addresses in one call.
const BATCH: usize = 512;

/// `N` words at each address, in the order of the addresses; `None` where they cannot be read.
pub(crate) fn words<const N: usize>(at: &[u64]) -> Vec<Option<[u64; N]>> {
    let mut out = vec![None; at.len()];
    let (places, addresses) = addresses(at);
    let mut from = 0;
    while from < addresses.len() {
        let to = addresses.len().min(from + BATCH);
        let got = copy::<N>(addresses.get(from..to).unwrap_or_default());
        let whole = got.len();
        for (place, value) in places.iter().skip(from).zip(got) {
            out.get_mut(*place).into_iter().for_each(|o| *o = Some(value));
        }
        // The kernel stops at the first one that it cannot read.
        from += if from + whole < to { whole + 1 } else { whole };
    }
    out
}

/// Those of some words that may be addresses, and where each of them stands.
pub(crate) fn addresses(at: &[u64]) -> (Vec<usize>, Vec<u64>) {
    at.iter().enumerate().filter(|(_, a)| is_address(**a)).map(|(i, &a)| (i, a)).unzip()
}

/// `N` words at one address.
pub(crate) fn at<const N: usize>(address: u64) -> Option<[u64; N]> {
    words::<N>(&[address]).into_iter().next().flatten()
}

/// Up to `most` words from an address on, as many as can be read.
pub(crate) fn range(address: u64, most: usize) -> Vec<u64> {
    ranges(&[(address, most)]).pop().unwrap_or_default()
}

/// The same from several addresses, in their order.
pub(crate) fn ranges(all: &[(u64, usize)]) -> Vec<Vec<u64>> {
    let mut out = Vec::with_capacity(all.len());
    while let Some(rest) = all.get(out.len()..).filter(|rest| !rest.is_empty()) {
        let some = rest.get(..BATCH.min(rest.len())).unwrap_or(rest);
        let some: Vec<(u64, usize)> =
            some.iter().map(|&(at, most)| if is_address(at) { (at, most) } else { (at, 0) }).collect();
        let mut words = vec![0u64; some.iter().map(|r| r.1).sum()];
        let remote: Vec<libc::iovec> = some.iter().map(|&(at, n)| remote(at, n)).collect();
        let Some(mut left) = read_into(&mut words, &remote) else {
            out.extend(some.into_iter().map(|(at, most)| in_steps(at, most)));
            continue;
        };
        let mut words = words.into_iter();
        for (at, most) in some {
            let one: Vec<u64> = words.by_ref().take(most).collect();
            // The kernel stops at the first one that it cannot read.
            let is_whole = most <= left;
            left = left.saturating_sub(if is_whole { most } else { left });
            out.push(if is_whole { one } else { in_steps(at, most) });
            if !is_whole {
                break;
            }
        }
    }
    out
}

/// As [`range`], where a part cannot be read, or the kernel refuses to read for us.
#[cold]
fn in_steps(address: u64, most: usize) -> Vec<u64> {
    const STEP: usize = 16;
    let starts: Vec<u64> = (0..most.div_ceil(STEP)).map(|i| address + (i * STEP * 8) as u64).collect();
    let mut all: Vec<u64> = words::<STEP>(&starts).into_iter().map_while(|w| w).flatten().collect();
    all.truncate(most);
    all
}

/// Whether these bytes, eight at most, lie at an address. Text lies wherever the compiler put it, not only at words.
pub(crate) fn is_text(address: u64, text: &[u8]) -> bool {
    let bytes = at::<2>(address & !7).into_iter().flatten().flat_map(u64::to_le_bytes);
    text.len() <= 8 && bytes.skip((address & 7) as usize).take(text.len()).eq(text.iter().copied())
}

/// Whether a word may be the address of an object at all.
pub(crate) fn is_address(word: u64) -> bool {
    word.is_multiple_of(8) && (1 << 16..1 << 47).contains(&word)
}

/// Whether the kernel does this for us at all.
pub(crate) fn can_be_copied() -> bool {
    let known = [0x5354_5241_4e44u64; 1];
    at::<1>(known.as_ptr() as u64) == Some(known)
}

/// As many of the addresses' words as the kernel copies without a stop.
fn copy<const N: usize>(at: &[u64]) -> Vec<[u64; N]> {
    let mut out = vec![[0u64; N]; at.len()];
    let remote: Vec<libc::iovec> = at.iter().map(|&a| remote(a, N)).collect();
    match read_into(out.as_flattened_mut(), &remote) {
        Some(words) => out.truncate(words / N),
        None => return through_pipe(at),
    }
    out
}

/// So many words at an address.
fn remote(address: u64, words: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut libc::c_void, iov_len: words * 8 }
}

/// Copies what lies there, one after the other, as far as the kernel comes: how many words; `None` where it refuses the call.
fn read_into(words: &mut [u64], remote: &[libc::iovec]) -> Option<usize> {
    let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(words) };
    // SAFETY: the one buffer is `words`, as long as it says; the kernel checks the other addresses before it reads them.
    let n = unsafe {
        libc::process_vm_readv(libc::getpid(), &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
    };
    // Only an address of its own makes the kernel say EFAULT.
    let is_refused = n < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT);
    (!is_refused).then(|| usize::try_from(n).unwrap_or(0) / 8)
}

/// The same, where the kernel refuses that call.
#[cold]
fn through_pipe<const N: usize>(at: &[u64]) -> Vec<[u64; N]> {
    let Some(pipe) = Pipe::new() else { return Vec::new() };
    at.iter().map_while(|&a| pipe.copy(a)).collect()
}

/// Copies one value at a time: the kernel reads it into the pipe, and out of it again.
pub(crate) struct Pipe {
    from: c_int,
    to: c_int,
}

impl Pipe {
    /// `None`: the process has no descriptors left.
    #[cold]
    pub(crate) fn new() -> Option<Pipe> {
        let mut ends = [-1; 2];
        // SAFETY: writes two descriptors into our array.
        let made =
            open(|| unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) }) == 0;
        let [from, to] = ends;
        made.then(|| Pipe { from, to })
    }

    /// The value at an address, of a type that any bytes are a value of.
    pub(crate) fn copy<T: Plain>(&self, address: u64) -> Option<T> {
        let (n, mut value) = (size_of::<T>(), T::ZERO);
        // SAFETY: the kernel checks the address before it reads from it. What it wrote, at most `n` bytes, fits the value that is
        // read back into, and any bytes are one.
        unsafe {
            let written = libc::write(self.to, address as *const libc::c_void, n);
            let whole = written == n as isize;
            let got = libc::read(self.from, (&raw mut value).cast(), n);
            (whole && got == written).then_some(value)
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // SAFETY: the two descriptors are ours.
        unsafe {
            libc::close(self.from);
            libc::close(self.to);
        }
    }
}

/// Integers and arrays of them.
pub(crate) trait Plain: Copy {
    /// Any value, to be written over.
    const ZERO: Self;
}

impl Plain for u8 {
    const ZERO: u8 = 0;
}
impl Plain for u32 {
    const ZERO: u32 = 0;
}
impl Plain for u64 {
    const ZERO: u64 = 0;
}
impl<const N: usize> Plain for [u64; N] {
    const ZERO: [u64; N] = [0; N];
}

/// The word at an address.
///
/// # Safety
/// It must be readable.
#[inline(always)]
pub(crate) unsafe fn read(address: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (address as *const u64).read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_wherever_it_lies() {
        for from in 0..8 {
            let mut words = [0u64; 3];
            // Bytes from..from + 5 of the words, which lie at a multiple of eight.
            for (i, b) in b"dict\0".iter().enumerate() {
                words[(from + i) / 8] |= u64::from(*b) << ((from + i) % 8 * 8);
            }
            let address = words.as_ptr() as u64 + from as u64;
            assert!(is_text(address, b"dict\0") && !is_text(address, b"dicts"), "{from}");
        }
        assert!(!is_text(8, b"dict\0") && !is_text(0, b"dict\0"));
    }

    #[test]
    fn both_ways_read_the_same() {
        let a = [1u64, 2, 3];
        let p = a.as_ptr() as u64;
        assert_eq!(
            through_pipe::<2>(&[p, p + 8, 8, p]),
            [[1, 2], [2, 3]],
            "it stops where nothing can be read"
        );
        assert_eq!(through_pipe::<2>(&[8]), [[0; 2]; 0]);
        let pipe = Pipe::new().expect("a pipe");
        assert_eq!(
            (pipe.copy::<u32>(8), pipe.copy::<u8>(p + 8)),
            (None, Some(2)),
            "it goes on after a failure"
        );
    }

    #[test]
    fn of_what_ends_in_the_middle_the_first_part_is_read() {
        const PAGE: usize = 4096;
        // SAFETY: a mapping of ours alone.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(core::ptr::null_mut(), 2 * PAGE, libc::PROT_READ, flags, -1, 0);
            assert_eq!(libc::mprotect(at.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            at as u64
        };
        let near = at + PAGE as u64 - 256;
        let got = ranges(&[(near, 8), (near, 40), (near, 32)]);
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [8, 32, 32]);
        // SAFETY: the same mapping, which nobody uses any more.
        unsafe { libc::munmap(at as *mut libc::c_void, 2 * PAGE) };
    }

    #[test]
    fn what_cannot_be_read_is_none_and_does_not_hide_the_rest() {
        let a = [1u64, 2, 3];
        let p = a.as_ptr() as u64;
        let got = words::<2>(&[p, 8, p + 8, 0xdead_beef_0000_0000, p]);
        assert_eq!(got, [Some([1, 2]), None, Some([2, 3]), None, Some([1, 2])]);
        assert_eq!(range(8, 100), [0u64; 0]);
        assert_eq!(range(p, 2), [1, 2]);
        let got = ranges(&[(p, 2), (8, 5), (0x7fff_ffff_f000, 3), (p + 8, 1), (p, 0), (p, 3)]);
        assert_eq!(got, [vec![1, 2], vec![], vec![], vec![2], vec![], vec![1, 2, 3]]);
        assert!(is_address(p) && !is_address(p + 1) && !is_address(8) && !is_address(u64::MAX - 7));
    }
}
