//! Memory that is looked at in many places at one moment: what lies near each other costs the kernel one look, not one each.

use super::memory::{is_address, ranges};
use std::cell::RefCell;
use std::collections::HashMap;

/// Words of a page, and its bytes: all kinds of pages consist of such.
const WORDS: usize = 512;
const PAGE: u64 = 8 * WORDS as u64;
/// Pages that are kept at most, and that are copied at once.
const MOST: usize = 1024;
const SOME: usize = 64;

/// Pages as they were when they were first looked at. Not kept longer than nothing of the job runs.
#[derive(Default)]
pub(crate) struct Pages(RefCell<HashMap<u64, Vec<u64>>>);

impl Pages {
    /// `N` words at each address, in the order of the addresses; `None` where they cannot be read.
    pub(crate) fn words<const N: usize>(&self, at: &[u64]) -> Vec<Option<[u64; N]>> {
        let all: Vec<(u64, usize)> = at.iter().map(|&a| (a, N)).collect();
        self.ranges(&all).into_iter().map(|words| words.try_into().ok()).collect()
    }

    /// Up to so many words from each address on, as many as can be read, in the order of the addresses.
    pub(crate) fn ranges(&self, all: &[(u64, usize)]) -> Vec<Vec<u64>> {
        let mut known = self.0.borrow_mut();
        let mut out = Vec::with_capacity(all.len());
        for some in all.chunks(SOME) {
            copy(&mut known, some);
            out.extend(some.iter().map(|&(at, most)| one(&known, at, most)));
        }
        out
    }
}

/// The pages that something lies in.
fn of((at, most): (u64, usize)) -> impl Iterator<Item = u64> {
    let last = at.saturating_add(8 * most as u64).saturating_sub(1);
    let is_any = is_address(at) && most > 0;
    (at / PAGE..=last / PAGE).filter(move |_| is_any).map(|page| page * PAGE)
}

/// Copies what is not known of these.
fn copy(known: &mut HashMap<u64, Vec<u64>>, some: &[(u64, usize)]) {
    let missing = |known: &HashMap<u64, Vec<u64>>| {
        let mut missing: Vec<u64> =
            some.iter().copied().flat_map(of).filter(|p| !known.contains_key(p)).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    };
    let mut new = missing(known);
    if known.len() + new.len() > MOST {
        known.clear();
        new = missing(known);
    }
    for some in new.chunks(SOME) {
        let pages: Vec<(u64, usize)> = some.iter().map(|&page| (page, WORDS)).collect();
        known.extend(some.iter().copied().zip(ranges(&pages)));
    }
}

fn one(known: &HashMap<u64, Vec<u64>>, at: u64, most: usize) -> Vec<u64> {
    let mut words = Vec::with_capacity(most);
    for page in of((at, most)) {
        let Some(all) = known.get(&page) else { break };
        let from = (at.max(page) - page) as usize / 8;
        let rest = all.get(from..).unwrap_or_default();
        words.extend(rest.iter().take(most - words.len()));
        if all.len() < WORDS {
            break;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::memory;

    #[test]
    fn pages_tell_what_is_read_without_them() {
        let all: Vec<u64> = (0..3000).collect();
        let at = all.as_ptr() as u64;
        let places = [at, at + 8 * 700, 8, at + 8 * 2990, 0x7fff_ffff_f000, at + 4, u64::MAX - 7];
        let pages = Pages::default();
        let exact = |most| places.map(|p| (p, most));
        assert_eq!(pages.words::<3>(&places), memory::words::<3>(&places));
        for most in [0, 1, 10] {
            assert_eq!(pages.ranges(&exact(most)), memory::ranges(&exact(most)), "{most}");
        }
        let wide: Vec<u64> = (0..2000).map(|i| at + 8 * i).collect();
        assert!(pages.words::<1>(&wide).into_iter().eq((0..2000).map(|i| Some([i]))));
        assert_eq!(pages.ranges(&[(at, 3000)]), [all], "over several pages");
    }

    #[test]
    fn what_was_read_once_stays_as_it_was() {
        let word = std::sync::atomic::AtomicU64::new(7);
        let (at, pages) = (word.as_ptr() as u64, Pages::default());
        assert_eq!(pages.words::<1>(&[at]), [Some([7])]);
        word.store(8, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(pages.words::<1>(&[at]), [Some([7])]);
    }
}
