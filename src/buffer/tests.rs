use super::*;
use crate::event::Room;
use crate::format::raw::{Kind, Record};
use crate::format::region::{Clock, Geometry, Identity, Moment, PART};
use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

const SMALL: Geometry = Geometry { lanes: 4, records: 64, overflow: 64, definitions: 4096 };

fn region(g: Geometry) -> Region {
    let layout = Layout::from_size_align(g.bytes(), PART).unwrap();
    // SAFETY: the size is not 0; the memory is leaked, zeroed and used by nothing else.
    unsafe {
        let base = NonNull::new(alloc_zeroed(layout)).unwrap();
        let who = Identity { pid: 7, start: 8, id: [9, 10] };
        Region::init(base, g.bytes(), g, who, Clock::Tsc, Moment { ticks: 1, mono_ns: 2, unix_ns: 3 })
            .unwrap()
    }
}

fn numbered(n: u64) -> Record {
    Record { ticks: n, a: n * 3, b: !n, kind: Kind::Alloc as u8, ..Record::default() }
}

fn take(drain: &mut Drain, ring: u32) -> Vec<Record> {
    let range = drain.published(ring);
    let (a, b) = drain.records(ring, range.clone());
    let all = [a, b].concat();
    assert_eq!(all.len() as u64, range.end - range.start);
    drain.advance(ring, range.end);
    all
}

#[test]
fn a_region_is_refused_where_it_does_not_fit() {
    let g = SMALL;
    let layout = Layout::from_size_align(g.bytes() + PART, PART).unwrap();
    // SAFETY: the size is not 0.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
    let init = |base, len, g| {
        // SAFETY: leaked zeroed memory that nothing else uses; the lengths given are never longer than it.
        unsafe {
            Region::init(base, len, g, Identity::default(), Clock::Nanoseconds, Moment::default()).err()
        }
    };
    // SAFETY: one byte into an allocation that is larger.
    assert_eq!(init(unsafe { base.add(1) }, g.bytes(), g), Some(RegionError::Misaligned));
    assert_eq!(init(base, g.bytes() - 1, g), Some(RegionError::TooShort));
    assert_eq!(init(base, g.bytes(), Geometry { records: 100, ..g }), Some(RegionError::Geometry));
    assert_eq!(init(base, g.bytes(), g), None);
    assert_eq!(init(base, g.bytes(), g), Some(RegionError::NotZeroed));
}

#[test]
fn an_open_record_is_nobodys_business_until_it_is_published() {
    let r = region(SMALL);
    let (mut lane, mut drain) = (r.claim(u32::MAX).unwrap(), r.drain().unwrap());
    *lane.open().unwrap() = numbered(1);
    assert!(take(&mut drain, 0).is_empty());
    lane.opened().unwrap().set_rounded(512);
    *lane.open().unwrap() = numbered(2);
    let seen = take(&mut drain, 0);
    assert_eq!((seen.len(), seen[0].rounded()), (1, 512));
    lane.publish();
    lane.publish();
    assert!(lane.opened().is_none());
    assert_eq!(take(&mut drain, 0), [numbered(2)]);
}

#[test]
fn a_full_ring_counts_its_loss_and_says_where_it_was() {
    let r = region(SMALL);
    let (mut lane, mut drain) = (r.claim(u32::MAX).unwrap(), r.drain().unwrap());
    let pushed = (0..70).filter(|&n| lane.push(numbered(n))).count();
    assert_eq!((pushed, drain.lost(0), r.lost()), (64, 6, 6));
    drain.advance(0, 1);
    assert!(!lane.push(numbered(70)), "one free slot is not enough for the gap and a record");
    assert_eq!(take(&mut drain, 0).len(), 63);
    assert!(lane.push(numbered(71)));
    let seen = take(&mut drain, 0);
    assert_eq!((seen[0].kind, seen[0].a, seen[0].ticks), (Kind::Gap as u8, 7, 63));
    assert_eq!(seen[1], numbered(71));
    assert_eq!(seen.len(), 2);
}

#[test]
fn lanes_go_round_only_when_they_are_drained() {
    let r = region(SMALL);
    let mut drain = r.drain().unwrap();
    assert!(r.drain().is_none());
    let mut lanes: Vec<Lane> = (0..4).map(|_| r.claim(u32::MAX).unwrap()).collect();
    assert_eq!(lanes.iter().map(Lane::thread).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(r.claim(u32::MAX).is_none());
    let mut gone = lanes.remove(2);
    assert!(gone.announce(5, 77, *b"pt_autograd_0\0\0\0", 16));
    *gone.open().unwrap() = numbered(9);
    gone.release();
    assert!(r.claim(u32::MAX).is_none(), "its records are not drained yet");
    let seen = take(&mut drain, 2);
    assert_eq!((seen[0].kind, seen[0].stack, seen[0].a), (Kind::Thread as u8, 3, 77));
    assert_eq!(&[seen[0].b.to_le_bytes(), seen[0].c.to_le_bytes()].concat(), b"pt_autograd_0\0\0\0");
    assert_eq!(seen[1], numbered(9), "what was open at release is published");
    let again = r.claim(u32::MAX).unwrap();
    assert_eq!((again.thread(), drain.thread(2)), (5, 5));
}

#[test]
fn a_hook_that_a_thread_ended_in_is_not_its_rings_next_owners() {
    let r = region(SMALL);
    let lane = r.claim(u32::MAX).unwrap();
    let hook = lane.hook();
    hook.store(15, Ordering::Relaxed);
    assert_eq!(r.ring(0).hook.load(Ordering::Relaxed), 15, "where the reader looks");
    lane.release();
    assert_eq!(hook.load(Ordering::Relaxed), 0);
    r.note_room(Room::Probe, true);
    r.note_room(Room::Attach, true);
    r.note_room(Room::Attach, false);
    assert_eq!(r.head().rooms.load(Ordering::Relaxed), Room::Probe.bit());
}

#[test]
fn names_are_filled_in_once_for_each_owner() {
    let r = region(SMALL);
    let mut drain = r.drain().unwrap();
    let mut asked = Vec::new();
    let mut name = |drain: &mut Drain| {
        drain.name_threads(|tid| {
            asked.push(tid);
            (tid != 8).then_some(*b"worker\0\0\0\0\0\0\0\0\0\0")
        });
        asked.len()
    };
    let mut lane = r.claim(u32::MAX).unwrap();
    assert_eq!(name(&mut drain), 0, "it has not said who it is");
    lane.announce(1, 7, [0; 16], 0);
    lane.push(numbered(2));
    assert_eq!((name(&mut drain), name(&mut drain)), (1, 1));
    let seen = take(&mut drain, 0);
    assert_eq!((seen[0].b, seen[0].c, seen[1]), (u64::from_le_bytes(*b"worker\0\0"), 0, numbered(2)));
    lane.release();
    let mut lane = r.claim(u32::MAX).unwrap();
    lane.announce(3, 8, [0; 16], 0);
    assert_eq!((name(&mut drain), name(&mut drain)), (2, 2), "one that has ended is not asked for again");
    assert_eq!((take(&mut drain, 0)[0].b, asked), (0, vec![7, 8]));
}

#[test]
fn whoever_lost_the_processor_in_the_shared_ring_is_waited_for() {
    let r = region(SMALL);
    let busy = &r.ring(r.geometry().lanes).busy;
    busy.store(1, Ordering::Relaxed);
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(std::time::Duration::from_micros(500));
            busy.store(0, Ordering::Release);
        });
        assert!(r.overflow().push(numbered(1)));
    });
    assert_eq!(r.lost(), 0);
}

#[test]
fn the_overflow_ring_keeps_its_gap_across_threads() {
    let r = region(SMALL);
    let mut drain = r.drain().unwrap();
    let shared = r.overflow();
    assert_eq!((0..66).filter(|&n| shared.push(numbered(n))).count(), 64);
    assert_eq!(take(&mut drain, 4).len(), 64);
    assert!(shared.push(numbered(66)));
    let seen = take(&mut drain, 4);
    assert_eq!((seen[0].kind, seen[0].a), (Kind::Gap as u8, 2));
    assert_eq!(seen[1], numbered(66));
}

#[test]
fn definitions_wrap_and_are_whole_or_absent() {
    let r = region(SMALL);
    let mut drain = r.drain().unwrap();
    assert!(!r.define(&[]));
    for round in 0..9u8 {
        assert!(r.define(&[round; 1000]));
        let to = drain.defined().end;
        let (a, b) = drain.definitions(to);
        assert_eq!([a, b].concat(), [round; 1000]);
        drain.advance_definitions(to);
    }
    assert!(r.define(&[1; 4000]));
    assert!(!r.define(&[2; 97]));
    assert!(r.define(&[3; 96]));
    assert_eq!(r.lost_definitions(), 2);
}

/// Four threads, two of them on the overflow ring, against a drain: nothing twice, nothing torn, order kept, and what
/// is missing is exactly what the gaps and counters say.
#[test]
fn nothing_is_torn_lost_uncounted_or_seen_twice() {
    const RECORDS: u64 = if cfg!(miri) { 300 } else { 200_000 };
    let r = region(Geometry { lanes: 2, ..SMALL });
    let mut drain = r.drain().unwrap();
    let done = AtomicBool::new(false);
    let mut seen = [0u64; 4];
    let mut last = [None::<u64>; 4];
    let mut told = [0u64; 3];
    let mut pass = |drain: &mut Drain| {
        for ring in 0..3 {
            for rec in take(drain, ring) {
                if rec.kind == Kind::Gap as u8 {
                    assert!(rec.a > told[ring as usize]);
                    told[ring as usize] = rec.a;
                    continue;
                }
                let (thread, n) = ((rec.ticks >> 56) as usize, rec.ticks & (u64::MAX >> 8));
                assert_eq!((rec.a, rec.b, rec.c), (rec.ticks * 3, !rec.ticks, rec.ticks ^ 0x5555), "torn");
                assert!(last[thread].is_none_or(|l| l < n), "order of a thread");
                last[thread] = Some(n);
                seen[thread] += 1;
            }
        }
    };
    let accepted: u64 = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let mut lane = if t < 2 { r.claim(u32::MAX) } else { None };
                s.spawn(move || {
                    let mut accepted = 0u64;
                    for n in 0..RECORDS {
                        let ticks = t << 56 | n;
                        let rec = Record { a: ticks * 3, b: !ticks, ticks, ..Record::default() };
                        accepted += u64::from(match &mut lane {
                            None => r.overflow().push(Record { c: ticks ^ 0x5555, ..rec }),
                            Some(lane) => match lane.open() {
                                Some(slot) => {
                                    *slot = rec;
                                    // Patched while open, as a report does.
                                    lane.opened().unwrap().c = ticks ^ 0x5555;
                                    lane.publish();
                                    true
                                }
                                None => false,
                            },
                        });
                        if n % 50 == 0 {
                            std::thread::yield_now();
                        }
                    }
                    if let Some(lane) = lane {
                        lane.release();
                    }
                    accepted
                })
            })
            .collect();
        let drainer = s.spawn(|| {
            while !done.load(Ordering::Acquire) {
                pass(&mut drain);
                std::thread::yield_now();
            }
            pass(&mut drain);
        });
        let accepted = threads.into_iter().map(|t| t.join().unwrap()).sum();
        done.store(true, Ordering::Release);
        drainer.join().unwrap();
        accepted
    });
    assert_eq!(seen.iter().sum::<u64>(), accepted);
    assert_eq!(accepted + r.lost(), 4 * RECORDS);
    assert!((0..3).all(|i| told[i as usize] <= drain.lost(i)));
}

/// Figures, not a test: `cargo test --release --lib -- --ignored --nocapture cost_of_a_record`.
#[test]
#[ignore = "prints figures; run it in release"]
fn cost_of_a_record() {
    let r = region(Geometry { lanes: 1, records: 1 << 15, overflow: 64, definitions: 4096 });
    let (mut lane, mut drain) = (r.claim(u32::MAX).unwrap(), r.drain().unwrap());
    let mut best = f64::MAX;
    for _ in 0..200 {
        let start = std::time::Instant::now();
        for n in 0..20_000u64 {
            if let Some(slot) = lane.open() {
                *slot = numbered(n);
            }
            if let Some(open) = lane.opened() {
                open.set_rounded(n);
            }
            lane.publish();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / 20_000.0);
        let all = drain.published(0);
        drain.advance(0, all.end);
    }
    assert_eq!(drain.lost(0), 0);
    println!("{best:.1} ns to open, fill, patch and publish a record (2 MiB ring, warm)");
}
