//! Judgements on jobs of which every event is written here.

use crate::judged::{CARD, Judged, events};
use crate::load;
use crate::page;
use crate::script::{MAIN, SIDE, Script, event, is_mark};
use strandline::detect::{Detector, Finding, Kind, Outcome, Policy, Severity};
use strandline::event::steps::StepMachine;
use strandline::event::{
    Block, Body, Bytes, Checkpoint, DeviceId, EventHandle, Item, LiveBlock, Names, Nanos, Phase, PoolId,
    StackId, StreamHandle,
};
use strandline::replay::{Held, Replay};

/// A script that clears its holders at the end, and goes on allocating, does not withdraw the verdict.
#[test]
fn what_is_freed_after_the_last_step_changes_nothing() {
    let job = load::load(&events().join("d_losslist_graph.events.gz"), CARD);
    let last = job.items.iter().rposition(is_mark).expect("a mark");
    let mut items = job.items[..=last].to_vec();
    let before = Judged::of(&items, &job.names);
    let mut asked_late = Detector::new(Policy::default());
    let live: Vec<Block> = before.replay.blocks(DeviceId(0)).map(|h| h.block).collect();
    for b in live {
        for body in [Body::FreeRequested(b), Body::FreeCompleted(b)] {
            items.push(event(Nanos(u64::MAX / 2), 0, body));
        }
    }
    let after = Judged::of(&items, &job.names);
    assert_eq!(after.replay.devices().next().map(|d| d.allocated), Some(Bytes(0)));
    assert_eq!(before.standing(), after.standing());
    asked_late.at_step(&after.replay);
    let said = |d: &Detector| {
        d.findings().iter().map(|f| (f.kind, f.first_step, f.sites[0].site)).collect::<Vec<_>>()
    };
    assert_eq!(said(&asked_late), said(&before.detector), "also when it is asked only then");
    assert_eq!(after.outcome(), Outcome::Growing);
}

/// A step ends with the first allocation of the next one, whose segment has come just before.
#[test]
fn the_next_steps_first_segment_is_not_reserved_in_a_step() {
    const MIB: u64 = 1 << 20;
    let mut s = Script::new();
    for i in 0..6 {
        s.take((1 + i) << 12, 2 * MIB, MAIN, PoolId::default());
        s.alloc((1 + i) << 12, MIB, MAIN, 1);
        s.say(0, Body::OptimizerBegin(1));
        s.say(0, Body::OptimizerEnd(1));
    }
    let judged = Judged::of(&s.items, &s.names);
    let device = judged.replay.devices().next().expect("a device");
    let rows: Vec<u64> = device.rows.iter().map(|r| r.reserved.0 / MIB).collect();
    assert_eq!(rows, (1..=rows.len() as u64).map(|n| 2 * n).collect::<Vec<_>>());
    assert!(rows.len() >= 5 && device.reserved == Bytes(12 * MIB), "{rows:?}");
}

/// The first matrix product at a line makes cuBLAS's workspace, and the line keeps that as well: it is no part of what the line leaks.
/// Where sizes never come again, the first block is one like the others.
#[test]
fn what_a_line_allocates_once_is_no_part_of_what_it_leaks() {
    const MIB: u64 = 1 << 20;
    let leak = |workspace: bool, size: &dyn Fn(u64) -> u64| {
        let mut s = Script::new();
        if workspace {
            s.alloc(1 << 30, 8 * MIB + (128 << 10), MAIN, 1);
        }
        for i in 0..30 {
            s.alloc((1 + i) << 20, size(i), MAIN, 1);
            s.say(0, Body::OptimizerBegin(1));
            s.say(0, Body::OptimizerEnd(1));
        }
        s.alloc(1 << 31, 512, MAIN, 9);
        let judged = Judged::of(&s.items, &s.names);
        let f = judged.standing()[0];
        (f.blocks_now, f.bytes_now, f.once.len())
    };
    assert_eq!(leak(true, &|_| MIB), (28, 28 * MIB, 1));
    assert_eq!(leak(false, &|_| MIB), (28, 28 * MIB, 0));
    let all = (0..28).map(|i| MIB + i * 512).sum();
    assert_eq!(leak(false, &|i| MIB + i * 512), (28, all, 0));
}

/// The plainest loop of all ends with its optimizer's step, and Python then frees everything: the last step ended before that.
#[test]
fn a_python_that_ends_frees_nothing_in_its_last_step() {
    const SIZE: u64 = 256 << 20;
    let mut s = Script::new();
    s.alloc(1, SIZE, MAIN, 2);
    for i in 0..20 {
        s.alloc((2 + i) * (SIZE / 512), SIZE, MAIN, 1);
        s.say(0, Body::OptimizerBegin(1));
        s.say(0, Body::OptimizerEnd(1));
    }
    s.free(1, SIZE, MAIN);
    (0..20).for_each(|i| s.free((2 + i) * (SIZE / 512), SIZE, MAIN));
    s.items.push(Item::End(Nanos(s.now + 1)));
    let j = Judged::of(&s.items, &s.names);
    assert_eq!((j.replay.steps(), j.outcome()), (20, Outcome::Growing));
    let d = j.replay.devices().next().expect("a device");
    assert_eq!((d.rows.len(), d.rows[19].allocated, d.allocated), (20, Bytes(21 * SIZE), Bytes(0)));
    assert!(j.replay.cohorts().iter().all(|c| c.live.bytes == 0 && c.allocs == c.frees));
    let f = j.standing()[0];
    assert_eq!((f.withdrawn_step, j.lines(f)[0].as_str()), (None, "/job/a.py:f:1"));
    // The page shows the same end, whether the recording says that it ended or the process was killed.
    for last in [s.items.len(), s.items.len() - 1] {
        let page = String::from_utf8(page::page(&s.items[..last], &s.names)).expect("text");
        let (_, data) = page.split_once(r#"type="application/json">"#).expect("data");
        let (data, _) = data.split_once("</script>").expect("an end");
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        let chart = &data["charts"][0][0];
        // Columns have what each number is more than the one before; `[n, times]` is many of the same.
        let at_last = |column: &serde_json::Value| -> u64 {
            let all = column.as_array().expect("a column");
            let times = |n: &serde_json::Value| n[1].as_i64().unwrap_or(1);
            assert_eq!(all.iter().map(times).sum::<i64>(), 20, "a point for each step");
            let more = |n: &serde_json::Value| n[0].as_i64().or(n.as_i64()).expect("a number");
            all.iter().map(|n| times(n) * more(n)).sum::<i64>() as u64
        };
        assert_eq!(
            (at_last(&chart["allocated"]), &chart["end"]["allocated"]),
            (21 * SIZE, &(21 * SIZE).into())
        );
        assert_eq!((at_last(&chart["steps"]), at_last(&chart["left"])), (20, 18 * SIZE));
        let classes = chart["classes"].as_array().expect("classes");
        let of = |name: &str| classes.iter().find(|c| c["name"] == name).map(|c| at_last(&c["bytes"]));
        assert_eq!(of("left_behind"), Some(18 * SIZE), "{classes:?}");
    }
}

/// The oldest pages of a long recording are dropped: what lives at the checkpoint tells first steps and
/// rates, and a queue is still no leak.
#[test]
fn a_verdict_survives_the_loss_of_the_oldest_pages() {
    let leak = |s: &mut Script, i: u64| s.alloc(1000 + i, 300 << 20, MAIN, 1);
    let queue = |s: &mut Script, i: u64| {
        s.alloc(1000 + i, 300 << 20, MAIN, 1);
        if i >= 20 {
            s.free(1000 + i - 20, 300 << 20, MAIN);
        }
    };
    let at_checkpoint = |step: &dyn Fn(&mut Script, u64)| {
        let (mut head, mut tail) = (Script::new(), Script::new());
        (0..30).for_each(|i| {
            step(&mut head, i);
            head.step();
        });
        let before = Judged::of(&head.items, &head.names);
        let mut machine = StepMachine::default();
        for i in &head.items {
            if let Item::Event(e) = i {
                machine.feed(e);
            }
        }
        let live = |h: &Held| LiveBlock {
            block: h.block,
            born: h.born,
            step: h.step,
            microbatch: h.microbatch,
            ..LiveBlock::default()
        };
        let state = Checkpoint {
            steps: 30,
            microbatches: before.replay.microbatches(),
            events: before.replay.events(),
            step_machine: machine.save(),
            blocks: before.replay.blocks(DeviceId(0)).map(live).collect(),
            ..Checkpoint::default()
        };
        tail.items.push(Item::Checkpoint(Box::new(state)));
        (tail.steps, tail.now) = (head.steps, head.now);
        let begin = Judged::of(&tail.items, &tail.names);
        (30..36).for_each(|i| {
            step(&mut tail, i);
            tail.step();
        });
        (begin, Judged::of(&tail.items, &tail.names))
    };
    let (begin, end) = at_checkpoint(&leak);
    assert_eq!(begin.standing(), Vec::<&Finding>::new(), "what lives may be a queue");
    let f = end.standing()[0];
    assert_eq!((f.kind, f.severity, f.first_step), (Kind::StepGrowth, Severity::Alert, 1));
    assert!((f.bytes_per_step / (300u64 << 20) as f64 - 1.0).abs() < 0.05);
    let (begin, end) = at_checkpoint(&queue);
    assert_eq!((begin.standing(), end.standing()), (Vec::new(), Vec::new()));
}

/// A line that calls `step()` is that of the optimizer's state as well as of what is kept there.
#[test]
fn what_an_optimizer_allocates_at_a_line_that_leaks_is_not_counted() {
    const SIZE: u64 = 1 << 20;
    let mut s = Script::new();
    for i in 0..20 {
        s.alloc(1 + i * (SIZE / 512), SIZE, MAIN, 1);
        if i == 4 {
            let phase = Phase { optimizer: true, ..Phase::default() };
            let state = |n: u64| Block { phase, ..Script::block((100 + n) * (SIZE / 512), SIZE, MAIN, 1) };
            (0..8).for_each(|n| s.say(0, Body::Alloc(state(n))));
        }
        s.step();
    }
    let j = Judged::of(&s.items, &s.names);
    let f = j.standing()[0];
    assert_eq!(j.lines(f)[0], "/job/a.py:f:1");
    assert_eq!(j.replay.blocks(DeviceId(0)).filter(|h| f.counts(h)).count(), 20);
}

/// Growth that stops was filling: withdrawn, and the step is told.
#[test]
fn a_finding_is_withdrawn_when_growth_stops() {
    let mut s = Script::new();
    for i in 0..40 {
        s.alloc(1000 + i, 300 << 20, MAIN, 1);
        s.step();
    }
    assert_eq!(Judged::of(&s.items, &s.names).outcome(), Outcome::Growing);
    for i in 0..40 {
        s.alloc(5000 + i, 1 << 20, MAIN, 2);
        s.free(5000 + i, 1 << 20, MAIN);
        s.step();
    }
    let j = Judged::of(&s.items, &s.names);
    assert_eq!(j.outcome(), Outcome::Clean);
    let f = &j.detector.findings()[0];
    assert!(f.withdrawn_step.is_some_and(|w| (45..60).contains(&w)), "{:?}", f.withdrawn_step);
}

/// A leak that begins late, in a run that was healthy for thousands of steps, is named as soon as at the
/// beginning.
#[test]
fn a_leak_that_begins_late_is_named_as_soon() {
    let mut s = Script::new();
    for i in 0..5040u64 {
        s.alloc(9, 1 << 20, MAIN, 2);
        s.free(9, 1 << 20, MAIN);
        if i >= 5000 {
            s.alloc(1000 + i, 100 << 20, MAIN, 1);
        }
        s.step();
    }
    let j = Judged::of(&s.items, &s.names);
    let f = j.standing()[0];
    assert!(f.detected_step <= 5000 + 6, "{}", f.detected_step);
    assert!((5000..=5002).contains(&f.first_step), "{}", f.first_step);
    assert_eq!(j.outcome(), Outcome::Growing);
}

/// A hundred lines that leak a little each are one leak, though a cache beside them fills faster than any one
/// of them.
#[test]
fn a_leak_spread_over_many_lines_is_one_finding() {
    let mut s = Script::new();
    for line in 10..110 {
        s.line(line);
    }
    for i in 0..44u64 {
        if i > 1 && i % 2 == 0 && i < 30 {
            s.alloc(1 + i, 2 << 20, MAIN, 2);
        }
        if i >= 10 {
            for line in 10..110 {
                s.alloc(1000 + i * 1000 + u64::from(line), 1 << 20, MAIN, line);
            }
        }
        s.step();
    }
    let j = Judged::of(&s.items, &s.names);
    let f = j.standing()[0];
    assert_eq!((f.severity, f.sites.len(), j.standing().len()), (Severity::Alert, 100, 1));
    assert!((f.bytes_per_step / f64::from(100 << 20) - 1.0).abs() < 0.05, "{}", f.bytes_per_step);
}

/// Any numbers at all: the judges neither panic nor fail to end.
#[test]
fn nonsense_is_judged_without_a_panic() {
    let mut x = 88172645463325252u64;
    let mut roll = |n: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % n
    };
    for _ in 0..20 {
        let mut s = Script::new();
        for i in 0..3000 {
            let size = [1, 1 << 20, 1 << 40, u64::MAX, u64::MAX / 3][roll(5) as usize];
            let stream = [MAIN, SIDE][roll(2) as usize];
            match roll(8) {
                0..=3 => s.alloc(roll(400), size, stream, 1 + roll(2) as u32),
                4 => s.free(roll(400), size, stream),
                5 => s.alloc(1000 + i, size, stream, 1),
                6 => s.step(),
                _ => s.say(roll(3) as u16, Body::OptimizerEnd(roll(3))),
            }
        }
        let j = Judged::of(&s.items, &s.names);
        assert!(j.replay.steps() > 0);
    }
}

/// A queue on a side stream that fills: every old block dies in its turn, so the fast path keeps quiet.
#[test]
fn a_queue_that_fills_on_a_side_stream_is_no_leak() {
    let mut s = Script::new();
    let (mut head, mut tail) = (0, 0);
    for _ in 0..40 {
        for _ in 0..if head - tail < 12 { 2 } else { 1 } {
            s.on_side(1000 + head, 256 << 20, 1);
            head += 1;
        }
        s.free(1000 + tail, 256 << 20, SIDE);
        tail += 1;
        s.step();
    }
    let j = Judged::of(&s.items, &s.names);
    assert_eq!(j.first, None);
    assert_eq!(j.outcome(), Outcome::Clean);
}

/// The same blocks with scopes, events and a synchronize: idleness is proved; with the scope never left it is
/// not of this kind.
#[test]
fn the_sentence_says_whether_the_stream_is_idle() {
    for (sync, leave, kind, words) in [
        (true, true, Kind::LiveAfterStreamExit, "the GPU has finished with all of them"),
        (false, true, Kind::LiveAfterStreamExit, "is not known"),
        (false, false, Kind::StepGrowth, "were still live"),
    ] {
        let mut s = Script::new();
        if !leave {
            s.say(7, Body::Scope { device: DeviceId(0), from: MAIN, to: SIDE });
        }
        for i in 0..20u64 {
            if leave {
                s.on_side(1000 + i, 300 << 20, 1);
                s.say(0, Body::EventRecord { event: EventHandle(5), stream: SIDE });
                s.say(0, Body::StreamWait { stream: MAIN, event: EventHandle(5) });
            } else {
                s.alloc_by(7, 1000 + i, 300 << 20, SIDE, 1);
            }
            if sync {
                s.say(0, Body::StreamDone(MAIN));
            }
            s.step();
        }
        let j = Judged::of(&s.items, &s.names);
        let f = j.standing()[0];
        assert_eq!(f.kind, kind, "{sync} {leave}");
        assert!(f.explain.contains(words), "{sync} {leave}: {}", f.explain);
    }
}

#[test]
fn blind_is_not_clean() {
    let clean = || {
        let mut s = Script::new();
        for _ in 0..12 {
            s.alloc(9, 1 << 20, MAIN, 2);
            s.free(9, 1 << 20, MAIN);
            s.step();
        }
        s
    };
    let outcome = |s: &Script| Judged::of(&s.items, &s.names).outcome();
    assert_eq!(outcome(&clean()), Outcome::Clean);
    let mut lost = clean();
    lost.say(0, Body::Gap { lost: 1 });
    assert_eq!(outcome(&lost), Outcome::Unknown);
    let mut short = clean();
    let last = short.items.iter().rposition(is_mark).expect("a mark");
    short.items.remove(last);
    assert_eq!(outcome(&short), Outcome::Unknown);
    let mut odd = clean();
    odd.free(777, 1 << 20, MAIN);
    odd.free(777, 1 << 20, MAIN);
    assert_eq!(outcome(&odd), Outcome::Clean, "without totals it may have been there before");
    assert_eq!(Judged::of(&[], &Names::default()).outcome(), Outcome::Unknown);
    let mut oom = clean();
    let failed = Body::Oom {
        device: DeviceId(0),
        requested: Bytes(1 << 30),
        free: Bytes(0),
        stream: MAIN,
        stack: StackId(1),
    };
    oom.say(0, failed);
    assert_eq!(outcome(&oom), Outcome::Oom);
    for _ in 0..3 {
        oom.step();
    }
    assert_eq!(outcome(&oom), Outcome::Clean, "a job that lived on was not ended by it");
}

/// Without a known size of the device there is no forecast, and the severity is that of the largest device
/// there is.
#[test]
fn an_unknown_card_has_no_forecast() {
    let mut s = Script::new();
    s.items.retain(|i| !matches!(i, Item::Driver(_)));
    for i in 0..40 {
        s.alloc(1000 + i, 8 << 20, MAIN, 1);
        s.step();
    }
    let j = Judged::of(&s.items, &s.names);
    assert_eq!((j.standing()[0].steps_to_oom, j.standing()[0].severity), (None, Severity::Info));
}

#[test]
fn a_planned_end_before_the_card_is_full_is_no_alert() {
    let mut s = Script::new();
    for i in 0..40 {
        s.alloc(1000 + i, 300 << 20, MAIN, 1);
        s.step();
    }
    for (planned, want) in [(Some(60), Severity::Info), (Some(200), Severity::Alert), (None, Severity::Alert)]
    {
        let mut replay = Replay::new();
        s.items.iter().for_each(|i| {
            replay.apply(i, &s.names);
        });
        let mut detector = Detector::new(Policy { planned_steps: planned });
        detector.at_step(&replay);
        assert_eq!(detector.findings()[0].severity, want, "{planned:?}");
    }
}

/// What another thread allocates when the last optimizer has run ends no step; what Python frees then was there at its end all the same.
#[test]
fn a_thread_that_allocates_late_does_not_hide_what_the_last_step_held() {
    const SIZE: u64 = 1 << 20;
    let mut s = Script::new();
    for i in 0..30 {
        s.alloc(1, SIZE, MAIN, 2);
        s.free(1, SIZE, MAIN);
        s.say(0, Body::BackwardEnd { nested: false });
        s.say(0, Body::OptimizerBegin(1));
        s.say(0, Body::OptimizerEnd(1));
        s.alloc_by(7, (2 + i) * (SIZE / 512), SIZE, MAIN, 1);
    }
    (0..30).for_each(|i| s.free((2 + i) * (SIZE / 512), SIZE, MAIN));
    s.items.push(Item::End(Nanos(s.now + 1)));
    let j = Judged::of(&s.items, &s.names);
    assert_eq!((j.replay.steps(), j.outcome()), (30, Outcome::Growing));
    assert_eq!(j.lines(j.standing()[0]), ["/job/a.py:f:1"]);
    let d = j.replay.devices().next().expect("a device");
    assert_eq!((d.rows.last().map(|r| r.allocated), d.allocated), (Some(Bytes(30 * SIZE)), Bytes(0)));
}

/// PyTorch hands out 32 streams in turn: a line that takes one in every step leaves a block on each, and is one line.
#[test]
fn a_line_that_takes_a_stream_anew_in_every_step_is_one_finding() {
    const SIZE: u64 = 1 << 20;
    let side = |i: u64| StreamHandle(640 + 64 * (i % 32));
    let mut s = Script::new();
    for i in 0..120 {
        s.say(0, Body::Scope { device: DeviceId(0), from: MAIN, to: side(i) });
        s.alloc((2 + i) * (SIZE / 512), SIZE, side(i), 1);
        s.say(0, Body::Scope { device: DeviceId(0), from: side(i), to: MAIN });
        s.alloc(1, SIZE, MAIN, 2);
        s.free(1, SIZE, MAIN);
        s.say(0, Body::OptimizerBegin(1));
        s.say(0, Body::OptimizerEnd(1));
    }
    let j = Judged::of(&s.items, &s.names);
    let standing = j.standing();
    let [f] = standing.as_slice() else { panic!("{standing:#?}") };
    assert_eq!((j.lines(f).as_slice(), f.stream), (&["/job/a.py:f:1".to_string()][..], None));
    assert!(f.detected_step <= 15 && f.blocks_now > 100, "{f:#?}");
    let live = j.replay.live_of_streams(DeviceId(0));
    assert_eq!(live.len(), 32);
    assert_eq!(live.values().map(|p| p.blocks).sum::<u64>(), 120);
}

/// A device is full once: what two leaks add to it counts for both; what adds little fills nothing by itself.
#[test]
fn what_grows_beside_it_counts_for_the_forecast_of_a_finding() {
    const MIB: u64 = 1 << 20;
    let mut s = Script::new();
    for i in 0..80 {
        for (line, size, from) in [(1, MIB, 0), (3, 2 * MIB, 30), (4, MIB / 64, 55)] {
            s.line(line);
            if i >= from {
                s.alloc((u64::from(line) << 32) + i * 8192, size, MAIN, line);
            }
        }
        s.say(0, Body::OptimizerBegin(1));
        s.say(0, Body::OptimizerEnd(1));
    }
    let judged = Judged::of(&s.items, &s.names);
    let held = judged.replay.devices().next().map_or(0, |d| d.allocated.0);
    let left = (CARD - held) as f64 / (3.0 * MIB as f64);
    let mut all = judged.standing();
    all.sort_by_key(|f| f.first_step);
    assert_eq!(all.len(), 3);
    for f in &all[..2] {
        let when = f.steps_to_oom.map_or(0.0, |w| w.mid as f64);
        assert!(f.with_others && (when / left - 1.0).abs() < 0.1, "{when} of {left}: {}", f.bytes_per_step);
    }
    assert!(!all[2].with_others && all[2].steps_to_oom.is_some_and(|w| w.mid as f64 > 20.0 * left));
}
