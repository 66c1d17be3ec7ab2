//! Allocator events from many threads, with torch's own lock, while somebody drains: what arrives is what a naive twin counts. It is
//! what a thread sanitizer and valgrind can see of the short ways.

use super::*;
use crate::platform::clock;
use crate::recorder;
use crate::recorder::thread;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed};
use std::collections::BTreeMap;
use std::sync::Mutex;
use strandline_core::buffer::{Drain, Region};
use strandline_core::format::region::{Clock, Geometry, Identity, Moment, PART};

const THREADS: u64 = 3;
const ROUNDS: u64 = 2;
/// Enough for some timed events of each thread, and fewer than a ring holds.
const PAIRS: u64 = 3000;

fn region() -> Region {
    let g = Geometry { lanes: 8, records: 1 << 14, overflow: 64, definitions: 4096 };
    let layout = Layout::from_size_align(g.bytes(), PART).expect("a layout");
    // SAFETY: the size is not 0; the memory is leaked, zeroed and used by nothing else.
    unsafe {
        let base = NonNull::new(alloc_zeroed(layout)).expect("memory");
        let now = Moment { ticks: 1, mono_ns: 2, unix_ns: 3 };
        Region::init(base, g.bytes(), g, Identity::default(), Clock::Tsc, now).expect("a region")
    }
}

/// An entry of 2.7: the time behind the part that all versions share.
fn entry(action: i32, addr: u64, size: u64) -> [u64; 8] {
    [action as u32 as u64, addr, 0, 0, 9, size, clock::rdtsc(), 0]
}

/// The allocator: its lock is the device's, its state what torch calls allocated.
fn pair(allocated: &Mutex<u64>, addr: u64, size: u64) {
    let tell = |action| {
        let words = entry(action, addr, size);
        // SAFETY: as many words as an entry of that version has, laid out as it is.
        unsafe { event(core::ptr::null(), words.as_ptr().cast()) };
    };
    let account = |size: i64, now: u64| {
        if report_quickly(addr, size, now, 1 << 30).is_none() {
            report(addr, size, now, 1 << 30, 0);
        }
    };
    {
        let mut now = allocated.lock().expect("nobody panics");
        tell(ALLOC);
        *now += size;
        account(size as i64, *now);
    }
    let mut now = allocated.lock().expect("nobody panics");
    tell(FREE_REQUESTED);
    tell(FREE_COMPLETED);
    *now -= size;
    account(-(size as i64), *now);
}

/// Takes what is published; the records of allocator events, by their place in the device's order.
fn take(drain: &mut Drain, into: &mut BTreeMap<u32, Record>) {
    for ring in 0..drain.rings() {
        let range = drain.published(ring);
        let (a, b) = drain.records(ring, range.clone());
        for r in a.iter().chain(b).filter(|r| r.kind != Kind::Thread as u8) {
            assert!(into.insert(r.sequence(), *r).is_none(), "twice: {r:?}");
        }
        drain.advance(ring, range.end);
    }
}

#[test]
fn what_threads_allocate_arrives_whole_and_in_the_devices_order() {
    clock::pretend_tsc();
    let region = region();
    thread::reserve(region).expect("a pool");
    prepare(&Setup { pools: false, stacks: false });
    recorder::pretend_to_record();
    let (allocated, ended) = (Mutex::new(0u64), AtomicBool::new(false));
    let mut drain = region.drain().expect("nobody else drains");
    let all = std::thread::scope(|s| {
        let drained = s.spawn(|| {
            let mut all = BTreeMap::new();
            while !ended.load(Relaxed) {
                take(&mut drain, &mut all);
                std::thread::yield_now();
            }
            take(&mut drain, &mut all);
            all
        });
        // Twice, so that places and rings have a second owner.
        for round in 0..ROUNDS {
            std::thread::scope(|s| {
                for t in 0..THREADS {
                    let allocated = &allocated;
                    s.spawn(move || {
                        let of = |n: u64| (round * THREADS + t) * PAIRS + n + 1;
                        (0..PAIRS).for_each(|n| pair(allocated, of(n) * 512, of(n)));
                    });
                }
            });
        }
        ended.store(true, Relaxed);
        drained.join().expect("what arrives is whole")
    });
    assert_eq!((region.lost(), region.lost_unowned()), (0, 0));
    let events = (2 * ROUNDS * THREADS * PAIRS) as u32;
    assert!(all.keys().copied().eq(0..events), "each place in the order once: {} of {events}", all.len());
    let (mut now, mut live, mut before) = (0, BTreeMap::new(), 0);
    for r in all.values() {
        let whole = flag::REPORTED | if r.kind == Kind::Alloc as u8 { 0 } else { flag::COMPLETED };
        assert_eq!((r.flags, r.rounded(), r.c, r.a), (whole, r.b, 9, r.b * 512), "{r:?}");
        if r.kind == Kind::Alloc as u8 {
            now += r.b;
            assert!(live.insert(r.a, r.b).is_none(), "{r:?}");
        } else {
            now -= r.b;
            assert_eq!((r.kind, live.remove(&r.a)), (Kind::FreeRequested as u8, Some(r.b)), "{r:?}");
        }
        assert_eq!((r.allocated, r.reserved), (now, 1 << 30), "{r:?}");
        assert!(r.ticks >= before, "times are in the device's order: {r:?}");
        before = r.ticks;
    }
    assert_eq!((now, live.len()), (0, 0));
    assert_ne!(TIME_AT.load(Relaxed), UNUSABLE, "the short ways were gone");
}

/// A thread in PyTorch's lock, and one that gets blocks from CUDA itself: a number that is given twice would move what follows it.
#[test]
fn no_number_is_given_twice_beside_blocks_of_cudas_own() {
    const DEVICE: u8 = 101;
    const EACH: u32 = 200_000;
    let mut all = vec![next_sequence_of_many(DEVICE)];
    std::thread::scope(|s| {
        let other = s.spawn(|| (0..EACH).map(|_| next_sequence_of_many(DEVICE)).collect::<Vec<_>>());
        all.extend((0..EACH).map(|_| next_sequence(DEVICE as i8)));
        all.extend(other.join().expect("it ends"));
    });
    all.sort_unstable();
    assert!(all.windows(2).all(|w| w[0] + 1 == w[1]), "each number once");
}
