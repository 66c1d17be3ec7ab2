//! Pinned memory of the host that grows with every step, on made-up jobs; and jobs that are nearly like it.

use crate::notes::{judged, none, note};
use crate::random::Random;
use crate::script::{MAIN, Script};
use strandline::detect::{Kind, Outcome, Severity};
use strandline::event::{Addr, Body, Bytes, DeviceId, Item, Nanos, RuntimeOp, StackId};

const MIB: u64 = 1 << 20;

/// Pinned memory, as PyTorch asks for it: in powers of two, and what is let go of is kept and used again (`cached`).
struct Pins {
    s: Script,
    cached: bool,
    free: Vec<(u64, u64)>,
    next: u64,
}

impl Pins {
    fn new(cached: bool) -> Pins {
        Pins { s: Script::new(), cached, free: Vec::new(), next: 1 << 40 }
    }

    fn call(&mut self, op: RuntimeOp, addr: u64, size: u64, line: u32) {
        let (addr, size, stack) = (Addr(addr), Bytes(size), StackId(line));
        self.s.say(1, Body::Runtime { op, device: DeviceId(0), addr, size, stream: MAIN, stack });
    }

    fn pin(&mut self, mib: u64, line: u32) -> (u64, u64) {
        let size = (mib * MIB).next_power_of_two();
        if let Some(at) = self.free.iter().position(|f| f.1 == size) {
            return self.free.swap_remove(at);
        }
        self.next += 1 << 32;
        self.call(RuntimeOp::HostAlloc, self.next, size, line);
        (self.next, size)
    }

    fn let_go(&mut self, block: (u64, u64)) {
        match self.cached {
            true => self.free.push(block),
            false => self.call(RuntimeOp::HostFree, block.0, 0, 0),
        }
    }

    /// Each step pins some, and holds no more than so many of what it and those before it have pinned. `each` says both.
    fn run(cached: bool, steps: u64, mut each: impl FnMut(u64) -> (Vec<u64>, usize)) -> Pins {
        let (mut p, mut held) = (Pins::new(cached), std::collections::VecDeque::new());
        for i in 0..steps {
            let (sizes, most) = each(i);
            sizes.iter().for_each(|mib| held.push_back(p.pin(*mib, 1)));
            while held.len() > most {
                held.pop_front().into_iter().for_each(|b| p.let_go(b));
            }
            p.s.idle_step();
        }
        p
    }
}

const ALL: usize = usize::MAX;

#[test]
fn what_grows_with_every_step_is_told_with_its_line() {
    let j = judged(&Pins::run(true, 40, |_| (vec![2, 5], ALL)).s);
    let f = note(&j, Kind::PinnedGrowth);
    // What the last two steps pinned may be let go of yet.
    assert_eq!((f.bytes_now, f.blocks_now, f.first_step), (38 * 10 * MIB, 76, 1), "{f:?}");
    assert_eq!((f.bytes_per_step, f.severity), ((10 * MIB) as f64, Severity::Info));
    assert_eq!(j.lines(&f), ["/job/a.py:f:1"]);
    for words in ["since step 1", "380 MiB", "in 38 steps", "not slowed down", "400 MiB"] {
        assert!(f.explain.contains(words), "{words}: {}", f.explain);
    }
    assert_eq!((j.outcome(), f.detected_step < 30), (Outcome::Clean, true), "no memory of a GPU: {f:?}");
    // Every fifth step, and from the thirtieth step on.
    let slow = judged(&Pins::run(true, 140, |i| (if i % 5 == 0 { vec![8] } else { vec![] }, ALL)).s);
    assert!((note(&slow, Kind::PinnedGrowth).bytes_per_step / MIB as f64 - 1.6).abs() < 0.1);
    let late = judged(&Pins::run(true, 60, |i| (vec![8; 4], if i < 30 { 4 } else { ALL })).s);
    assert!((31..48).contains(&note(&late, Kind::PinnedGrowth).detected_step));
}

/// Of a program that gives it all back as it ends, too: whether its last step has been seen to end before that or not.
#[test]
fn what_is_given_back_at_the_end_was_there() {
    for by_optimizer in [true, false] {
        let mut p = Pins::new(false);
        for _ in 0..40 {
            p.pin(8, 1);
            if !by_optimizer {
                p.s.idle_step();
                continue;
            }
            p.s.alloc(1, MIB, MAIN, 2);
            p.s.free(1, MIB, MAIN);
            [
                Body::BackwardBegin { stack: StackId(2), nested: false },
                Body::BackwardEnd { nested: false },
                Body::OptimizerBegin(7),
                Body::OptimizerEnd(7),
            ]
            .into_iter()
            .for_each(|b| p.s.say(0, b));
        }
        (1..=40).for_each(|i| p.call(RuntimeOp::HostFree, (1 << 40) + (i << 32), 0, 0));
        p.s.items.push(Item::End(Nanos(p.s.now + 1)));
        let j = judged(&p.s);
        assert_eq!((j.replay.steps(), j.replay.calls().pinned.now), (40, Bytes(0)));
        assert!(note(&j, Kind::PinnedGrowth).blocks_now >= 37);
    }
}

#[test]
fn what_fills_a_cache_and_stays_is_not_told() {
    type Each = fn(u64) -> (Vec<u64>, usize);
    let healthy: [(&str, Each); 7] = [
        ("batches in flight, more of them at first", |i| (vec![64], (i as usize + 1).min(8))),
        ("growing batches that end", |i| (vec![16 + 8 * i.min(40)], 3)),
        ("a larger last batch", |i| (vec![if i % 10 == 9 { 200 } else { 64 }], 2)),
        ("an evaluation, whose results are kept up to its end", |i| match i % 10 {
            9 => (vec![32; 20], 1),
            _ => (vec![64], 1),
        }),
        ("kept for an epoch", |i| (vec![16], (i % 10) as usize)),
        ("pinned once", |i| (vec![64; if i == 0 { 40 } else { 0 }], ALL)),
        ("too little for a word", |_| (vec![1], ALL)),
    ];
    for (what, each) in healthy {
        for cached in [true, false] {
            let j = judged(&Pins::run(cached, 60, each).s);
            assert_eq!(j.first, None, "{what}: {:?}", j.standing());
        }
    }
    // A buffer that fills is told while it does.
    let j = judged(&Pins::run(true, 60, |i| (vec![16; if i < 30 { 1 } else { 0 }], ALL)).s);
    assert!(j.first.is_some_and(|f| f.0 == Kind::PinnedGrowth && f.1 < 30), "{:?}", j.first);
    none(&j, Kind::PinnedGrowth);
}

/// Tensors of many sizes, as many of them held at once as it happens, growing at first or not: PyTorch's cache has room for all of them
/// in the end.
#[test]
fn batches_of_any_size_are_not_told() {
    for seed in 0..400 {
        let mut r = Random::new(seed);
        let (tensors, most, flight) = (r.between(1, 8), r.between(8, 512), r.between(1, 16));
        let ramp = r.choice(&[1, 1, 30, 60]);
        let p = Pins::run(true, 160, |i| {
            let top = 1 + most * i.min(ramp) / ramp;
            let sizes = (0..tensors).map(|_| r.between(1, top)).collect();
            (sizes, (tensors * r.between(1, flight)) as usize)
        });
        let j = judged(&p.s);
        assert_eq!(j.first, None, "seed {seed}: {:?}", j.standing());
    }
}

/// What was pinned across lost records may have been given back: it grows from then on, or not at all.
#[test]
fn what_was_pinned_across_a_loss_is_not_told() {
    for (after, want) in [(20, None), (40, Some(41))] {
        let mut p = Pins::new(true);
        for i in 0..40 + after {
            if i == 40 {
                p.s.say(0, Body::Gap { lost: 1 });
            }
            p.pin(16, 1);
            p.s.idle_step();
        }
        let j = judged(&p.s);
        match want {
            Some(first) => assert_eq!(note(&j, Kind::PinnedGrowth).first_step, first),
            None => none(&j, Kind::PinnedGrowth),
        }
    }
}
