//! What a job does after its last step: the memory that its training left is freed, and the training grew all the same.

use crate::judged::Judged;
use crate::script::{MAIN, Script};
use strandline::detect::{Outcome, judge};
use strandline::event::{Body, Item, Nanos};

const SIZE: u64 = 64 << 10;

/// A training that keeps a block in each of so many steps, then frees `parts` of three of them, and goes on with so many steps more and an
/// evaluation.
fn training(steps: u64, more: u64, parts: u64) -> Judged {
    let mut s = Script::new();
    for i in 0..steps + more {
        s.alloc(1, 1 << 20, MAIN, 2);
        if i < steps {
            s.alloc(10_000 + i * 1_000, SIZE, MAIN, 1);
        }
        s.free(1, 1 << 20, MAIN);
        s.say(0, Body::BackwardBegin { stack: Default::default(), nested: false });
        s.say(0, Body::BackwardEnd { nested: false });
        s.say(0, Body::OptimizerBegin(1));
        s.say(0, Body::OptimizerEnd(1));
        if i + 1 == steps {
            (0..steps).filter(|i| i % 3 < parts).for_each(|i| s.free(10_000 + i * 1_000, SIZE, MAIN));
        }
    }
    for _ in 0..20 {
        s.alloc(1, 1 << 20, MAIN, 2);
        s.free(1, 1 << 20, MAIN);
    }
    s.items.push(Item::End(Nanos(s.now + 1)));
    Judged::of(&s.items, &s.names)
}

#[test]
fn what_is_freed_as_the_training_returns_grew_until_then() {
    for (parts, all) in [(3, "all"), (2, "most")] {
        let j = training(40, 0, parts);
        let standing = j.standing();
        assert_eq!((j.outcome(), standing.len()), (Outcome::Growing, 1), "{standing:#?}");
        let begins =
            format!("at the end of step 39, the last one before the job freed {all} of this memory: ");
        assert!(standing[0].explain.starts_with(&begins), "{}", standing[0].explain);
    }
}

#[test]
fn what_is_freed_while_the_training_goes_on_grows_no_longer() {
    for more in [1, 5, 40] {
        let j = training(40, more, 3);
        assert_eq!(j.outcome(), Outcome::Clean, "{more}: {:#?}", j.standing());
    }
}

/// A training that keeps a block in each of 40 steps, then does nothing for so many nanoseconds, and ends.
#[test]
fn what_a_job_does_after_its_last_step_is_no_part_of_how_long_a_step_takes() {
    let of = |idle: u64| {
        let mut s = Script::new();
        for i in 0..40 {
            s.alloc(10_000 + i * 1_000, SIZE, MAIN, 1);
            s.say(0, Body::BackwardBegin { stack: Default::default(), nested: false });
            s.say(0, Body::BackwardEnd { nested: false });
            s.say(0, Body::OptimizerBegin(1));
            s.say(0, Body::OptimizerEnd(1));
            s.now += 10_000_000;
        }
        s.now += idle;
        s.free(10_000, SIZE, MAIN);
        s.items.push(Item::End(Nanos(s.now + 1)));
        let j = Judged::of(&s.items, &s.names);
        j.standing()[0].seconds_to_oom.expect("the pace is known").mid
    };
    assert_eq!(of(0), of(12_000_000_000));
}

#[test]
fn more_memory_than_in_any_step_is_told_where_it_comes_after_the_last_one() {
    let of = |seconds: u64, size: u64| {
        let mut s = Script::new();
        (0..20).for_each(|_| s.step());
        s.alloc(1, 4 << 20, MAIN, 2);
        s.free(1, 4 << 20, MAIN);
        (0..20).for_each(|_| s.step());
        s.alloc(2, size, MAIN, 2);
        s.now += seconds * 1_000_000_000;
        s.free(2, size, MAIN);
        s.items.push(Item::End(Nanos(s.now + 1)));
        let j = Judged::of(&s.items, &s.names);
        judge(&j.replay, &j.detector).reason
    };
    let reason = of(3, 80 << 20);
    assert!(reason.contains("The time after the last step (3 seconds) was not judged"), "{reason}");
    for reason in [of(0, 80 << 20), of(3, 1 << 20)] {
        assert!(!reason.contains("was not judged"), "{reason}");
    }
}
