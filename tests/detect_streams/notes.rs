//! Each kind of note on a made-up job, and a job that is nearly like it and gets none.

use crate::judged::Judged;
use crate::script::{MAIN, SIDE, Script};
use strandline::detect::{Finding, Kind, Outcome, Severity};
use strandline::event::{Addr, Block, Body, DeviceId, Item, Nanos, Phase, PoolId, StreamHandle};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MAIN_POOL: PoolId = PoolId::DEFAULT;

/// Blocks lie apart by this much, in units of 512 bytes.
const APART: u64 = 1 << 24;

fn place(i: u64) -> u64 {
    (i + 1) * APART
}

pub(crate) fn judged(s: &Script) -> Judged {
    let j = Judged::of(&s.items, &s.names);
    assert_eq!(j.replay.inconsistencies(), []);
    j
}

/// The one note of this kind.
#[track_caller]
pub(crate) fn note(j: &Judged, kind: Kind) -> Finding {
    let found: Vec<&Finding> = j.standing().into_iter().filter(|f| f.kind == kind).collect();
    assert_eq!(found.len(), 1, "{kind:?} among {:?}", j.standing());
    found[0].clone()
}

#[track_caller]
pub(crate) fn none(j: &Judged, kind: Kind) {
    assert!(j.standing().iter().all(|f| f.kind != kind), "{:?}", j.standing());
}

/// Four streams, each used once, as a transfer that makes a stream for every call does. `again`: they go on.
fn one_shot_streams(again: bool, pool: PoolId) -> Judged {
    let mut s = Script::new();
    for i in 0..24u64 {
        let stream = StreamHandle(4096 + i % 4);
        let at = place(i % 4);
        if i < 4 {
            s.take(at, 512 * MIB, stream, pool);
        }
        if i < 4 || again {
            let block = Block { pool, ..Script::block(at, 512 * MIB, stream, 1) };
            [Body::Alloc(block), Body::FreeRequested(block), Body::FreeCompleted(block)]
                .into_iter()
                .for_each(|b| s.say(0, b));
        }
        s.idle_step();
    }
    judged(&s)
}

#[test]
fn cache_of_streams_that_are_used_no_more_is_stranded() {
    for pool in [MAIN_POOL, PoolId(0, 3)] {
        let f = note(&one_shot_streams(false, pool), Kind::StrandedCache);
        assert_eq!((f.bytes_now, f.blocks_now, f.severity), (2 * GIB, 4, Severity::Info));
        assert_eq!((f.bytes_per_step, f.first_step), (0.0, 1), "no other stream follows");
        assert!(
            f.explain.contains("4 streams") && f.explain.contains("when memory runs short"),
            "{}",
            f.explain
        );
    }
    none(&one_shot_streams(true, MAIN_POOL), Kind::StrandedCache);
    let captured = one_shot_streams(false, PoolId(3, 0));
    none(&captured, Kind::StrandedCache);
    assert_eq!(note(&captured, Kind::OpaquePool).bytes_now, 2 * GIB);
    none(&one_shot_streams(false, PoolId(0, 3)), Kind::OpaquePool);
}

#[test]
fn cache_of_a_stream_is_not_stranded_where_no_other_allocates() {
    let mut s = Script::new();
    for i in 0..4 {
        s.take(place(i), 512 * MIB, MAIN, MAIN_POOL);
        s.alloc(place(i), 512 * MIB, MAIN, 1);
    }
    s.step();
    (0..4).for_each(|i| s.free(place(i), 512 * MIB, MAIN));
    (0..24).for_each(|_| s.step());
    none(&judged(&s), Kind::StrandedCache);
    for _ in 0..24 {
        s.on_side(place(9), MIB, 2);
        s.free(place(9), MIB, SIDE);
        s.step();
    }
    assert_eq!(note(&judged(&s), Kind::StrandedCache).bytes_now, 2 * GIB);
}

/// Ten segments with a small block in each; `young`: another one in each step. `empty`: none.
fn pinned(young: bool, empty: bool) -> Judged {
    let mut s = Script::new();
    for i in 0..10 {
        s.take(place(i), 256 * MIB, MAIN, MAIN_POOL);
    }
    s.take(1, 2 * MIB, MAIN, MAIN_POOL);
    for step in 0..20 {
        for i in (0..10).filter(|_| !empty && (young || step == 0)) {
            if step > 0 {
                s.free(place(i), 16 * MIB, MAIN);
            }
            s.alloc(place(i), 16 * MIB, MAIN, 1);
        }
        s.idle_step();
    }
    judged(&s)
}

#[test]
fn segments_that_small_old_blocks_pin_are_named() {
    let j = pinned(false, false);
    let f = note(&j, Kind::Fragmentation);
    assert_eq!((f.bytes_now, f.blocks_now, j.lines(&f)[0].as_str()), (2400 * MIB, 10, "/job/a.py:f:1"));
    assert!(f.explain.contains("10 old blocks (160 MiB) in 10 segments"), "{}", f.explain);
    assert_eq!(j.outcome(), Outcome::Clean);
    none(&pinned(true, false), Kind::Fragmentation);
    none(&pinned(false, true), Kind::Fragmentation);
}

/// Steps until the card is full, of a leak of 64 MiB a step beside ten segments of 256 MiB. `pins`: an old block lies in each. `inside`: what
/// leaks comes to lie in them.
fn full_after(pins: bool, inside: bool) -> u64 {
    let mut s = Script::new();
    for i in 0..10 {
        s.take(place(i), 256 * MIB, MAIN, MAIN_POOL);
        if pins {
            s.alloc(place(i), 16 * MIB, MAIN, 2);
        }
    }
    s.take(1, 2 * MIB, MAIN, MAIN_POOL);
    for step in 0..30 {
        let apart = place(100 + step);
        let at = if inside { place(step / 3) + (1 + step % 3) * (64 * MIB / 512) } else { apart };
        if !inside {
            s.take(apart, 64 * MIB, MAIN, MAIN_POOL);
        }
        s.alloc(at, 64 * MIB, MAIN, 1);
        s.idle_step();
    }
    let j = judged(&s);
    let grows = j.standing().into_iter().find(|f| f.kind == Kind::StepGrowth);
    grows.and_then(|f| f.steps_to_oom).expect("a forecast").mid
}

/// Ten pieces of 240 MiB are 37 steps of the leak.
#[test]
fn pieces_that_a_leak_does_not_use_and_torch_cannot_give_back_are_no_room() {
    let whole = full_after(false, false);
    let pinned = full_after(true, false);
    assert!((36..=43).contains(&(whole - pinned)), "{whole} with free segments, {pinned} with pinned ones");
    assert!(full_after(true, true) + 5 > whole, "what leaks uses them: {}", full_after(true, true));
}

#[test]
fn what_piles_up_and_vanishes_at_once_is_told_from_a_queue() {
    // Where the collector can be seen, what something else has freed is no garbage of its.
    for (queue, seen, want) in [(false, false, true), (true, false, false), (false, true, false)] {
        let mut s = Script::new();
        let mut live = std::collections::VecDeque::new();
        for i in 0..36 {
            live.push_back(place(i));
            let phase = Phase { collector: seen && i == 0, ..Phase::default() };
            s.say(0, Body::Alloc(Block { phase, ..Script::block(place(i), 64 * MIB, MAIN, 1) }));
            let gone = if queue {
                live.len().saturating_sub(8)
            } else if i % 11 == 10 {
                live.len()
            } else {
                0
            };
            live.drain(..gone).for_each(|a| s.free(a, 64 * MIB, MAIN));
            s.step();
        }
        let j = judged(&s);
        assert!(j.worst.as_ref().is_none_or(|w| w.0 == Severity::Info), "{:?}", j.worst);
        if want {
            assert!(note(&j, Kind::CycleGarbage).explain.contains("3 times"));
        } else {
            none(&j, Kind::CycleGarbage);
        }
    }
}

/// What the collector frees: ten blocks of 7 MiB at a time, too little to be a habit that is worth a note.
fn cycles(by_collector: bool, leak: bool) -> Judged {
    let mut s = Script::new();
    s.line(3);
    let mut live = Vec::new();
    for i in 0..40 {
        live.push(place(2 * i));
        s.alloc(place(2 * i), 7 * MIB, MAIN, 1);
        if leak {
            s.alloc(place(2 * i + 1), 64 * MIB, MAIN, 3);
        }
        if i % 12 == 11 {
            for at in live.drain(..) {
                let phase = Phase { collector: by_collector, ..Phase::default() };
                let b = Block { phase, ..Script::block(at, 7 * MIB, MAIN, 0) };
                s.say(0, Body::FreeRequested(b));
                s.say(0, Body::FreeCompleted(b));
            }
        }
        s.step();
    }
    judged(&s)
}

#[test]
fn what_the_collector_was_seen_to_free_is_cycle_garbage() {
    let j = cycles(true, false);
    let f = note(&j, Kind::CycleGarbage);
    assert!(f.explain.contains("the collector freed 30 blocks (210 MiB)"), "{}", f.explain);
    assert!(f.explain.contains("up to 70 MiB at once"), "{}", f.explain);
    assert_eq!((j.outcome(), j.first), (Outcome::Clean, j.first.filter(|f| f.1 <= 12)), "{:?}", j.first);
    none(&cycles(false, false), Kind::CycleGarbage);
    // A leak beside it is told all the same, and without the garbage.
    let j = cycles(true, true);
    note(&j, Kind::CycleGarbage);
    let leak = note(&j, Kind::StepGrowth);
    assert_eq!(j.lines(&leak), ["/job/a.py:f:3"]);
}

/// A leak that fills the card in about 150 steps, of a job whose collector is seen from its first allocation on; it makes a
/// full collection in step `at`.
fn leak_and_collector(at: Option<u64>, size: u64) -> Judged {
    let mut s = Script::new();
    for i in 0..30 {
        let phase = Phase { collector: i == 0 || Some(i) == at, ..Phase::default() };
        s.say(0, Body::Alloc(Block { phase, ..Script::block(place(i), size, MAIN, 1) }));
        s.step();
    }
    judged(&s)
}

#[test]
fn what_no_collection_has_outlived_is_at_most_a_warning_until_the_card_is_nearly_full() {
    let severity = |j: &Judged| {
        let f = note(j, Kind::StepGrowth);
        (f.severity, f.explain.contains("Python has not run a full garbage collection"))
    };
    assert_eq!(severity(&leak_and_collector(None, 150 * MIB)), (Severity::Warning, true));
    assert_eq!(severity(&leak_and_collector(Some(20), 150 * MIB)), (Severity::Alert, false));
    // It may be garbage, but no collection will come in time.
    assert_eq!(severity(&leak_and_collector(None, 500 * MIB)), (Severity::Alert, true));
}

#[test]
fn what_stays_on_a_side_stream_is_a_note_where_it_does_not_grow() {
    for (size, grows, want) in [(200, false, true), (20, false, false), (200, true, false)] {
        let mut s = Script::new();
        for i in 0..20 {
            if i == 0 || grows {
                s.on_side(place(i), size * MIB, 1);
            }
            s.idle_step();
        }
        let j = judged(&s);
        if want {
            let f = note(&j, Kind::ResidentOnSideStream);
            assert!(f.stream.is_some_and(|s| s.side && s.handle == SIDE));
            assert_eq!((f.bytes_now, j.outcome()), (200 * MIB, Outcome::Clean));
        } else {
            none(&j, Kind::ResidentOnSideStream);
        }
    }
}

#[test]
fn state_that_an_optimizer_makes_once_is_a_note() {
    for (once, want) in [(true, true), (false, false)] {
        let mut s = Script::new();
        for i in 0..20 {
            if i == 1 || !once {
                let phase = Phase { optimizer: true, ..Phase::default() };
                s.say(0, Body::Alloc(Block { phase, ..Script::block(place(i), 200 * MIB, MAIN, 1) }));
            }
            s.idle_step();
        }
        let j = judged(&s);
        if want {
            let f = note(&j, Kind::LazyState);
            assert_eq!((f.bytes_now, f.first_step), (200 * MIB, 2));
        } else {
            none(&j, Kind::LazyState);
        }
    }
}

#[test]
fn memory_that_goes_to_the_driver_and_back_is_pressure() {
    for (size, steps, words) in
        [(20, 0..20, Some("nearly full")), (4, 0..20, Some("empty_cache")), (20, 0..5, None)]
    {
        let mut s = Script::new();
        s.take(place(0), size * GIB, MAIN, MAIN_POOL);
        for i in 0..20 {
            if steps.contains(&i) {
                s.give_back(place(0), size * GIB, MAIN, MAIN_POOL);
                s.take(place(0), size * GIB, MAIN, MAIN_POOL);
            }
            s.idle_step();
        }
        let j = judged(&s);
        match words {
            Some(words) => {
                let f = note(&j, Kind::AllocatorPressure);
                assert!(f.explain.contains(words), "{}", f.explain);
            }
            None => none(&j, Kind::AllocatorPressure),
        }
    }
}

#[test]
fn what_is_live_at_the_end_is_told_where_nothing_else_can_be() {
    for (steps, want) in [(3, true), (20, false)] {
        let mut s = Script::new();
        s.alloc(place(0), 200 * MIB, MAIN, 1);
        (0..steps).for_each(|_| s.idle_step());
        none(&judged(&s), Kind::LiveAtExit);
        s.items.push(Item::End(Nanos(s.now + 1)));
        let j = judged(&s);
        if want {
            assert_eq!(note(&j, Kind::LiveAtExit).bytes_now, 200 * MIB);
        } else {
            none(&j, Kind::LiveAtExit);
        }
    }
}

/// Frees that wait for two streams. `done`: for two steps only.
fn deferred(size: u64, done: bool) -> Judged {
    let mut s = Script::new();
    let other = StreamHandle(704);
    let free = |s: &mut Script, i: u64| {
        let b = Script::block(place(i), size, MAIN, 0);
        s.say(0, Body::FreeCompleted(b));
    };
    for i in 0..30 {
        s.alloc(place(i), size, MAIN, 1);
        let b = Script::block(place(i), size, MAIN, 0);
        s.say(0, Body::FreeRequested(b));
        let stream = if i % 3 == 0 { other } else { SIDE };
        s.say(0, Body::FreeWaits { device: DeviceId(0), addr: Addr(place(i) * 512), stream });
        if done && i >= 2 {
            free(&mut s, i - 2);
        }
        s.step();
    }
    judged(&s)
}

#[test]
fn frees_that_wait_name_their_streams_and_warn_where_they_fill_the_card() {
    let slow = deferred(8 * MIB, false);
    let f = note(&slow, Kind::DeferredFree);
    assert_eq!((f.severity, slow.outcome(), f.bytes_now), (Severity::Info, Outcome::Growing, 240 * MIB));
    assert!(f.explain.contains("stream 2 (160 MiB) and stream 1 (80 MiB)"), "{}", f.explain);
    let fast = deferred(512 * MIB, false);
    assert_eq!(
        (note(&fast, Kind::DeferredFree).severity, fast.outcome()),
        (Severity::Warning, Outcome::Growing)
    );
    let fine = deferred(512 * MIB, true);
    none(&fine, Kind::DeferredFree);
    assert_eq!(fine.outcome(), Outcome::Clean);
}

/// A leak of a job whose steps a clock ends (`every`: in seconds, as `--steps every` does), which is freed when the job ends: in the last
/// second that it works in and the one after. Or which is given up a while before: `idle` seconds.
#[test]
fn a_leak_that_is_freed_on_the_way_out_was_one() {
    const SECOND: u64 = 1_000_000_000;
    let cases = [(false, 0, Outcome::Growing), (false, 30, Outcome::Clean), (true, 0, Outcome::Growing)];
    for (every, idle, want) in cases {
        let mut s = Script::new();
        let tick = |s: &mut Script| {
            if every && s.now / SECOND > s.steps {
                s.steps += 1;
                s.say(0, Body::ManualStep(s.steps));
            }
        };
        for i in 0..80 {
            s.now += SECOND / 4;
            tick(&mut s);
            s.alloc(place(i), 64 * MIB, MAIN, 1);
            s.alloc(place(100), 32 * MIB, MAIN, 2);
            s.free(place(100), 32 * MIB, MAIN);
        }
        for i in 0..80 {
            s.now += SECOND / 50;
            tick(&mut s);
            s.free(place(i), 64 * MIB, MAIN);
        }
        s.items.push(Item::End(Nanos(s.now + idle * SECOND + 1)));
        let j = judged(&s);
        assert_eq!(j.outcome(), want, "{:#?}", j.detector.findings());
    }
}

/// A server without steps goes by seconds. One that was too short to judge is told how many of them are missing, not how many steps.
#[test]
fn a_job_without_steps_is_too_short_by_seconds() {
    const SECOND: u64 = 1_000_000_000;
    let mut s = Script::new();
    for i in 0..32 {
        s.now += SECOND / 4;
        s.alloc(place(i), 64 * MIB, MAIN, 1);
        s.free(place(i), 64 * MIB, MAIN);
    }
    s.items.push(Item::End(Nanos(s.now + 1)));
    let j = judged(&s);
    let reason = strandline::detect::judge(&j.replay, &j.detector).reason;
    assert!(reason.contains("at least 12 are needed to say NO LEAK"), "{reason}");
}
