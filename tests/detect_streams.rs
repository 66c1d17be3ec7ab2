//! Judgements on recorded allocator events of real jobs (`tests/leakbench/events`), on a card of 24 GiB, and on small jobs of which
//! every event is written here.

#[path = "leakbench/events/load.rs"]
mod load;

use load::Job;
use std::path::{Path, PathBuf};
use strandline::detect::{Detector, Finding, Kind, Outcome, Policy, Severity, judge};
use strandline::event::{
    Addr, Block, Body, Bytes, DeviceId, DriverMemory, Event, EventHandle, Frame, Item, Names, Nanos, Phase,
    StackId, StreamHandle, ThreadId,
};
use strandline::replay::Replay;

const CARD: u64 = 24 << 30;

/// A job, judged to its end.
struct Judged {
    replay: Replay,
    detector: Detector,
    /// The worst severity of a standing leak finding at any step, and when.
    worst: Option<(Severity, u32, String)>,
    /// The step at which a leak finding stood first.
    first: Option<(Kind, u32)>,
}

impl Judged {
    fn of(items: &[Item], names: &Names) -> Judged {
        let mut j = Judged {
            replay: Replay::new(),
            detector: Detector::new(Policy::default()),
            worst: None,
            first: None,
        };
        for item in items {
            let p = j.replay.apply(item, names);
            j.detector.after(p, &j.replay);
            if p.step.is_some() {
                j.look();
            }
        }
        j.replay.finish();
        j.detector.at_step(&j.replay);
        j
    }

    fn look(&mut self) {
        for f in self.detector.findings().iter().filter(|f| f.is_active_leak()) {
            let step = self.replay.steps();
            self.first = self.first.or(Some((f.kind, step)));
            if self.worst.as_ref().is_none_or(|w| w.0 < f.severity) {
                self.worst = Some((f.severity, step, f.explain.clone()));
            }
        }
    }

    fn standing(&self) -> Vec<&Finding> {
        self.detector.findings().iter().filter(|f| f.withdrawn_step.is_none()).collect()
    }

    /// Lines ("file:function:line") of a finding, largest share first.
    fn lines(&self, f: &Finding) -> Vec<String> {
        let frame = |s: &strandline::detect::FindingSite| {
            let f = &self.replay.site(s.site).expect("a site").frame;
            format!("{}:{}:{}", f.file, f.function, f.line)
        };
        f.sites.iter().map(frame).collect()
    }

    fn outcome(&self) -> Outcome {
        judge(&self.replay, &self.detector).outcome
    }
}

fn events() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/leakbench/events")
}

fn job(name: &str) -> (Job, Judged) {
    let job = load::load(&events().join(format!("{name}.events.gz")), CARD);
    let judged = Judged::of(&job.items, &job.names);
    assert_eq!(judged.replay.inconsistencies(), [], "{name}");
    (job, judged)
}

/// Growth of `allocated` from the first step's end to the last one's.
fn growth(j: &Judged) -> f64 {
    let rows = &j.replay.devices().next().expect("a device").rows;
    rows[rows.len() - 1].allocated.0 as f64 - rows[0].allocated.0 as f64
}

#[test]
fn trl_offload_is_live_after_stream_exit() {
    let (_, j) = job("a_offload_vl");
    let (kind, step) = j.first.expect("found");
    assert_eq!(kind, Kind::LiveAfterStreamExit);
    assert!(step <= 7, "found at step {step}");
    assert_eq!(j.outcome(), Outcome::Leak);
    let standing = j.standing();
    let f = standing[0];
    assert_eq!((f.kind, f.severity, f.established), (Kind::LiveAfterStreamExit, Severity::Alert, true));
    assert_eq!((f.detected_step, f.withdrawn_step), (step, None));
    let line = "activation_offloading.py:unpack_tensor_with_streams:430";
    assert_eq!((j.lines(f), f.sites[0].share), (vec![line.to_string()], 1.0));
    let stream = f.stream.expect("a stream");
    assert!(stream.side);
    // Counted another way: side-stream blocks of that line that were born two steps or more before the last one's end.
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
    assert!(f.explain.contains("not provable"), "these events carry no synchronization: {}", f.explain);
    // The forecast brackets what the series itself says at its end: 97 MiB a step into what is left of the card.
    let oom = f.steps_to_oom.expect("the card's size is known");
    assert!(oom.low <= oom.mid && oom.mid <= oom.high && (150..250).contains(&oom.mid), "{oom:?}");
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
        assert_eq!(j.outcome(), Outcome::Leak, "{name}");
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
fn deferred_frees_are_a_note_and_no_step_growth() {
    let (_, j) = job("e_deferred");
    let standing = j.standing();
    assert_eq!(standing.len(), 1);
    assert_eq!((standing[0].kind, standing[0].severity), (Kind::DeferredFree, Severity::Info));
    assert_eq!(j.lines(standing[0]), ["sidestream_record.py:produce:29"]);
    assert!((standing[0].bytes_per_step / 67108864.0 - 1.0).abs() < 0.05);
    assert_eq!(j.outcome(), Outcome::Clean);
}

/// The same marks as microbatches, many to a step: judged before a dozen steps have ended, and as growth by step once they have.
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

/// A script that clears its holders at the end, and goes on allocating, does not withdraw the verdict.
#[test]
fn what_is_freed_after_the_last_step_changes_nothing() {
    let job = load::load(&events().join("d_losslist_graph.events.gz"), CARD);
    let last = job.items.iter().rposition(|i| is_mark(i)).expect("a mark");
    let mut items = job.items[..=last].to_vec();
    let before = Judged::of(&items, &job.names);
    let live: Vec<Block> = before.replay.blocks(DeviceId(0)).map(|h| h.block).collect();
    for b in live {
        for body in [Body::FreeRequested(b), Body::FreeCompleted(b)] {
            items.push(event(Nanos(u64::MAX / 2), 0, body));
        }
    }
    let after = Judged::of(&items, &job.names);
    assert_eq!(after.replay.devices().next().map(|d| d.allocated), Some(Bytes(0)));
    assert_eq!(before.standing(), after.standing());
    assert_eq!(after.outcome(), Outcome::Leak);
}

/// Growth that stops was filling: withdrawn, and the step is told.
#[test]
fn a_finding_is_withdrawn_when_growth_stops() {
    let mut s = Script::new();
    for i in 0..40 {
        s.alloc(1000 + i, 300 << 20, MAIN, 1);
        s.step();
    }
    assert_eq!(Judged::of(&s.items, &s.names).outcome(), Outcome::Leak);
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

/// A leak that begins late, in a run that was healthy for a thousand steps, is named within a dozen steps.
#[test]
fn a_leak_that_begins_late_is_named_as_soon() {
    let mut s = Script::new();
    for i in 0..1040u64 {
        s.alloc(9, 1 << 20, MAIN, 2);
        s.free(9, 1 << 20, MAIN);
        if i >= 1000 {
            s.alloc(1000 + i, 100 << 20, MAIN, 1);
        }
        s.step();
    }
    let j = Judged::of(&s.items, &s.names);
    let f = j.standing()[0];
    assert!(f.detected_step <= 1000 + 32, "{}", f.detected_step);
    assert!((1000..=1002).contains(&f.first_step), "{}", f.first_step);
    assert_eq!(j.outcome(), Outcome::Leak);
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

/// The same blocks with scopes, events and a synchronize: idleness is proved; with the scope never left it is not of this kind.
#[test]
fn the_sentence_says_whether_the_stream_is_idle() {
    for (sync, leave, kind, words) in [
        (true, true, Kind::LiveAfterStreamExit, "known to be done"),
        (false, true, Kind::LiveAfterStreamExit, "not provable"),
        (false, false, Kind::StepGrowth, "outlive two steps"),
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

/// Without a known size of the device there is no forecast, and the severity is that of the largest device there is.
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

const MAIN: StreamHandle = StreamHandle(0);
const SIDE: StreamHandle = StreamHandle(640);

/// A job of which every event is written down. Lines: 1 leaks, 2 does not.
struct Script {
    items: Vec<Item>,
    names: Names,
    now: u64,
    steps: u64,
}

impl Script {
    fn new() -> Script {
        let mut names = Names::default();
        let total = Bytes(CARD);
        let driver = DriverMemory { time: Nanos(0), device: DeviceId(0), total, free: total, process: None };
        let mut items = vec![Item::Driver(driver)];
        for line in 1..=2 {
            names.add_stack(StackId(line), [Frame { file: "/job/a.py".into(), line, function: "f".into() }]);
            items.push(Item::Stack(StackId(line)));
        }
        Script { items, names, now: 0, steps: 0 }
    }

    fn say(&mut self, thread: u16, body: Body) {
        self.now += 1000;
        self.items.push(event(Nanos(self.now), thread, body));
    }

    fn block(addr: u64, size: u64, stream: StreamHandle, line: u32) -> Block {
        Block {
            addr: Addr(addr * 512),
            size: Bytes(size),
            rounded: Bytes(size),
            stream,
            stack: StackId(line),
            phase: Phase::default(),
            ..Block::default()
        }
    }

    fn alloc(&mut self, addr: u64, size: u64, stream: StreamHandle, line: u32) {
        self.alloc_by(0, addr, size, stream, line);
    }

    fn alloc_by(&mut self, thread: u16, addr: u64, size: u64, stream: StreamHandle, line: u32) {
        self.say(thread, Body::Alloc(Script::block(addr, size, stream, line)));
    }

    fn on_side(&mut self, addr: u64, size: u64, line: u32) {
        self.say(0, Body::Scope { device: DeviceId(0), from: MAIN, to: SIDE });
        self.alloc(addr, size, SIDE, line);
        self.say(0, Body::Scope { device: DeviceId(0), from: SIDE, to: MAIN });
    }

    fn free(&mut self, addr: u64, size: u64, stream: StreamHandle) {
        let b = Script::block(addr, size, stream, 0);
        self.say(0, Body::FreeRequested(b));
        self.say(0, Body::FreeCompleted(b));
    }

    fn step(&mut self) {
        self.steps += 1;
        self.now = self.steps * load::STEP;
        self.say(0, Body::ManualStep(self.steps));
    }
}

fn event(time: Nanos, thread: u16, body: Body) -> Item {
    Item::Event(Event { time, thread: ThreadId(thread), body })
}

fn is_mark(i: &Item) -> bool {
    matches!(i, Item::Event(Event { body: Body::ManualStep(_), .. }))
}

/// Error rates over synthetic streams: `STRANDLINE_SYNTHETIC` names a folder of files that `synthetic.py SEED` wrote. Prints each
/// mistake and a summary.
#[test]
#[ignore = "needs STRANDLINE_SYNTHETIC, a folder of synthetic streams"]
fn error_rates() {
    let dir = std::env::var("STRANDLINE_SYNTHETIC").expect("STRANDLINE_SYNTHETIC");
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    let mut t = Tally::default();
    files.iter().for_each(|f| t.add(&load::load(f, CARD)));
    println!("{t:?}");
    assert!(t.streams >= 100, "a rate needs streams");
    assert!(t.healthy_false_at_end * 100 <= t.healthy && t.healthy_false_ever * 20 <= t.healthy);
    assert!(t.hits * 100 >= t.leaks * 80);
}

/// Outcomes of synthetic streams; `material` leaks fill the card within 10,000 steps, in runs of 40 steps or more.
#[derive(Debug, Default)]
struct Tally {
    streams: u32,
    healthy: u32,
    healthy_false_at_end: u32,
    healthy_false_ever: u32,
    leaks: u32,
    hits: u32,
    named_at_all: u32,
    inherent: u32,
    side: u32,
    side_as_such: u32,
}

impl Tally {
    fn add(&mut self, job: &Job) {
        let j = Judged::of(&job.items, &job.names);
        let h = &job.header;
        self.streams += 1;
        if h["leaky"] == false {
            let loud = |f: &&Finding| f.is_active_leak() && f.severity > Severity::Info;
            let ever = j.worst.as_ref().is_some_and(|w| w.0 > Severity::Info);
            self.healthy += 1;
            self.healthy_false_at_end += u32::from(j.detector.findings().iter().any(|f| loud(&f)));
            self.healthy_false_ever += u32::from(ever);
            if ever {
                println!("false: {} {:?} {}", job.name, j.worst, h["traits"]);
            }
            return;
        }
        let rate = h["leak_bytes_per_step"].as_f64().expect("a rate");
        let marks = h["marks"].as_f64().expect("marks");
        let reach = if h["decay"] == true { 40.0 / std::f64::consts::LN_2 } else { 10_000.0 };
        if marks < 40.0 || rate * reach < CARD as f64 {
            return;
        }
        self.leaks += 1;
        let ours = |f: &&&Finding| j.lines(f).iter().any(|l| l.starts_with("leak.py"));
        let named: Vec<_> = j.standing().into_iter().filter(|f| f.kind.is_leak()).collect();
        let named: Vec<_> = named.iter().filter(ours).collect();
        self.named_at_all += u32::from(!named.is_empty());
        let hit = named.iter().any(|f| f.severity > Severity::Info);
        self.hits += u32::from(hit);
        if h["leak_stream"] == 1 && hit {
            self.side += 1;
            self.side_as_such += u32::from(named.iter().any(|f| f.kind == Kind::LiveAfterStreamExit));
        }
        if !hit {
            let (start, burst) =
                (h["leak_start"].as_f64().unwrap_or(0.0), h["burst"].as_f64().unwrap_or(1.0));
            let bursts = ((marks - start) / burst).ceil();
            self.inherent += u32::from(bursts < 4.0);
            println!(
                "missed: {} after {bursts} bursts in {marks} steps, {:.1} MiB a step",
                job.name,
                rate / 1048576.0
            );
        }
    }
}

/// Events per second of replay and judgement together, on one core: the recorded TRL job again and again, and one job that leaks
/// all the while. Run with `cargo test --release -p strandline --test detect_streams throughput -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn throughput() {
    for (name, rounds) in [("a_offload_vl_fixed", 30), ("a_offload_vl", 30)] {
        let job = load::load(&events().join(format!("{name}.events.gz")), u64::MAX);
        let mut replay = Replay::new();
        let mut detector = Detector::new(Policy::default());
        let mut judging = std::time::Duration::ZERO;
        let begin = std::time::Instant::now();
        for round in 0..rounds {
            for item in &job.items {
                // Other addresses in each round: what is left of one round is live in the next.
                let moved = match item {
                    Item::Event(e) => Item::Event(Event { body: at_offset(e.body, round << 48), ..*e }),
                    other => other.clone(),
                };
                let p = replay.apply(&moved, &job.names);
                if p.step.is_some() {
                    let t = std::time::Instant::now();
                    detector.after(p, &replay);
                    judging += t.elapsed();
                }
            }
        }
        let (events, s) = (replay.events() as f64, begin.elapsed().as_secs_f64());
        println!(
            "{name}: {:.1} M events in {s:.2} s, {:.1} M/s; {} cohorts, {} steps, judging {:.0} % of it",
            events / 1e6,
            events / s / 1e6,
            replay.cohorts().len(),
            replay.steps(),
            100.0 * judging.as_secs_f64() / s,
        );
        assert!(replay.events() > 4_000_000);
    }
}

fn at_offset(body: Body, offset: u64) -> Body {
    let moved = |b: Block| Block { addr: Addr(b.addr.0 | offset), ..b };
    match body {
        Body::Alloc(b) => Body::Alloc(moved(b)),
        Body::FreeRequested(b) => Body::FreeRequested(moved(b)),
        Body::FreeCompleted(b) => Body::FreeCompleted(moved(b)),
        Body::Segment { op, device, addr, size, stream, pool } => {
            Body::Segment { op, device, addr: Addr(addr.0 | offset), size, stream, pool }
        }
        other => other,
    }
}
