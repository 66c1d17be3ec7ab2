//! Copies of this process's memory, made by the kernel: what an address that is none gives is nothing, not a fault.
//!
//! What belongs to Python is read at once, under the GIL. What belongs to torch may be changed by a thread that runs
//! without it, so that is copied, and believed only where its vtable says what it is.

/// Addresses in one call.
const BATCH: usize = 512;

/// `N` words at each address, in the order of the addresses; `None` where they cannot be read.
pub(super) fn words<const N: usize>(at: &[u64]) -> Vec<Option<[u64; N]>> {
    let mut out = vec![None; at.len()];
    let (places, addresses): (Vec<usize>, Vec<u64>) =
        at.iter().enumerate().filter(|(_, a)| is_address(**a)).map(|(i, &a)| (i, a)).unzip();
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

/// `N` words at one address.
pub(super) fn at<const N: usize>(address: u64) -> Option<[u64; N]> {
    words::<N>(&[address]).into_iter().next().flatten()
}

/// Up to `most` words from an address on, as many as can be read.
pub(super) fn range(address: u64, most: usize) -> Vec<u64> {
    const STEP: usize = 16;
    let starts: Vec<u64> = (0..most.div_ceil(STEP)).map(|i| address + (i * STEP * 8) as u64).collect();
    let mut all: Vec<u64> = words::<STEP>(&starts).into_iter().map_while(|w| w).flatten().collect();
    all.truncate(most);
    all
}

/// Whether these bytes, eight at most, lie at an address. Text lies wherever the compiler put it, not only at words.
pub(super) fn is_text(address: u64, text: &[u8]) -> bool {
    let bytes = at::<2>(address & !7).into_iter().flatten().flat_map(u64::to_le_bytes);
    text.len() <= 8 && bytes.skip((address & 7) as usize).take(text.len()).eq(text.iter().copied())
}

/// Whether a word may be the address of an object at all.
pub(super) fn is_address(word: u64) -> bool {
    word.is_multiple_of(8) && (1 << 16..1 << 47).contains(&word)
}

/// Where a block of the heap ends, as glibc's heap says: before a block lie its size and three flags, behind it the next one's, with
/// a flag that this one is in use. `None` where that does not fit, and where another heap is in its place.
pub(super) fn end_of_block(block: u64) -> Option<u64> {
    const IN_USE_BEFORE: u64 = 1;
    const OF_ITS_OWN: u64 = 2;
    const LONGEST: u64 = 1 << 20;
    let size_of = |place: u64| at::<1>(place - 8).map(|[w]| (w & !7, w & 7));
    let (size, flags) = size_of(block).filter(|_| is_own_heap())?;
    let fits = size.is_multiple_of(16) && (32..LONGEST).contains(&size) && flags & OF_ITS_OWN == 0;
    let (next, flags) = size_of(block + if fits { size } else { return None })?;
    (flags & IN_USE_BEFORE != 0 && next.is_multiple_of(16)).then_some(block + size - 8)
}

/// Whether `malloc` is glibc's own, as its other functions are.
fn is_own_heap() -> bool {
    static KNOWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *KNOWN.get_or_init(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let library = |address: usize| {
            let address = behind_stub(address as u64);
            let holds = |line: &&str| executable(line).is_some_and(|(a, b, _)| (a..b).contains(&address));
            maps.lines().find(holds).and_then(|l| l.split_ascii_whitespace().nth(5))
        };
        let own = library(libc::getauxval as *const () as usize);
        own.is_some() && own == library(libc::malloc as *const () as usize)
    })
}

/// The function that a stub of a program's jumps to; any other address as it is. Where a program that is not position-independent
/// takes the address of a library's function, as Debian's and Ubuntu's Python do of `malloc`, that of its own stub is the
/// function's address for the whole process.
pub(super) fn behind_stub(address: u64) -> u64 {
    const BRANCH_TARGET: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    let from = address & !7;
    let Some(words) = at::<3>(from) else { return address };
    let bytes: Vec<u8> =
        words.into_iter().flat_map(u64::to_le_bytes).skip((address - from) as usize).collect();
    let rest = bytes.strip_prefix(&BRANCH_TARGET).unwrap_or(&bytes);
    let rest = rest.strip_prefix(&[0xf2]).unwrap_or(rest);
    // A jump to what stands so far behind it.
    let [0xff, 0x25, a, b, c, d, ..] = *rest else { return address };
    let next = address + (bytes.len() - rest.len()) as u64 + 6;
    let slot = next.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
    at::<1>(slot).filter(|_| is_address(slot)).map_or(address, |[to]| to)
}

/// As many of the addresses' words as the kernel copies without a stop.
fn copy<const N: usize>(at: &[u64]) -> Vec<[u64; N]> {
    let size = N * 8;
    let mut out = vec![[0u64; N]; at.len()];
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() * size };
    let remote: Vec<libc::iovec> =
        at.iter().map(|&a| libc::iovec { iov_base: a as *mut libc::c_void, iov_len: size }).collect();
    // SAFETY: the one buffer is `out`, as long as it says; the kernel checks the other addresses before it reads them.
    let n = unsafe {
        libc::process_vm_readv(libc::getpid(), &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
    };
    out.truncate(usize::try_from(n).unwrap_or(0) / size);
    out
}

/// Looks up, once, what takes its time; whether the kernel does this for us at all: a sandbox may forbid it.
pub(super) fn prepare() -> bool {
    is_own_heap();
    let known = [0x5354_5241_4e44u64; 1];
    at::<1>(known.as_ptr() as u64) == Some(known)
}

/// A line of the kernel's about memory with code: from, to, file.
pub(super) fn executable(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    words.next().filter(|rights| rights.contains('x'))?;
    Some((number(from)?, number(to)?, words.nth(3)?))
}

/// The word at an address.
///
/// # Safety
/// It must be readable.
#[inline(always)]
pub(super) unsafe fn read(address: u64) -> u64 {
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
    fn the_heap_says_where_a_block_ends() {
        for size in [24usize, 100, 472, 4000] {
            let block = std::hint::black_box(vec![0u8; size]);
            let end = end_of_block(block.as_ptr() as u64).expect("a block of glibc's");
            let room = end - block.as_ptr() as u64;
            assert!((size as u64..size as u64 + 32).contains(&room), "{size}: {room}");
            assert_eq!(end_of_block(block.as_ptr() as u64 + 8), None, "no block begins there");
        }
    }

    #[test]
    fn a_stub_is_followed_to_what_it_jumps_to_and_nothing_else_is() {
        let slot = std::hint::black_box([0x1234_5670u64]);
        // The code lies as far before the slot as fits: a page of words with both in it.
        for head in [&[][..], &[0xf3, 0x0f, 0x1e, 0xfa], &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2]] {
            let mut page = [0u64; 8];
            page[7] = slot[0];
            let length = head.len() + 6;
            let code = [head, &[0xff, 0x25], &(56 - length as i32).to_le_bytes()].concat();
            for (i, b) in code.iter().enumerate() {
                page[i / 8] |= u64::from(*b) << (i % 8 * 8);
            }
            let page = std::hint::black_box(page);
            assert_eq!(behind_stub(page.as_ptr() as u64), slot[0], "{head:x?}");
        }
        let other = std::hint::black_box([0x9090_9090_9090_9090u64; 8]);
        let other = other.as_ptr() as u64;
        assert_eq!((behind_stub(other), behind_stub(8)), (other, 8));
    }

    #[test]
    fn what_cannot_be_read_is_none_and_does_not_hide_the_rest() {
        assert!(prepare());
        let a = [1u64, 2, 3];
        let p = a.as_ptr() as u64;
        let got = words::<2>(&[p, 8, p + 8, 0xdead_beef_0000_0000, p]);
        assert_eq!(got, [Some([1, 2]), None, Some([2, 3]), None, Some([1, 2])]);
        assert_eq!(range(8, 100), [0u64; 0]);
        assert_eq!(range(p, 2), [1, 2]);
        assert!(is_address(p) && !is_address(p + 1) && !is_address(8) && !is_address(u64::MAX - 7));
    }
}
