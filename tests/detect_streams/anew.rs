//! What a line makes anew: a block that is larger each time grows; buffers that are replaced, one for one, do not.

use crate::judged::{CARD, Judged};
use crate::script::{MAIN, Script};
use strandline::detect::{Certainty, Finding, Keeper, Outcome, Testimony};
use strandline::event::{Block, Body, Bytes};

const KIB: u64 = 1 << 10;

fn of(s: &Script) -> Judged {
    Judged::of(&s.items, &s.names)
}

fn grows(j: &Judged) -> Vec<&Finding> {
    j.standing().into_iter().filter(|f| f.grows()).collect()
}

/// `cache = torch.cat([cache, new])`: the new one is made before the old one goes.
struct Cache {
    at: u64,
    size: u64,
}

impl Cache {
    fn put(&mut self, s: &mut Script, size: u64) {
        s.alloc(self.at + 10_000, size, MAIN, 1);
        if self.size > 0 {
            s.free(self.at, self.size, MAIN);
        }
        (self.at, self.size) = (self.at + 10_000, size);
    }
}

#[test]
fn a_block_that_is_made_anew_and_larger_in_every_step_grows() {
    let (mut s, mut cache) = (Script::new(), Cache { at: 10_000, size: 0 });
    for i in 1..=40 {
        cache.put(&mut s, i * 256 * KIB);
        s.idle_step();
    }
    let j = of(&s);
    let all = grows(&j);
    assert_eq!((all.len(), j.outcome()), (1, Outcome::Growing), "{all:?}");
    assert!(j.first.is_some_and(|(_, step)| step <= 15), "{:?}", j.first);
    assert_eq!((all[0].bytes_per_step, all[0].bytes_now, all[0].first_step), (262144.0, 39 * 256 * KIB, 2));
    assert!(all[0].explain.contains("freed and allocated again, larger each time: in 39 steps"));
}

/// `deque(maxlen=8)` of what gets larger.
#[test]
fn the_last_few_of_what_gets_larger_grow() {
    let row = |size: &dyn Fn(u64) -> u64, places: u64, steps: u64| {
        let mut s = Script::new();
        for i in 1..=steps {
            s.alloc(10_000 + i * 100_000, size(i), MAIN, 1);
            if let Some(gone) = i.checked_sub(places).filter(|i| *i > 0) {
                s.free(10_000 + gone * 100_000, size(gone), MAIN);
            }
            s.idle_step();
        }
        of(&s)
    };
    let j = row(&|i| i * 64 * KIB, 8, 80);
    let all = grows(&j);
    assert_eq!((all.len(), j.outcome()), (1, Outcome::Growing), "{all:?}");
    assert!(j.first.is_some_and(|(_, step)| step <= 32), "{:?}", j.first);
    let rate = all[0].bytes_per_step / (8 * 64 * KIB) as f64;
    assert!((rate - 1.0).abs() < 0.03, "{rate}");
    assert!(
        all[0].explain.starts_with("8 blocks from this line are freed and allocated again, larger each time")
    );
    assert!(grows(&row(&|_| 64 * KIB, 30, 80)).is_empty(), "a row is filled");
    assert!(grows(&row(&|i| i.min(20) * 64 * KIB, 8, 80)).is_empty(), "up to a bound");
    assert!(grows(&row(&|i| (i % 17 + 1) * 64 * KIB, 8, 160)).is_empty(), "of many sizes");
}

/// While the new one is made the old one is there as well: a step needs twice as much more.
#[test]
fn a_block_that_is_made_anew_fills_the_device_by_twice_its_growth() {
    let (mut s, mut cache) = (Script::new(), Cache { at: 10_000, size: 0 });
    for i in 1..=60 {
        cache.put(&mut s, i << 20);
        s.idle_step();
    }
    let j = of(&s);
    let when = grows(&j)[0].steps_to_oom.expect("the size of the card is known");
    let left = (CARD - (120 << 20)) as f64 / (2 << 20) as f64;
    assert!((when.mid as f64 / left - 1.0).abs() < 0.03, "{when:?}, {left} left");
}

/// What a step needs elsewhere hides that at first: the device is full by twice the growth all the same, unless the old one is freed first.
#[test]
fn a_block_that_is_made_anew_is_there_twice_below_the_peak_as_well() {
    let full_after = |frees_first: bool| {
        let (mut s, mut size) = (Script::new(), 0);
        for i in 1..=60u64 {
            let (old, new) = (i * 10_000, (i + 1) * 10_000);
            if frees_first && size > 0 {
                s.free(old, size, MAIN);
            }
            s.alloc(new, i << 20, MAIN, 1);
            if !frees_first && size > 0 {
                s.free(old, size, MAIN);
            }
            size = i << 20;
            s.alloc(5_000, 200 << 20, MAIN, 2);
            s.free(5_000, 200 << 20, MAIN);
            s.idle_step();
        }
        let j = of(&s);
        assert_eq!(grows(&j)[0].with_others, !frees_first, "the report says why it is full sooner");
        grows(&j)[0].steps_to_oom.expect("the size of the card is known").mid as f64
    };
    let (twice, once) = ((CARD - (120 << 20)) as f64 / 2.0, (CARD - (260 << 20)) as f64);
    let (told_twice, told_once) =
        (full_after(false) * f64::from(1 << 20), full_after(true) * f64::from(1 << 20));
    assert!((told_twice / twice - 1.0).abs() < 0.03, "{told_twice} {twice}");
    assert!((told_once / once - 1.0).abs() < 0.03, "{told_once} {once}");
}

/// `memory = torch.cat([memory, encoder(x)])`, where the encoder's first matmul made two workspaces.
#[test]
fn a_block_that_is_made_anew_beside_workspaces_of_its_line_grows() {
    let (mut s, mut cache) = (Script::new(), Cache { at: 10_000, size: 0 });
    s.alloc(1_000, 8 << 20, MAIN, 1);
    s.alloc(2_000, 1 << 20, MAIN, 1);
    for i in 1..=40 {
        cache.put(&mut s, i * 64 * KIB);
        s.idle_step();
    }
    let j = of(&s);
    let all = grows(&j);
    assert_eq!((all.len(), j.outcome()), (1, Outcome::Growing), "{all:?}");
    assert!(j.first.is_some_and(|(_, step)| step <= 15), "{:?}", j.first);
    assert_eq!((all[0].bytes_per_step, all[0].bytes_now), (65536.0, 39 * 64 * KIB));
}

/// Keys and values of two layers. What is left of a block of the allocator's large pool stays with it where it is less than 1 MiB: of two
/// caches the smaller one may take more.
#[test]
fn what_the_allocator_rounds_up_does_not_hide_it() {
    let (mut s, mut at) = (Script::new(), [10_000, 9_000_000]);
    for i in 1..=60u64 {
        for (layer, at) in (0..).zip(&mut at) {
            let size = i * 128 * KIB;
            let slack = if (i + layer).is_multiple_of(3) { (i * 37 % 8) * 96 * KIB } else { 0 };
            let block = Block { rounded: Bytes(size + slack), ..Script::block(*at + 100_000, size, MAIN, 1) };
            s.say(0, Body::Alloc(block));
            if i > 1 {
                s.free(*at, size - 128 * KIB, MAIN);
            }
            *at += 100_000;
        }
        s.idle_step();
    }
    let j = of(&s);
    let all = grows(&j);
    assert_eq!((all.len(), j.outcome()), (1, Outcome::Growing), "{all:?}");
    assert!(j.first.is_some_and(|(_, step)| step <= 15), "{:?}", j.first);
    assert_eq!((all[0].bytes_per_step, all[0].bytes_now), (262144.0, 59 * 256 * KIB));
}

/// The last so many batches, and answers of many lengths that are put together token by token.
#[test]
fn what_is_made_anew_up_to_a_bound_does_not_grow() {
    let (mut s, mut window) = (Script::new(), Cache { at: 10_000, size: 0 });
    for i in 1..=120 {
        window.put(&mut s, i.min(30) * 256 * KIB);
        s.idle_step();
    }
    assert!(grows(&of(&s)).is_empty());
    let (mut s, mut answer) = (Script::new(), Cache { at: 10_000, size: 0 });
    for (i, length) in [9, 30, 14, 40, 22, 38, 41].into_iter().enumerate() {
        for token in 1..=length {
            answer.put(&mut s, token * 64 * KIB);
            s.idle_step();
        }
        let said = grows(&of(&s)).len();
        assert!(said <= usize::from(i == 1), "answer {i} of {length} tokens");
    }
}

/// Experts' buffers: each is replaced by a larger one when more is routed to it, and there are never more of them.
#[test]
fn buffers_that_are_replaced_one_for_one_do_not_grow() {
    let mut s = Script::new();
    let mut at: Vec<u64> = (0..16).map(|e| 10_000 + e * 100_000).collect();
    at.iter().for_each(|a| s.alloc(*a, 64 * KIB, MAIN, 1));
    for step in 0..60u64 {
        for (e, at) in (0..).zip(&mut at) {
            if (step * 7 + e * 11).is_multiple_of(23 + 2 * e) && step < 40 {
                s.alloc(*at + 1000, 64 * KIB, MAIN, 1);
                s.free(*at, 64 * KIB, MAIN);
                *at += 1000;
            }
        }
        s.idle_step();
        let j = of(&s);
        assert_eq!(grows(&j), Vec::<&Finding>::new(), "step {step}");
    }
}

/// The same line made a workspace of 8 MiB when the job began.
#[test]
fn numbers_kept_at_a_line_that_made_a_workspace_are_no_growth() {
    let mut s = Script::new();
    s.alloc(10_000, 8 << 20, MAIN, 1);
    for i in 0..60 {
        s.alloc(100_000 + i, 512, MAIN, 1);
        s.idle_step();
    }
    let j = of(&s);
    assert_eq!((j.outcome(), j.standing()[0].certainty), (Outcome::Clean, Certainty::Note));
}

/// The same numbers are 3 KiB a step; what that comes to, the length of a step decides.
#[test]
fn numbers_kept_at_thousands_of_steps_a_second_grow() {
    let kept = |step: u64| {
        let mut s = Script::new();
        for i in 0..6_000 {
            (0..3).for_each(|k| s.alloc(10_000 + 2 * (3 * i + k), 1 << 10, MAIN, 1));
            s.steps += 1;
            s.now = s.steps * step;
            s.say(0, Body::ManualStep(s.steps));
        }
        let j = of(&s);
        (j.outcome(), j.standing()[0].certainty)
    };
    assert_eq!(kept(1_000_000), (Outcome::Growing, Certainty::Growing));
    assert_eq!(kept(4_000_000), (Outcome::Clean, Certainty::Note));
}

/// A line was said to grow, and it ended; when it grows again beside another one, which leads, that is all that is said of it.
#[test]
fn a_line_is_part_of_one_finding() {
    let mut s = Script::new();
    for i in 0..30 {
        s.alloc(1_000_000 + i * 200_000, 80 << 20, MAIN, 1);
        s.step();
    }
    (0..30).for_each(|i| s.free(1_000_000 + i * 200_000, 80 << 20, MAIN));
    (0..60).for_each(|_| s.idle_step());
    for i in 0..90 {
        s.alloc(100_000_000 + i * 20, 8 << 10, MAIN, 1);
        s.alloc(200_000_000 + i * 20, 9 << 10, MAIN, 2);
        s.step();
    }
    let j = of(&s);
    assert!(j.first.is_some_and(|(_, step)| step < 30), "{:?}", j.first);
    let of_line = |f: &&Finding| j.lines(f).iter().any(|l| l.ends_with(":1"));
    let all = j.detector.findings().iter().filter(of_line).map(|f| j.lines(f)).collect::<Vec<_>>();
    assert_eq!(all.len(), 1, "{all:?}");
}

/// `deque(maxlen=1000)`, which the probe counted after the step that is reported.
#[test]
fn how_large_what_is_bounded_will_be_is_known_from_the_whole_recording() {
    let judged = |steps: u32, looked_at: u32| {
        let mut s = Script::new();
        for i in 0..u64::from(steps) {
            s.alloc(10_000 + i * 100_000, 1 << 20, MAIN, 1);
            s.idle_step();
        }
        let deque = Keeper {
            kind: "deque".into(),
            bound: Some(1000),
            length_then: Some(12),
            length_now: Some(60),
            looked: Some((60, looked_at)),
            blocks: 12,
            ..Keeper::default()
        };
        let mut j = of(&s);
        j.detector.hear(|_| Testimony { keepers: vec![deque.clone()], known: None });
        j
    };
    let bytes = |j: &Judged| j.standing()[0].bound.as_ref().expect("a bound").bytes;
    let (mut then, whole) = (judged(20, u32::MAX), judged(60, 60));
    assert_eq!((bytes(&then), bytes(&whole)), (None, Some(1000 << 20)));
    then.detector.take_bounds(whole.detector.findings());
    assert_eq!(bytes(&then), Some(1000 << 20));
}
