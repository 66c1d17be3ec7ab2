//! Judgements on recorded allocator events of real jobs (`tests/leakbench/events`), on a card of 24 GiB; in
//! `written`, on small jobs of which every event is written down.

#[path = "detect_streams/afterwards.rs"]
mod afterwards;
#[path = "detect_streams/anew.rs"]
mod anew;
#[path = "detect_streams/cards.rs"]
mod cards;
#[path = "detect_streams/evident.rs"]
mod evident;
#[path = "detect_streams/failures.rs"]
mod failures;
#[path = "detect_streams/few.rs"]
mod few;
#[path = "detect_streams/fills.rs"]
mod fills;
#[path = "detect_streams/goes_on.rs"]
mod goes_on;
#[path = "detect_streams/healthy.rs"]
mod healthy;
#[path = "detect_streams/judged.rs"]
mod judged;
#[path = "detect_streams/leaks.rs"]
mod leaks;
#[path = "leakbench/events/load.rs"]
mod load;
#[path = "detect_streams/lost.rs"]
mod lost;
#[path = "detect_streams/notes.rs"]
mod notes;
#[path = "bench/page.rs"]
mod page;
#[path = "detect_streams/pauses.rs"]
mod pauses;
#[path = "detect_streams/pinned.rs"]
mod pinned;
#[path = "detect_streams/pools.rs"]
mod pools;
#[path = "detect_streams/random.rs"]
mod random;
#[path = "detect_streams/rates.rs"]
mod rates;
#[path = "detect_streams/replaced.rs"]
mod replaced;
#[path = "detect_streams/script.rs"]
mod script;
#[path = "detect_streams/seen.rs"]
mod seen;
#[path = "detect_streams/slow.rs"]
mod slow;
#[path = "detect_streams/synthetic.rs"]
mod synthetic;
#[path = "detect_streams/trimmed.rs"]
mod trimmed;
#[path = "detect_streams/truth.rs"]
mod truth;
#[path = "detect_streams/unseen.rs"]
mod unseen;
#[path = "detect_streams/written.rs"]
mod written;

use judged::{CARD, Judged, events, job};
use strandline::detect::{Certainty, Detector, Kind, Outcome, Policy, Severity, judge};
use strandline::event::DeviceId;
use strandline::replay::Replay;
use strandline::report::text::{Spread, headline};
use strandline::report::{Namesakes, Process};

/// Growth of `allocated` from the first step's end to the last one's.
fn growth(j: &Judged) -> f64 {
    let rows = &j.replay.devices().next().expect("a device").rows;
    rows[rows.len() - 1].allocated.0 as f64 - rows[0].allocated.0 as f64
}

/// A card as large as what the job takes at its 25th step: when it is full is told in time, and within the interval.
#[test]
fn the_step_at_which_a_card_is_full_lies_in_the_forecast() {
    let (_, whole) = job("a_offload_vl");
    let rows = &whole.replay.devices().next().expect("a device").rows;
    let card = rows.iter().take(25).map(|r| r.peak.0).max().expect("25 steps");
    let full = rows.iter().find(|r| r.peak.0 > card).expect("it grows on").step;
    let small = load::load(&events().join("a_offload_vl.events.gz"), card);
    let (mut replay, mut detector) = (Replay::new(), Detector::new(Policy::default()));
    let mut told = Vec::new();
    for item in &small.items {
        let progress = replay.apply(item, &small.names);
        detector.after(progress, &replay);
        let Some(step) = progress.step.filter(|step| *step < full) else { continue };
        let alert = detector.findings().iter().find(|f| f.is_active_leak() && f.severity == Severity::Alert);
        if let Some(when) = alert.and_then(|f| f.steps_to_oom) {
            told.push((step, u64::from(step) + when.low, u64::from(step) + when.high));
        }
    }
    println!("full at {full}: {told:?}");
    assert!(told.first().is_some_and(|t| t.0 <= 7), "{told:?}");
    let right = told.iter().filter(|(_, low, high)| (*low..=*high).contains(&full.into())).count();
    assert!(right * 10 >= told.len() * 9, "full at {full}, which {right} of {} have: {told:?}", told.len());
    let near = told.iter().filter(|t| full - t.0 <= 8);
    assert!(near.clone().count() > 0 && near.clone().all(|t| t.2 - t.1 <= 8), "{told:?}");
}

#[test]
fn trl_offload_is_live_after_stream_exit() {
    let (job, j) = job("a_offload_vl");
    assert_eq!(j.outcome(), Outcome::Growing, "no keeper is known, and no known leak");
    let standing = j.standing();
    let f = standing[0];
    let step = f.detected_step;
    assert!(step <= 7, "found at step {step}");
    assert_eq!((f.kind, f.severity, f.established), (Kind::LiveAfterStreamExit, Severity::Alert, true));
    assert_eq!(f.withdrawn_step, None);
    let line = "activation_offloading.py:unpack_tensor_with_streams:430";
    assert_eq!((j.lines(f), f.sites[0].share), (vec![line.to_string()], 1.0));
    let stream = f.stream.expect("a stream");
    assert!(stream.side);
    // Counted another way: side-stream blocks of that line that were born two steps or more before the last
    // one's end.
    let steps = j.replay.steps();
    let old: u64 = j
        .replay
        .blocks(DeviceId(0))
        .filter(|h| h.stream == stream.id && h.site == f.sites[0].site && h.step + 2 <= steps)
        .map(|h| h.block.rounded.0)
        .sum();
    assert!((f.bytes_now as f64 / old as f64 - 1.0).abs() < 0.05, "{} of {old}", f.bytes_now);
    let explained: u64 = standing.iter().filter(|f| f.kind.is_leak()).map(|f| f.bytes_now).sum();
    assert!(explained as f64 >= 0.9 * growth(&j), "{explained} of {}", growth(&j));
    assert!(f.explain.contains("is not known"), "these events carry no synchronization: {}", f.explain);
    // The forecast is what the series itself says at its end: 97 MiB a step into what is left of the card. It grows more
    // slowly with every step, so that no latest end is told; but that it is not soon.
    let oom = f.steps_to_oom.expect("the card's size is known");
    assert!(oom.low + 32 > 60 && oom.low <= oom.mid && (150..250).contains(&oom.mid), "{oom:?}");
    assert_eq!(oom.high, u64::MAX);
    let verdict = judge(&j.replay, &j.detector);
    let process = Process::new(&j.replay, &job.names, &verdict, j.detector.findings());
    let text = headline(&process, f, None, Spread { found: 1, all: 1, namesakes: Namesakes::None });
    assert!(text.contains("), because the growth slows down"), "{text}");
}

#[test]
fn retention_by_step_names_its_lines() {
    for (name, line, rate) in [
        ("b_tracker", "trl_stale_tracker.py:forward:33", 128.4),
        ("c_fastllm", "fastllm_loss_retention.py:forward:51", 168.0),
        ("d_losslist_graph", "loss_list.py:forward:19", 26.0),
    ] {
        let (_, j) = job(name);
        let standing = j.standing();
        assert_eq!(standing.len(), 1, "{name}");
        let f = standing[0];
        assert_eq!((f.kind, f.severity), (Kind::StepGrowth, Severity::Alert), "{name}");
        assert_eq!(j.lines(f)[0], line, "{name}");
        let mib = f.bytes_per_step / 1048576.0;
        assert!((mib / rate - 1.0).abs() < 0.05, "{name}: {mib} MiB a step, {rate} are true");
        assert!(f.bytes_now as f64 >= 0.9 * growth(&j), "{name}");
        assert!(f.first_step <= 3 && f.detected_step <= 15, "{name}: {} {}", f.first_step, f.detected_step);
        assert_eq!(j.outcome(), Outcome::Growing, "{name}");
        let shares: f64 = f.sites.iter().map(|s| s.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{name}");
    }
}

#[test]
fn controls_and_fixed_runs_raise_nothing() {
    let mut seen = 0;
    for entry in std::fs::read_dir(events()).expect("events") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        let Some(name) = name.strip_suffix(".events.gz") else { continue };
        let healthy = name.ends_with("_fixed") || name.starts_with("f_") || name == "a_offload_text";
        if !healthy && !name.starts_with("g_") {
            continue;
        }
        let (_, j) = job(name);
        assert!(j.worst.as_ref().is_none_or(|w| w.0 == Severity::Info), "{name}: {:?}", j.worst);
        assert_eq!(j.outcome(), Outcome::Clean, "{name}: {}", judge(&j.replay, &j.detector).reason);
        seen += 1;
    }
    assert_eq!(seen, 19);
}

#[test]
fn deferred_frees_grow_and_are_no_step_growth() {
    let (_, j) = job("e_deferred");
    let standing = j.standing();
    assert_eq!(standing.len(), 1);
    assert_eq!((standing[0].kind, standing[0].severity), (Kind::DeferredFree, Severity::Info));
    assert_eq!(j.lines(standing[0]), ["sidestream_record.py:produce:29"]);
    assert!((standing[0].bytes_per_step / 67108864.0 - 1.0).abs() < 0.05);
    assert_eq!((j.outcome(), standing[0].certainty), (Outcome::Growing, Certainty::Growing));
}

/// The same marks as microbatches, many to a step: judged before a dozen steps have ended, and as growth by
/// step once they have.
#[test]
fn microbatches_are_judged_from_the_first_one() {
    let job = load::load(&events().join("c_fastllm.events.gz"), CARD);
    for (every, grain) in [(64, "microbatch"), (16, "microbatch"), (4, "step")] {
        let items = load::with_automatic_marks(&job, every);
        let j = Judged::of(&items, &job.names);
        let f = j.standing()[0];
        assert_eq!((f.kind, f.grain.name()), (Kind::StepGrowth, grain), "{every} to a step");
        assert_eq!(j.lines(f)[0], "fastllm_loss_retention.py:forward:51");
        let per = if grain == "step" { f64::from(every) } else { 1.0 };
        let mib = f.bytes_per_step / per / 1048576.0;
        assert!((mib / 168.0 - 1.0).abs() < 0.05, "{every} to a step: {mib}");
    }
    // Gradients that live across microbatches and fall at each step are a sawtooth.
    let job = load::load(&events().join("f_gradaccum.events.gz"), CARD);
    let j = Judged::of(&load::with_automatic_marks(&job, 8), &job.names);
    assert_eq!(j.worst, None);
}
