//! What a job does after its last step: the memory that its training left is freed, and the training grew all the same.

use crate::judged::Judged;
use crate::script::{MAIN, Script};
use strandline::detect::Outcome;
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
        let begins = format!("at the end of the last step, before the job freed {all} of this memory: ");
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
