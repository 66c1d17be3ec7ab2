//! All objects that Python's collector tracks, read from its own lists: nothing is created, nothing is counted.
//!
//! The collector keeps its objects in circular lists whose heads lie in the interpreter's state, in this order from 3.9 to 3.13:
//! three generations (head, threshold, count), a pointer to the first of them, the frozen objects, nine numbers,
//! whether it is at work, two lists of the script's, and how many objects the last full collection left.
//! In 3.14 and 3.15 that pointer comes last. It, and the heads that point to themselves, are how the place is recognised;
//! a Python that has no such place (the first releases of 3.14, free-threaded builds) is not looked into.
//!
//! Every free is recorded with whether the collector was at work: what it frees was kept by reference cycles. And the first
//! allocation after a full collection says that there was one: what lives on after it is not kept by cycles alone.

use super::tracked::{HEADER, neighbours};
use super::version;
use crate::platform::memory::{self, read};
use crate::platform::real;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Words of the interpreter's state that are searched.
const SEARCHED: usize = 2048;
/// Distance of the generations from each other.
const GENERATION: u64 = 24;

/// Where a version keeps what, from the first generation on.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    /// The pointer to the first generation.
    pointer: u64,
    /// The frozen objects.
    frozen: u64,
    /// How many full collections there were; in 3.15 a pointer to what it counts.
    collections: u64,
    /// Whether it is at work.
    at_work: u64,
    /// How many objects there were after the last full collection.
    long_lived: u64,
}

impl Places {
    /// Those of a version of CPython 3, if they are known.
    fn of(minor: u32) -> Option<&'static Places> {
        match minor {
            9..=13 => {
                Some(&Places { pointer: 72, frozen: 80, collections: 152, at_work: 176, long_lived: 200 })
            }
            14 => Some(&Places { pointer: 232, frozen: 72, collections: 144, at_work: 168, long_lived: 216 }),
            15 => Some(&Places { pointer: 160, frozen: 72, collections: 96, at_work: 104, long_lived: 144 }),
            _ => None,
        }
    }

    /// Whether the counts lie here as [`Work`] has them, and not elsewhere, in memory that goes with the interpreter.
    fn is_like_work(&self) -> bool {
        self.at_work - self.collections == core::mem::offset_of!(Work, at_work) as u64
    }
}

/// Where the lists are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collector {
    /// The first generation.
    generations: u64,
    places: &'static Places,
}

impl Collector {
    /// Finds it in an interpreter's state. With the GIL held.
    pub(crate) fn find(interpreter: u64) -> Option<Collector> {
        Collector::of_version(interpreter, version::python_minor()?)
    }

    fn of_version(interpreter: u64, minor: u32) -> Option<Collector> {
        let places = Places::of(minor)?;
        let state = memory::range(interpreter, SEARCHED);
        let pointers = state.iter().enumerate().filter_map(|(i, &word)| {
            let at = interpreter + 8 * i as u64;
            (word == at.wrapping_sub(places.pointer)).then_some(word)
        });
        let mut found =
            pointers.map(|generations| Collector { generations, places }).filter(|c| c.is_plausible());
        // Two of them would mean that this is not understood.
        found.next().filter(|_| found.next().is_none())
    }

    fn heads(self) -> [u64; 4] {
        [0, GENERATION, 2 * GENERATION, self.places.frozen].map(|offset| self.generations + offset)
    }

    /// Each head's neighbours point back to it, and the flag is one.
    fn is_plausible(self) -> bool {
        let flag = memory::at::<1>(self.generations + self.places.at_work).map(|[w]| w as u32);
        self.heads().into_iter().all(|h| neighbours(h).is_some()) && matches!(flag, Some(0 | 1))
    }

    /// Whether the collector is at work, so that its lists are not whole.
    pub(crate) fn is_at_work(self) -> bool {
        // SAFETY: `find` has read this part of the interpreter's state, which lives as long as the process.
        unsafe { read(self.generations + self.places.at_work) as u32 != 0 }
    }

    /// How many objects the last full collection left: a lower bound for a start; 0 where there was none.
    pub(crate) fn long_lived(self) -> u64 {
        // SAFETY: as above, two words behind what `find` has read, in the same structure.
        let n = unsafe { read(self.generations + self.places.long_lived) };
        if n < 1 << 40 { n } else { 0 }
    }

    /// What each generation counts, and up to which count it is left alone.
    pub(crate) fn counts(self) -> [&'static Counted; 3] {
        [0, GENERATION, 2 * GENERATION].map(|offset| {
            // SAFETY: two aligned words of four bytes in what `find` has read, which live as long as the process, and which only
            // the interpreter and we store to, under its GIL.
            unsafe { &*((self.generations + offset + HEADER) as *const Counted) }
        })
    }

    /// Full collections so far: such a one puts the lists into another order.
    fn collections(self) -> u64 {
        /// In 3.15: the last three full collections, each with its count, and which of them is the newest.
        const NEWEST: u64 = 1_104;
        const ENTRY: u64 = 64;
        const COUNT: u64 = 912 + 16;
        // SAFETY: as above; where the counts lie elsewhere, they do so as long as the interpreter is there.
        unsafe {
            let at = read(self.generations + self.places.collections);
            if self.places.is_like_work() {
                return at;
            }
            let newest = u64::from(read(at + NEWEST) as u8).min(2);
            read(at + COUNT + newest * ENTRY)
        }
    }
}

/// A generation's numbers as they lie there, behind its list's head.
#[repr(C)]
pub(crate) struct Counted {
    pub(crate) threshold: AtomicI32,
    pub(crate) count: AtomicI32,
}

impl Counted {
    /// Young objects until a collection; none ever begins with a threshold of 0.
    pub(crate) fn left(&self) -> i32 {
        match self.threshold.load(Relaxed) {
            0 => i32::MAX,
            threshold => threshold.saturating_sub(self.count.load(Relaxed)),
        }
    }
}

/// What the main interpreter counts of its collector's work, as it lies there.
#[repr(C)]
struct Work {
    /// Full collections that have ended.
    collections: AtomicU64,
    /// What they freed, and what they could not free.
    _freed: [u64; 2],
    /// Whether a collection, of any kind, is at work.
    at_work: AtomicU32,
}

/// The main interpreter's; null: not known.
#[unsafe(link_section = ".data.strandline_hot")]
static WATCHED: AtomicPtr<Work> = AtomicPtr::new(core::ptr::null_mut());

/// One more than the full collections that were told by an allocation; 0: none was asked yet.
#[unsafe(link_section = ".data.strandline_hot")]
static TOLD: AtomicU64 = AtomicU64::new(0);

/// From now on [`is_watched_at_work`] and [`full_gc_pending`] know. With the GIL held. Only of 3.11 to 3.14: their main interpreter's state is a static
/// variable, which outlives the interpreter, as frees do. So is that of 3.15, but what it counts lies elsewhere, and is gone with it.
#[cold]
pub(crate) fn watch() {
    let known = version::python_minor().is_some_and(|m| (11..=14).contains(&m));
    if !known || version::is_free_threaded() || !WATCHED.load(Relaxed).is_null() {
        return;
    }
    // SAFETY: the function has had this type since 3.7, and only returns an address.
    let main = unsafe { real::of_python::<extern "C" fn() -> u64>(c"PyInterpreterState_Main") };
    if let Some(c) = main.and_then(|main| Collector::find(main())).filter(|c| c.places.is_like_work()) {
        WATCHED.store((c.generations + c.places.collections) as *mut Work, Relaxed);
    }
}

#[inline(always)]
fn watched() -> Option<&'static Work> {
    // SAFETY: null, or an aligned part of a static variable that `find` has read and recognised, which only the interpreter
    // stores to, under its GIL.
    unsafe { WATCHED.load(Relaxed).as_ref() }
}

/// Whether the main interpreter's collector is at work, as far as that is known. Hot: two loads.
#[inline(always)]
pub(crate) fn is_watched_at_work() -> bool {
    watched().is_some_and(|w| w.at_work.load(Relaxed) != 0)
}

/// Whether a full collection has ended that was not told yet, or none could be told before. Hot: three loads.
#[inline(always)]
pub(crate) fn full_gc_pending() -> bool {
    watched().is_some_and(|w| ended(w) != TOLD.load(Relaxed))
}

/// The same, and it is told now: once true for each of them, whichever thread sees it.
#[inline(always)]
pub(crate) fn take_full_gc() -> bool {
    let Some(n) = watched().map(ended) else { return false };
    n != TOLD.load(Relaxed) && TOLD.fetch_max(n, Relaxed) < n
}

/// One more than the full collections so far.
#[inline(always)]
fn ended(w: &Work) -> u64 {
    w.collections.load(Relaxed).wrapping_add(1)
}

/// How far a slice of a walk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Every object was handed out.
    End,
    /// It stopped where `each` said so.
    Middle,
    /// The lists change faster than they are walked.
    Lost,
}

/// Objects between two that are remembered, and how many of those.
const STEP: u32 = 256;
const REMEMBERED: usize = 32;
/// Times that a walk begins again.
const AGAIN: u32 = 3;

/// A walk over all objects, from the newest to the oldest, slice by slice.
///
/// Between two slices objects come and go. New ones join the first list, at the end that is behind the walk; a collection
/// appends a list to the next older one, which is still before it. So all that were there from start to end are handed out, some
/// twice. What remains is where to go on: at the last object that is still there, which its neighbours tell; an address that
/// has become another, younger object's is known by the list that it leads to the head of. A full collection changes the order:
/// the walk begins again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    /// The list: 0 to 3, from the youngest.
    list: usize,
    /// Headers that were passed, the newest last; none at a list's start.
    passed: Vec<u64>,
    full: u64,
    again: u32,
    begun: bool,
    /// Objects that were handed out.
    pub(crate) objects: u64,
}

impl Walk {
    /// Goes on: hands out objects until `each` says `false`.
    ///
    /// # Safety
    /// With the GIL held, while nothing is created or freed and the collector is not at work.
    pub(crate) unsafe fn go_on(
        &mut self,
        collector: Collector,
        mut each: impl FnMut(u64) -> bool,
    ) -> Reached {
        let heads = collector.heads();
        let full = collector.collections();
        if self.begun && self.full != full && !self.begin_again(0) {
            return Reached::Lost;
        }
        (self.begun, self.full) = (true, full);
        while let Some(&head) = heads.get(self.list) {
            let Some(mut link) = self.next(head) else {
                if self.begin_again(self.list) {
                    continue;
                }
                return Reached::Lost;
            };
            let mut left = STEP;
            let end = loop {
                if let Some(end) = heads.iter().position(|h| *h == link) {
                    break end;
                }
                self.objects += 1;
                let goes_on = each(link + HEADER);
                left -= 1;
                if left == 0 || !goes_on {
                    left = STEP;
                    if self.passed.len() == REMEMBERED {
                        self.passed.remove(0);
                    }
                    self.passed.push(link);
                }
                if !goes_on {
                    return Reached::Middle;
                }
                // SAFETY: the lists are whole (the collector is not at work) and only change with the GIL, which is held: every
                // link leads to another object's header, and at last to a head.
                link = unsafe { read(link + 8) } & !3;
            };
            // A younger list's head: where it went on was no object of this list any more.
            if end < self.list {
                if !self.begin_again(self.list) {
                    return Reached::Lost;
                }
                continue;
            }
            self.list += 1;
            self.passed.clear();
        }
        Reached::End
    }

    /// The header to go on with; `None` where nothing that was passed is there any more.
    fn next(&self, head: u64) -> Option<u64> {
        if self.passed.is_empty() {
            // SAFETY: a head lies in the interpreter's state.
            return Some(unsafe { read(head + 8) } & !3);
        }
        self.passed.iter().rev().find_map(|h| neighbours(*h)).map(|[_, previous]| previous)
    }

    fn begin_again(&mut self, list: usize) -> bool {
        self.list = list;
        self.passed.clear();
        self.again += 1;
        self.again <= AGAIN
    }
}

#[cfg(test)]
mod tests {
    use super::super::tracked::{are_tracked, is_tracked};
    use super::*;
    use crate::platform::pages::Pages;

    /// The state of an interpreter of a version with lists of objects; which object is where.
    struct Lists {
        minor: u32,
        state: Vec<u64>,
        objects: Vec<[u64; 4]>,
    }

    impl Lists {
        fn new(lists: [&[usize]; 4]) -> Lists {
            Lists::of_version(13, lists)
        }

        fn of_version(minor: u32, lists: [&[usize]; 4]) -> Lists {
            let count = lists.iter().map(|l| l.len()).sum();
            let mut all = Lists { minor, state: vec![0; SEARCHED + 64], objects: vec![[0; 4]; count] };
            let pointer = all.word(all.places().pointer);
            all.state[pointer] = all.generations();
            all.link(lists);
            all
        }

        fn places(&self) -> &'static Places {
            Places::of(self.minor).expect("a known version")
        }

        /// The word of the state that lies so far behind the first generation.
        fn word(&self, place: u64) -> usize {
            5 + (place / 8) as usize
        }

        fn base(&self) -> u64 {
            self.state.as_ptr() as u64
        }

        fn generations(&self) -> u64 {
            self.base() + 40
        }

        fn header(&self, i: usize) -> u64 {
            self.objects[i].as_ptr() as u64
        }

        fn set(&mut self, at: u64, value: u64) {
            let i = at.wrapping_sub(self.base()) / 8;
            match self.state.get_mut(i as usize) {
                Some(word) => *word = value,
                None => {
                    let first = self.objects.as_ptr() as u64;
                    let n = ((at - first) / 8) as usize;
                    self.objects[n / 4][n % 4] = value;
                }
            }
        }

        /// Links the lists anew; an object that is in none is not tracked.
        fn link(&mut self, lists: [&[usize]; 4]) {
            self.objects.iter_mut().for_each(|o| o[0] = 0);
            let heads = Collector { generations: self.generations(), places: self.places() }.heads();
            for (head, list) in heads.into_iter().zip(lists) {
                let ring: Vec<u64> =
                    std::iter::once(head).chain(list.iter().map(|i| self.header(*i))).collect();
                for (i, &at) in ring.iter().enumerate() {
                    let next = ring[(i + 1) % ring.len()];
                    self.set(at, next);
                    self.set(next + 8, at | (u64::from(next != head) * 2));
                }
            }
        }

        fn find(&self) -> Option<Collector> {
            Collector::of_version(std::hint::black_box(self.base()), self.minor)
        }

        /// Walks on for so many objects.
        fn walk(&self, walk: &mut Walk, most: usize) -> (Vec<usize>, Reached) {
            let mut seen = Vec::new();
            let first = self.objects.as_ptr() as u64;
            // SAFETY: the lists are whole, and nobody else knows them.
            let reached = unsafe {
                walk.go_on(self.find().expect("found"), |o| {
                    seen.push(((o - HEADER - first) / 32) as usize);
                    seen.len() < most
                })
            };
            (seen, reached)
        }
    }

    #[test]
    fn the_place_is_recognised_and_walked_from_the_newest() {
        for minor in 9..=15 {
            let mut l = Lists::of_version(minor, [&[4, 5], &[], &[0, 1, 2], &[3]]);
            let counted = vec![0u64; 256];
            if !l.places().is_like_work() {
                let at = l.word(l.places().collections);
                l.state[at] = counted.as_ptr() as u64;
            }
            assert!(!l.find().expect("found").is_at_work(), "{minor}");
            assert_eq!(l.walk(&mut Walk::default(), 99), (vec![5, 4, 2, 1, 0, 3], Reached::End), "{minor}");
            let objects = [l.header(3) + HEADER, 0, l.header(3) + HEADER + 8];
            assert_eq!(objects.map(is_tracked), [true, false, false]);
            assert_eq!(are_tracked(&Pages::default(), &objects), [true, false, false]);
            let (flag, long_lived) = (l.word(l.places().at_work), l.word(l.places().long_lived));
            l.state[flag] = 1;
            assert!(l.find().expect("found").is_at_work());
            l.state[flag] = 7;
            assert!(l.find().is_none(), "no such flag");
            l.state[flag] = 0;
            l.state[long_lived] = 5_000_000;
            assert_eq!(l.find().expect("found").long_lived(), 5_000_000);
            l.state[5 + 2] = 700 | 38 << 32;
            let young = l.find().expect("found").counts()[0];
            assert_eq!(
                (young.threshold.load(Relaxed), young.count.load(Relaxed), young.left()),
                (700, 38, 662)
            );
            l.objects[4][1] = 8;
            assert!(l.find().is_none(), "a list that is not closed");
        }
    }

    #[test]
    fn what_is_watched_after_the_interpreter_has_ended_lies_in_its_state() {
        let is_watched = |minor| Places::of(minor).is_some_and(Places::is_like_work);
        assert!((9..=14).all(is_watched) && !is_watched(15) && Places::of(16).is_none());
    }

    #[test]
    fn a_walk_goes_on_after_objects_have_come_and_gone() {
        let mut l = Lists::new([&[8, 9], &[], &[0, 1, 2, 3, 4, 5, 6, 7], &[]]);
        let mut walk = Walk::default();
        assert_eq!(l.walk(&mut walk, 4), (vec![9, 8, 7, 6], Reached::Middle));
        // What it stood at is gone; new ones are there; those of the first list have grown old.
        l.link([&[6], &[], &[0, 1, 2, 3, 4, 5, 7, 8, 9], &[]]);
        let (seen, reached) = l.walk(&mut walk, 99);
        assert_eq!(reached, Reached::End);
        assert!([5, 4, 3, 2, 1, 0].iter().all(|o| seen.contains(o)), "{seen:?}");
    }

    #[test]
    fn a_full_collection_begins_it_again_and_too_many_lose_it() {
        let mut l = Lists::new([&[], &[], &[0, 1, 2, 3], &[]]);
        let mut walk = Walk::default();
        for n in 0..AGAIN + 1 {
            assert_eq!(l.walk(&mut walk, 2), (vec![3, 2], Reached::Middle), "{n}");
            let full = l.word(l.places().collections);
            l.state[full] += 1;
        }
        assert_eq!(l.walk(&mut walk, 2), (vec![], Reached::Lost));
        let mut walk = Walk::default();
        assert_eq!(l.walk(&mut walk, 1).0, [3]);
        l.link([&[], &[], &[0, 1, 2], &[]]);
        assert_eq!(l.walk(&mut walk, 9), (vec![2, 1, 0], Reached::End), "nothing it passed is there");
    }
}
