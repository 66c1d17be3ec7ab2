//! What a job tells little of: growth in three steps only, and lines that nobody knows.

use crate::judged::Judged;
use crate::script::{MAIN, Script};
use strandline::detect::{Certainty, Keeper, Owner, Testimony};

const SIZE: u64 = 1 << 20;

/// A job of so many steps that keeps `blocks` of them in each of these.
fn evaluations(steps: u64, each: &[(u64, u64)]) -> Judged {
    let mut s = Script::new();
    for i in 1..=steps {
        let blocks = each.iter().find(|(step, _)| *step == i).map_or(0, |e| e.1);
        (0..blocks).for_each(|n| s.alloc((i * 16 + n) * (SIZE / 512), SIZE, MAIN, 1));
        s.idle_step();
    }
    Judged::of(&s.items, &s.names)
}

/// What is said of it where this is known of who keeps the blocks.
fn told(mut j: Judged, keeper: Option<Keeper>) -> Vec<Certainty> {
    let keepers: Vec<Keeper> = keeper.into_iter().collect();
    j.detector.hear(|_| Testimony { keepers: keepers.clone(), known: None });
    j.standing().iter().map(|f| f.certainty).collect()
}

fn list(entries: u64) -> Option<Keeper> {
    Some(Keeper {
        path: "results".into(),
        kind: "list".into(),
        length_now: Some(entries),
        ..Keeper::default()
    })
}

#[test]
fn three_evaluations_that_are_all_kept_grow_where_a_container_has_them() {
    let kept = || evaluations(130, &[(40, 8), (80, 8), (120, 8)]);
    assert_eq!(told(kept(), None), [Certainty::Note], "nobody knows who keeps them");
    assert_eq!(told(kept(), list(3)), [Certainty::Growing]);
    let ends = |k: Keeper| told(kept(), Some(k));
    let three = || list(3).unwrap_or_default();
    assert_eq!(ends(Keeper { shrank: true, ..three() }), [Certainty::Note]);
    assert_eq!(ends(Keeper { bound: Some(5), ..three() }), [Certainty::Note]);
    assert_eq!(ends(Keeper { owner: Owner::Module, ..three() }), [Certainty::Note]);
    assert_eq!(ends(Keeper { length_now: None, ..three() }), [Certainty::Note], "it is no container");
    let f = kept();
    assert_eq!(f.standing()[0].headline(), "memory grows every 40 steps");
}

#[test]
fn a_fourth_that_leaves_nothing_is_the_end_of_it() {
    let stops = |steps| told(evaluations(steps, &[(40, 8), (80, 8), (120, 8)]), list(3));
    assert_eq!((stops(180).len(), stops(210).len()), (1, 0));
    assert_eq!(
        told(evaluations(210, &[(40, 8), (80, 8), (120, 8), (160, 8), (200, 8)]), None),
        [Certainty::Growing]
    );
}

#[test]
fn what_comes_less_or_out_of_turn_is_no_growth_of_three() {
    for (each, why) in [
        (vec![(40, 8), (80, 4), (120, 4)], "a cache that fills"),
        (vec![(40, 8), (60, 8), (120, 8)], "at no fixed time"),
        (vec![(2, 8), (6, 8), (10, 8)], "as the job begins"),
        (vec![(40, 8), (80, 8)], "two are no row"),
    ] {
        assert_eq!(told(evaluations(130, &each), list(3)), [], "{why}");
    }
}

#[test]
fn without_stacks_a_models_weights_are_no_part_of_what_grows() {
    for weight in [SIZE, 4 * SIZE] {
        let mut s = Script::new();
        (0..4).for_each(|n| s.alloc((1 << 20) + n * 8 * (SIZE / 512), weight, MAIN, 0));
        for i in 1..=40 {
            // A gradient, which is there until the next one, and what is kept.
            s.alloc((1 << 24) + i % 2 * 64 * (SIZE / 512), weight, MAIN, 0);
            if i > 1 {
                s.free((1 << 24) + (i - 1) % 2 * 64 * (SIZE / 512), weight, MAIN);
            }
            s.alloc(i * (SIZE / 512), SIZE, MAIN, 0);
            s.step();
        }
        let judged = Judged::of(&s.items, &s.names);
        let f = judged.standing().into_iter().find(|f| f.grows()).expect("it grows");
        assert!((37..=40).contains(&f.blocks_now) && f.bytes_now == f.blocks_now * SIZE, "{weight}: {f:?}");
    }
}

/// The line's first matrix product made a workspace that is as large as what it returns, from the same stack.
#[test]
fn a_workspace_as_large_as_what_is_kept_is_no_part_of_it() {
    // It keeps in every step, or in every third step, from the first on or later.
    for (every, from) in [(1, 0), (3, 0), (3, 2)] {
        let mut s = Script::new();
        s.alloc(1 << 20, SIZE, MAIN, 1);
        for i in 0..60 {
            if i % every == 0 && i >= from {
                (0..2).for_each(|n| s.alloc((16 + 2 * i + n) * (SIZE / 512), SIZE, MAIN, 1));
            }
            s.idle_step();
        }
        let judged = Judged::of(&s.items, &s.names);
        let f = judged.standing()[0];
        let births = f.evidence.iter().find(|e| e.what.starts_with("number of steps")).map(|e| e.value);
        assert_eq!(Some(f.blocks_now as f64), births.map(|n| 2.0 * n), "{every}: {}", f.explain);
    }
}
