//! What looks like growth at one line and is none, what is growth though the line belongs to an optimizer, and since when it is.

use crate::judged::Judged;
use crate::script::{MAIN, Script};
use strandline::detect::Outcome;
use strandline::event::{Block, Body, Item, Nanos, Phase};

const SIZE: u64 = 1 << 20;

/// A pool whose blocks line 1 made, and of which line 2 replaces one in every fourth step; where `freed` is false it keeps all.
fn pool(freed: bool) -> Script {
    let mut s = Script::new();
    (0..40).for_each(|i| s.alloc((1 + i) << 12, SIZE, MAIN, 1));
    for i in 0..100u64 {
        if i % 4 == 3 {
            s.alloc((100 + i) << 12, SIZE, MAIN, 2);
            if freed {
                s.free((1 + i / 4) << 12, SIZE, MAIN);
            }
        }
        s.step();
    }
    s
}

#[test]
fn blocks_that_take_the_place_of_another_lines_are_no_growth() {
    let s = pool(true);
    let j = Judged::of(&s.items, &s.names);
    assert_eq!((j.outcome(), j.standing().len()), (Outcome::Clean, 0));
    assert!(j.detector.findings().is_empty(), "at no step: {:?}", j.detector.findings());
    let s = pool(false);
    let j = Judged::of(&s.items, &s.names);
    assert_eq!((j.outcome(), j.lines(j.standing()[0])), (Outcome::Growing, vec!["/job/a.py:f:2".into()]));
}

/// What a line made once, long before, is not what it has kept since.
#[test]
fn growth_begins_where_it_goes_on_from() {
    let mut s = Script::new();
    s.alloc(1 << 30, 8 * SIZE, MAIN, 1);
    for i in 0..160u64 {
        if i >= 100 {
            s.alloc((1 + i) << 12, SIZE, MAIN, 1);
        }
        s.step();
    }
    let j = Judged::of(&s.items, &s.names);
    let f = j.standing()[0];
    assert_eq!((f.first_step, f.blocks_now, f.bytes_now), (101, 58, 58 * SIZE), "{}", f.explain);
}

/// State is made lazily, once for each weight: a hook of the step keeps more than that.
#[test]
fn what_a_hook_of_an_optimizer_keeps_grows() {
    let outcome = |each: u64| {
        let mut s = Script::new();
        (0..60).for_each(|i| s.alloc((1 + i) << 12, SIZE, MAIN, 2));
        for i in 0..60u64 {
            let phase = Phase { optimizer: true, ..Phase::default() };
            let kept = Block { phase, ..Script::block((100 + i) << 20, each, MAIN, 1) };
            s.say(0, Body::Alloc(kept));
            s.step();
        }
        Judged::of(&s.items, &s.names).outcome()
    };
    assert_eq!(outcome(SIZE), Outcome::Clean, "a state for each of 60 weights");
    assert_eq!(outcome(60 * SIZE), Outcome::Growing, "as much as all weights, in each step");
}

/// Steps that each put a block where one of `room` steps before was, which is freed then: a ring, such as `ring[i % room] = x`.
fn ring(room: u64, steps: u64) -> Judged {
    let mut s = Script::new();
    for i in 0..steps {
        s.alloc(10_000 + i * 1_000, SIZE, MAIN, 1);
        if i >= room {
            s.free(10_000 + (i - room) * 1_000, SIZE, MAIN);
        }
        s.say(0, Body::BackwardBegin { stack: Default::default(), nested: false });
        s.say(0, Body::BackwardEnd { nested: false });
        s.say(0, Body::OptimizerBegin(1));
        s.say(0, Body::OptimizerEnd(1));
    }
    s.items.push(Item::End(Nanos(s.now + 1)));
    Judged::of(&s.items, &s.names)
}

#[test]
fn a_ring_that_is_full_grows_no_longer_once_half_of_it_was_replaced() {
    for (room, steps) in [(12, 24), (25, 40), (60, 95)] {
        let j = ring(room, steps);
        assert_eq!(j.outcome(), Outcome::Clean, "{room}: {:#?}", j.standing());
    }
    assert_eq!(ring(60, 50).outcome(), Outcome::Growing);
}
