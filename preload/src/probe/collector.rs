//! All objects that Python's collector tracks, read from its own lists: nothing is created, nothing is counted.
//!
//! The collector keeps its objects in circular lists whose heads lie in the interpreter's state, in this order since 3.9:
//! three generations (head, threshold, count), a pointer to the first of them, the frozen objects, nine numbers, and
//! whether it is at work. That pointer, and the heads that point to themselves, are how the place is recognised;
//! a Python that has no such place (3.14, free-threaded builds) is not looked into.

use super::memory;
use super::objects::read;

/// Bytes of an object's collector header, which lies before the object.
const HEADER: u64 = 16;
/// Words of the interpreter's state that are searched.
const SEARCHED: usize = 2048;
/// Distance of the generations from each other.
const GENERATION: u64 = 24;
/// From the first generation on: the pointer to it, the frozen objects, whether it is at work.
const POINTER: u64 = 3 * GENERATION;
const FROZEN: u64 = POINTER + 8;
const AT_WORK: u64 = FROZEN + GENERATION + 9 * 8;

/// Where the lists are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collector {
    /// The first generation.
    generations: u64,
}

impl Collector {
    /// Finds it in an interpreter's state. With the GIL held.
    pub(super) fn find(interpreter: u64) -> Option<Collector> {
        let state = memory::range(interpreter, SEARCHED);
        let places = state.iter().enumerate().filter_map(|(i, &word)| {
            let at = interpreter + 8 * i as u64;
            (word == at.wrapping_sub(POINTER)).then_some(word)
        });
        let mut found = places.filter(|&g| is_plausible(g)).map(|generations| Collector { generations });
        // Two of them would mean that this is not understood.
        found.next().filter(|_| found.next().is_none())
    }

    /// Whether the collector is at work, so that its lists are not whole.
    pub(super) fn is_at_work(self) -> bool {
        // SAFETY: `find` has read this part of the interpreter's state, which lives as long as the process.
        unsafe { read(self.generations + AT_WORK) as u32 != 0 }
    }

    /// Hands out every tracked object until `each` says `false`. With the GIL held, while nothing is created or freed.
    pub(super) fn walk(self, mut each: impl FnMut(u64) -> bool) {
        for head in heads(self.generations) {
            // SAFETY: the lists are whole (the collector is not at work) and only change with the GIL, which is held:
            // every link leads to another object's header, and at last to the head.
            unsafe {
                let mut link = read(head) & !1;
                while link != head && link != 0 {
                    if !each(link + HEADER) {
                        return;
                    }
                    link = read(link) & !1;
                }
            }
        }
    }
}

fn heads(generations: u64) -> [u64; 4] {
    [0, GENERATION, 2 * GENERATION, FROZEN].map(|offset| generations + offset)
}

/// Each head's neighbours point back to it, and the flag is one.
fn is_plausible(generations: u64) -> bool {
    let closed = |head: u64| {
        let [next, previous] = memory::at::<2>(head)?.map(|w| w & !3);
        let [_, back] = memory::at::<2>(next)?;
        let [forth, _] = memory::at::<2>(previous)?;
        Some(back & !3 == head && forth & !3 == head)
    };
    let flag = memory::at::<1>(generations + AT_WORK).map(|[w]| w as u32);
    heads(generations).into_iter().all(|h| closed(h) == Some(true)) && matches!(flag, Some(0 | 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_recognised_and_walked() {
        // Five words before it, then the state, then what follows; two objects in the second generation.
        let mut state = vec![0u64; SEARCHED + 64];
        let mut objects = [[0u64; 4]; 2];
        let base = state.as_ptr() as u64;
        let generations = base + 40;
        for head in heads(generations) {
            let i = ((head - base) / 8) as usize;
            state[i] = head;
            state[i + 1] = head;
        }
        state[5 + 9] = generations;
        let (a, b) = (objects[0].as_ptr() as u64, objects[1].as_ptr() as u64);
        let second = generations + GENERATION;
        state[8] = a;
        state[9] = b;
        objects[0][..2].copy_from_slice(&[b, second | 2]);
        objects[1][..2].copy_from_slice(&[second, a]);
        let c = Collector::find(base).expect("found");
        assert!(!c.is_at_work());
        let mut seen = Vec::new();
        c.walk(|o| {
            seen.push(o);
            true
        });
        assert_eq!(seen, [a + HEADER, b + HEADER]);
        state[5 + (AT_WORK / 8) as usize] = 1;
        assert!(c.is_at_work());
        state[5 + (AT_WORK / 8) as usize] = 7;
        assert!(Collector::find(base).is_none(), "no such flag");
        state[5 + (AT_WORK / 8) as usize] = 0;
        objects[1][1] = 1234;
        objects[0][1] = 8;
        assert!(Collector::find(base).is_none(), "a list that is not closed");
        std::hint::black_box((&state, &objects));
    }
}
