//! Private pools, and memory outside PyTorch, that become more with every step, on made-up jobs; and jobs that are nearly like it.

use crate::judged::{CARD, Judged};
use crate::notes::{judged, none, note};
use crate::random::Random;
use crate::script::{MAIN, Script};
use strandline::detect::{Certainty, Finding, Kind, Outcome, Severity};
use strandline::event::{Addr, Block, Body, Bytes, DeviceId, Item, NativeFrame, PoolId, RuntimeOp, StackId};

const MIB: u64 = 1 << 20;

/// A job of so many steps. `pools`: the pools that a step allocates in, by number, and whether each gives its memory back. Those of graphs
/// are named as PyTorch names them.
fn job(steps: u64, of_graphs: bool, mut pools: impl FnMut(u64) -> Vec<(u64, bool)>) -> Script {
    let (mut s, mut has) = (Script::new(), std::collections::BTreeSet::new());
    for i in 1..=steps {
        for (n, goes) in pools(i) {
            let pool = if of_graphs { PoolId(n, 0) } else { PoolId(0, n) };
            let at = (n + 1) << 24;
            if has.insert(n) {
                s.take(at, 20 * MIB, MAIN, pool);
            }
            let block = Block { pool, ..Script::block(at, 16 * MIB, MAIN, 1) };
            [Body::Alloc(block), Body::FreeRequested(block), Body::FreeCompleted(block)]
                .into_iter()
                .for_each(|b| s.say(0, b));
            if goes {
                s.give_back(at, 20 * MIB, MAIN, pool);
                has.remove(&n);
            }
        }
        s.idle_step();
    }
    s
}

/// The growth, and that it makes the verdict.
#[track_caller]
fn grows(j: &Judged) -> Finding {
    let found = note(j, Kind::PoolGrowth);
    assert_eq!((found.certainty, j.outcome()), (Certainty::Growing, Outcome::Growing), "{found:?}");
    found
}

#[test]
fn a_pool_more_in_every_step_is_growth_on_every_card() {
    for of_graphs in [true, false] {
        let found = grows(&judged(&job(60, of_graphs, |i| vec![(i, false)])));
        assert_eq!((found.first_step, found.bytes_per_step), (1, 20.0 * MIB as f64), "{found:?}");
        assert_eq!(found.bytes_now, 60 * 20 * MIB);
        let left = (CARD - 60 * 20 * MIB) / (20 * MIB);
        let steps = found.steps_to_oom.expect("the size of the card is known");
        assert!(steps.low < left && left < steps.high && steps.mid.abs_diff(left) <= 2, "{left}: {steps:?}");
        assert_eq!(
            found.severity,
            Severity::Warning,
            "graphs that are gone give back what they had: no alert"
        );
        assert_eq!(found.explain.contains("memory of deleted graphs"), of_graphs, "{}", found.explain);
    }
}

#[test]
fn a_pool_more_in_every_tenth_step_is_growth_as_well() {
    let found = grows(&judged(&job(200, true, |i| if i % 10 == 1 { vec![(i, false)] } else { Vec::new() })));
    assert_eq!(found.bytes_per_step, 2.0 * MIB as f64, "{found:?}");
}

#[test]
fn pools_that_are_reused_given_back_or_made_at_once_do_not_grow() {
    let three = |i: u64| vec![(1 + i % 3, false)];
    let given_back = |i: u64| vec![(i, true)];
    let at_once = |i: u64| if i == 5 { (1..40).map(|n| (n, false)).collect() } else { Vec::new() };
    let at_first = |i: u64| if i <= 20 { vec![(i, false)] } else { Vec::new() };
    for of_graphs in [true, false] {
        none(&judged(&job(60, of_graphs, three)), Kind::PoolGrowth);
        none(&judged(&job(60, of_graphs, given_back)), Kind::PoolGrowth);
        none(&judged(&job(60, of_graphs, at_once)), Kind::PoolGrowth);
        none(&judged(&job(60, of_graphs, at_first)), Kind::PoolGrowth);
    }
}

/// A graph for each of so many shapes, which come by chance: a new one comes ever more rarely.
#[test]
fn a_graph_for_each_shape_is_no_growth_once_most_shapes_have_come() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let shapes = 2 + random.below(30);
        // Some shapes are rare, as long sequences are.
        let skew = 1 + random.below(3);
        let j = judged(&job(u64::from(shapes) * 8 + 40, true, |_| {
            let n = (0..skew).map(|_| random.below(shapes)).min().unwrap_or(0);
            vec![(1 + u64::from(n), false)]
        }));
        none(&j, Kind::PoolGrowth);
        assert_eq!(j.outcome(), Outcome::Clean, "seed {seed}");
    }
}

/// A job in which a library takes 9 MiB in each of these steps, and holds no more than so many of them; of this device.
fn library(steps: u64, most: usize, takes: impl Fn(u64) -> bool) -> Judged {
    let mut s = Script::new();
    s.names.add_native(
        StackId(1),
        vec![NativeFrame { module: "/x/libnccl.so.2".into(), ..NativeFrame::default() }],
    );
    s.items.push(Item::Stack(StackId(1)));
    let mut held = std::collections::VecDeque::new();
    let call = |s: &mut Script, op, addr, size| {
        let (addr, size) = (Addr(addr), Bytes(size));
        s.say(0, Body::Runtime { op, device: DeviceId(0), addr, size, stream: MAIN, stack: StackId(1) });
    };
    for i in 1..=steps {
        if takes(i) {
            let at = (i + 1) << 40;
            call(&mut s, RuntimeOp::Malloc, at, 9 * MIB);
            held.push_back(at);
        }
        while held.len() > most {
            let at = held.pop_front().expect("there is more than that");
            call(&mut s, RuntimeOp::Free, at, 0);
        }
        s.idle_step();
    }
    judged(&s)
}

#[test]
fn what_a_library_takes_with_every_step_and_keeps_is_growth() {
    for every in [1, 3] {
        let j = library(90, usize::MAX, |i| i % every == 0);
        let found = note(&j, Kind::OutsideGrowth);
        assert_eq!((found.certainty, j.outcome()), (Certainty::Growing, Outcome::Growing), "{found:?}");
        let per_step = found.bytes_per_step * every as f64 / (9 * MIB) as f64;
        assert!((per_step - 1.0).abs() < 0.1 && found.steps_to_oom.is_some(), "{found:?}");
        assert!(found.explain.contains("libnccl.so.2"), "{}", found.explain);
        assert_eq!(j.lines(&found), ["/job/a.py:f:1"]);
    }
}

#[test]
fn what_a_library_takes_at_first_or_gives_back_does_not_grow() {
    for (what, j) in [
        ("workspaces of the first steps", library(90, usize::MAX, |i| i <= 20)),
        ("a buffer for each step", library(90, 0, |_| true)),
        ("the last eight", library(90, 8, |_| true)),
        ("a larger one now and then", library(90, usize::MAX, |i| i.is_power_of_two())),
    ] {
        assert!(j.standing().iter().all(|f| f.kind != Kind::OutsideGrowth), "{what}: {:?}", j.standing());
        assert_eq!(j.outcome(), Outcome::Clean, "{what}");
    }
}
