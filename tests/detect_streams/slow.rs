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

/// What leaks is named by its fifth block, however it is portioned and however little it is; how soon it fills the card is told
/// as far ahead as it was seen for.
#[test]
fn a_leak_is_named_by_its_fifth_block_whatever_it_takes_of_the_card() {
    for (part, least) in [(10_000, Severity::Warning), (1_000_000, Severity::Info)] {
        for every in [1, 3, 10, 25, 50] {
            let j = job(every, (CARD * every).div_ceil(part));
            let (kind, step) = j.first.expect("it is named");
            assert!(u64::from(step) <= 5 * every + 3, "{kind:?}, every {every}: at step {step}");
            let worst = j.worst.as_ref().map_or(Severity::Info, |w| w.0);
            assert!(worst >= least, "every {every}: {worst:?}");
            let said = judge(&j.replay, &j.detector);
            assert_eq!(said.outcome, Outcome::Growing, "every {every}: {}", said.reason);
        }
    }
    // What does not leak is nothing, and how much would have been is told.
    let flat = job(1000, 0);
    assert_eq!((flat.worst.clone(), flat.first), (None, None));
    let said = judge(&flat.replay, &flat.detector);
    assert_eq!(
        (said.outcome, said.reason.as_str()),
        (
            Outcome::Clean,
            "no line of code kept more and more GPU memory in 500 steps (steady growth above 4 KiB a step would have been found)"
        )
    );
}

/// A long run is not judged at every mark: what leaks late in it is named some marks later than in a short one.
#[test]
fn what_leaks_late_in_a_long_run_is_named_soon() {
    let (late, mut s) = (80_000u64, Script::new());
    for step in 0..late + 100 {
        s.alloc(1, 1 << 20, MAIN, 2);
        s.free(1, 1 << 20, MAIN);
        if step >= late {
            s.alloc(1000 + step * 8, 4096, MAIN, 1);
        }
        s.step();
    }
    let (_, step) = Judged::of(&s.items, &s.names).first.expect("it is named");
    assert!((80_004..80_020).contains(&step), "at step {step}");
}
