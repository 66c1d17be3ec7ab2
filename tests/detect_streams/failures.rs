//! Allocations that fail: what of, told from made-up jobs.

use crate::judged::Judged;
use crate::script::{MAIN, Script};
use serde_json::json;
use strandline::detect::{Cause, Outcome, PostMortem, judge, post_mortem};
use strandline::event::{Block, Body, DeviceId, Item, Nanos, Phase, PoolId, StackId};

const GIB: u64 = 1 << 30;

/// A job that reserves, and fails with so much live and waiting, after steps that needed 4 GiB each.
struct Failing {
    reserved: u64,
    live: u64,
    waiting: u64,
    /// Blocks that the step which failed allocated and freed before.
    freed: u64,
    requested: u64,
    free: u64,
    steps: u64,
    phase: Phase,
}

const FULL: Failing = Failing {
    reserved: 22 * GIB,
    live: 21 * GIB,
    waiting: 0,
    freed: 0,
    requested: 2 * GIB,
    free: GIB / 10,
    steps: 15,
    phase: Phase::from_bits(0),
};

fn fail(f: &Failing) -> (Judged, PostMortem) {
    let at = |gib: u64| (1 + gib) * (GIB / 512);
    let mut s = Script::new();
    for i in 0..f.reserved / GIB {
        s.take(at(i), GIB, MAIN, PoolId::DEFAULT);
    }
    for _ in 0..f.steps {
        (0..4).for_each(|i| s.alloc(at(i), GIB, MAIN, 2));
        (0..4).for_each(|i| s.free(at(i), GIB, MAIN));
        s.step();
    }
    if f.steps > 0 {
        s.say(0, Body::OptimizerEnd(1));
    }
    let (live, all) = (f.live / GIB, (f.live + f.waiting) / GIB);
    for i in live..all {
        let b = Script::block(at(i), GIB, MAIN, 2);
        s.say(0, Body::Alloc(b));
        s.say(0, Body::FreeRequested(b));
    }
    for _ in 0..f.freed {
        s.alloc(at(0), GIB, MAIN, 1);
        s.free(at(0), GIB, MAIN);
    }
    for i in 0..live {
        s.say(0, Body::Alloc(Block { phase: f.phase, ..Script::block(at(i), GIB, MAIN, 1) }));
    }
    match f.phase.optimizer {
        true => s.fail_in_optimizer(f.requested, f.free),
        false => s.fail(f.requested, f.free),
    }
    let j = Judged::of(&s.items, &s.names);
    let m = post_mortem(&j.replay, DeviceId(0)).expect("it failed");
    (j, m)
}

/// What failed last was caught where the process ends by itself with 0; what is said of it otherwise stays.
#[test]
fn a_failure_in_the_last_step_of_a_job_that_ends_well_was_caught() {
    for (status, outcome) in [(0, Outcome::Clean), (1, Outcome::Oom)] {
        let mut s = Script::new();
        (0..40).for_each(|_| s.idle_step());
        s.fail(2 * GIB, GIB / 10);
        s.items.push(Item::Meta(json!({ "ended": "exit", "exit_status": status })));
        s.items.push(Item::End(Nanos(s.now + 1)));
        let j = Judged::of(&s.items, &s.names);
        assert_eq!(j.outcome(), outcome, "status {status}");
        assert_eq!(post_mortem(&j.replay, DeviceId(0)).map(|m| m.median_need), Some(Some(1 << 20)));
    }
}

#[test]
fn blocks_that_the_failed_step_freed_are_not_counted_for_earlier_steps() {
    let (_, m) = fail(&Failing { freed: 30, ..FULL });
    let words = "; one line allocated 51 blocks in this step, and none in earlier steps";
    assert!(m.explain.ends_with(words), "{}", m.explain);
}

#[test]
fn causes_are_told_apart() {
    let optimizer = Phase { optimizer: true, ..Phase::default() };
    let evaluation = Phase { no_grad: true, ..Phase::default() };
    for (f, cause, words) in [
        (
            FULL,
            Cause::Batch,
            "step 16 needed 5.8× as much memory as a typical step (it needed at least 23.0 GiB",
        ),
        (
            Failing { live: 10 * GIB, ..FULL },
            Cause::Fragmentation,
            "in 12 pieces, and the largest has 1.0 GiB",
        ),
        (
            Failing { reserved: 6 * GIB, live: 5 * GIB, ..FULL },
            Cause::Outside,
            "17.9 GiB of the GPU is used outside of PyTorch (other processes on this GPU, or libraries in this process",
        ),
        (Failing { free: 5 * GIB, ..FULL }, Cause::Limit, "the card had 5.0 GiB free when 2.0 GiB was"),
        (Failing { live: 5 * GIB, waiting: 16 * GIB, ..FULL }, Cause::Waiting, "16.0 GiB was freed"),
        (
            Failing { requested: 4 << 40, ..FULL },
            Cause::Request,
            "one request of 4 TiB, more than the card has (4 TiB was requested",
        ),
        (
            Failing { steps: 0, ..FULL },
            Cause::Loading,
            "the model, or other data loaded before the first step, does not fit (2.0 GiB was requested",
        ),
        (Failing { steps: 0, phase: optimizer, ..FULL }, Cause::Optimizer, "when 21.0 GiB was already"),
        (Failing { phase: evaluation, ..FULL }, Cause::Evaluation, "needed at least 23.0 GiB on top"),
        (Failing { steps: 1, ..FULL }, Cause::Full, "too few to rule out a leak"),
        // Pieces that are enough for the request, and too little for the step.
        (Failing { steps: 1, requested: GIB / 20 * 21, ..FULL }, Cause::Full, "too few to rule out a leak"),
    ] {
        let (j, m) = fail(&f);
        let v = judge(&j.replay, &j.detector);
        assert_eq!((m.cause, v.outcome), (cause, Outcome::Oom), "{} {}", m.short, m.explain);
        assert!(v.reason.contains(words), "{words}: {}", v.reason);
        let scene = j.replay.device(DeviceId(0)).and_then(|d| d.scene.clone()).expect("a picture");
        assert_eq!(scene.cached.0, f.reserved - f.live - f.waiting);
        assert_eq!((scene.holders.len(), scene.holders[0].bytes.0), (1, f.live));
    }
}

#[test]
fn a_request_that_alone_is_more_than_other_steps_need_may_be_of_no_batch() {
    let (_, m) =
        fail(&Failing { reserved: 4 * GIB, live: 3 * GIB, free: 19 * GIB, requested: 22 * GIB, ..FULL });
    assert!(m.cause == Cause::Batch && m.remedy.starts_with("check the size of the tensor"), "{m:?}");
    let (_, m) = fail(&FULL);
    assert!(!m.remedy.starts_with("check the size of the tensor"), "{m:?}");
}

/// What is loaded second by second is no growth when it fills the card; what asks at another line loads no more, and what grows beside work that is freed does grow.
#[test]
fn what_a_job_loads_before_its_first_step_does_not_grow() {
    const SECOND: u64 = 1_000_000_000;
    for (computes, line, cause, outcome) in [
        (false, 1, Cause::Loading, Outcome::Oom),
        (false, 2, Cause::Full, Outcome::Oom),
        (true, 1, Cause::Full, Outcome::Growing),
    ] {
        let mut s = Script::new();
        s.take(0, 23 * GIB, MAIN, PoolId::DEFAULT);
        for i in 0..20u64 {
            s.alloc(1 + i * (GIB / 512), GIB, MAIN, 1);
            if computes {
                (0..4).for_each(|_| {
                    s.alloc(40 * (GIB / 512), GIB / 2, MAIN, 2);
                    s.free(40 * (GIB / 512), GIB / 2, MAIN);
                });
            }
            s.now += SECOND;
        }
        s.fail_at(StackId(line), 4 * GIB, GIB / 10);
        s.items.push(Item::Meta(json!({ "ended": "exit", "exit_status": 1 })));
        s.items.push(Item::End(Nanos(s.now + 1)));
        let j = Judged::of(&s.items, &s.names);
        let m = post_mortem(&j.replay, DeviceId(0)).expect("it failed");
        assert_eq!(
            (m.cause, j.outcome()),
            (cause, outcome),
            "line {line}, computes: {computes}: {}",
            m.explain
        );
        assert_eq!(j.standing().is_empty(), !computes, "line {line}, computes: {computes}");
    }
}

/// Growth that had not been seen for long enough to be called a leak, but without which there had been room, is not
/// called none.
#[test]
fn growth_that_filled_the_card_before_it_could_be_judged_is_no_no_leak() {
    for (grows, outcome) in [(true, Outcome::Growing), (false, Outcome::Oom)] {
        let mut s = Script::new();
        for i in 0..9u64 {
            s.alloc((2 + i) * (4 * GIB / 512), if grows { 2 * GIB } else { 512 }, MAIN, 1);
            s.step();
        }
        s.take(0, 22 * GIB, MAIN, PoolId::DEFAULT);
        s.fail(3 * GIB, GIB);
        assert_eq!(Judged::of(&s.items, &s.names).outcome(), outcome);
    }
}

/// A failure that the job catches is not what it ends of, whichever thread it was on, and however soon the job ends after it; one in
/// its last step is.
#[test]
fn what_was_caught_does_not_name_the_job() {
    let backward = Phase { backward: true, ..Phase::default() };
    for (phase, goes_on, outcome) in [
        (Phase::default(), true, Outcome::Clean),
        (backward, true, Outcome::Clean),
        (Phase::default(), false, Outcome::Oom),
        (backward, false, Outcome::Oom),
    ] {
        let mut s = Script::new();
        let step = |s: &mut Script| {
            let blocks = || (0..4u64).map(|i| Script::block(1 + i * (GIB / 512), GIB, MAIN, 2));
            blocks().for_each(|b| s.say(0, Body::Alloc(b)));
            blocks().for_each(|b| s.say(0, Body::FreeRequested(b)));
            blocks().for_each(|b| s.say(0, Body::FreeCompleted(b)));
        };
        for _ in 0..15 {
            step(&mut s);
            s.step();
        }
        let b = Block { phase, ..Script::block(1, 16 * GIB, MAIN, 1) };
        s.say(0, Body::Alloc(b));
        s.fail(12 * GIB, 8 * GIB);
        s.say(0, Body::FreeRequested(b));
        s.say(0, Body::FreeCompleted(b));
        if goes_on {
            step(&mut s);
            s.step();
        }
        let j = Judged::of(&s.items, &s.names);
        assert_eq!(j.outcome(), outcome, "{phase:?}, goes on: {goes_on}");
    }
}

/// Where a clock ends the steps, they go on while a job that has failed unwinds and ends.
#[test]
fn seconds_that_pass_while_a_job_unwinds_are_no_life_after_its_failure() {
    const SECOND: u64 = 1_000_000_000;
    let mut s = Script::new();
    for i in 0..14 {
        s.alloc(1 + i, 512, MAIN, 1);
        s.now += SECOND;
    }
    s.fail(12 * GIB, GIB);
    for i in 0..14 {
        s.now += SECOND / 4;
        s.free(1 + i, 512, MAIN);
    }
    s.items.push(Item::Meta(json!({ "ended": "exit", "exit_status": 1 })));
    s.items.push(Item::End(Nanos(s.now + 1)));
    let j = Judged::of(&s.items, &s.names);
    assert!(j.replay.steps() > 14, "seconds passed: {}", j.replay.steps());
    assert_eq!(j.outcome(), Outcome::Oom);
}
