//! What glibc's heap and the linker's stubs tell of an address, read carefully.

use crate::platform::memory::{at, is_address};
use crate::platform::pages::Pages;

/// Where blocks of the heap end, as glibc's heap says: before a block lie its size and three flags, behind it the next one's, with
/// a flag that this one is in use. `None` where that does not fit, and where another heap is in its place.
pub(super) fn ends_of_blocks(pages: &Pages, blocks: &[u64]) -> Vec<Option<u64>> {
    const IN_USE_BEFORE: u64 = 1;
    const OF_ITS_OWN: u64 = 2;
    const LONGEST: u64 = 1 << 20;
    if !is_own_heap() {
        return vec![None; blocks.len()];
    }
    let before = |places: &[u64]| {
        let at: Vec<u64> = places.iter().map(|p| p.saturating_sub(8)).collect();
        pages.words::<1>(&at).into_iter().map(|w| w.map(|[w]| (w & !7, w & 7)))
    };
    let size = |told: Option<(u64, u64)>| {
        let (size, flags) = told?;
        let fits = size.is_multiple_of(16) && (32..LONGEST).contains(&size) && flags & OF_ITS_OWN == 0;
        fits.then_some(size)
    };
    let sizes: Vec<Option<u64>> = before(blocks).map(size).collect();
    let behind: Vec<u64> = blocks.iter().zip(&sizes).map(|(b, size)| size.map_or(0, |s| b + s)).collect();
    let mut ends = Vec::with_capacity(blocks.len());
    for ((next, size), place) in before(&behind).zip(&sizes).zip(&behind) {
        let is_end = |(next, flags): (u64, u64)| flags & IN_USE_BEFORE != 0 && next.is_multiple_of(16);
        ends.push((size.is_some() && next.is_some_and(is_end)).then(|| place - 8));
    }
    ends
}

/// Looks up, once, what takes its time.
pub(super) fn look_up() {
    is_own_heap();
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

/// A line of the kernel's about memory with code: from, to, file.
pub(super) fn executable(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    words.next().filter(|rights| rights.contains('x'))?;
    Some((number(from)?, number(to)?, words.nth(3)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_says_where_a_block_ends() {
        let end_of_block = |at: u64| ends_of_blocks(&Pages::default(), &[at, 0])[0];
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
}
