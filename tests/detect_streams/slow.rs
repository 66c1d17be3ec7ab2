//! Leaks that take their time.

use crate::judged::{CARD, Judged};
use crate::script::{MAIN, Script};
use strandline::detect::{Outcome, Severity, judge};

/// 500 steps of a job that leaks so many bytes at every `every`th step, beside activations that breathe and a block that is
/// replaced at each step.
fn job(every: u64, bytes: u64) -> Judged {
    let mut s = Script::new();
    for step in 0..500u64 {
        let breath = (step * 7 % 11 + 1) << 24;
        s.alloc(1, breath, MAIN, 2);
        s.alloc(2 + step % 2, 64 << 20, MAIN, 2);
        if step > 0 {
            s.free(2 + (step + 1) % 2, 64 << 20, MAIN);
        }
        if step % every == every - 1 {
            s.alloc(1000 + step, bytes, MAIN, 1);
        }
        s.free(1, breath, MAIN);
        s.step();
    }
    Judged::of(&s.items, &s.names)
}

/// What fills the card within 10,000 steps is a warning within 500, however it is portioned.
#[test]
fn a_leak_that_fills_the_card_in_10_000_steps_is_a_warning_within_500() {
    for every in [1, 3, 10, 25, 50] {
        let j = job(every, (CARD * every).div_ceil(10_000));
        let worst = j.worst.as_ref();
        assert!(worst.is_some_and(|w| w.0 >= Severity::Warning), "every {every}: {worst:?}");
        println!("every {every}: {} at step {}", worst.map_or("", |w| w.0.name()), worst.map_or(0, |w| w.1));
    }
    // A hundredth of it is none, and what does not leak is nothing.
    let slow = job(1, CARD / 1_000_000);
    assert!(slow.worst.as_ref().is_none_or(|w| w.0 == Severity::Info), "{:?}", slow.worst);
    let flat = job(1000, 0);
    assert_eq!(flat.worst, None);
    // The first line of a clean report tells the two apart.
    let first = |j: &Judged| judge(&j.replay, &j.detector);
    let (slow, flat) = (first(&slow), first(&flat));
    assert_eq!((slow.outcome, flat.outcome), (Outcome::Clean, Outcome::Clean));
    assert!(
        slow.reason.starts_with("in 500 steps nothing grew fast enough to matter: the most, "),
        "{slow:?}"
    );
    assert_eq!(flat.reason, "no line left more and more memory behind in 500 steps");
}
