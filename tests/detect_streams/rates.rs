//! Measurements: error rates over synthetic streams, events per second.

use crate::judged::{CARD, Judged, events};
use crate::load::{self, Job};
use crate::synthetic::{self, Drawn};
use crate::{healthy, leaks};
use strandline::detect::{Detector, Finding, Kind, Policy, Severity};
use strandline::event::{Addr, Block, Body, Event, Item, Names};
use strandline::replay::Replay;

/// What was said of a drawn job.
struct Said {
    /// An alert or a warning at any step: of which kind, when, and of which line first.
    accused: Option<(Kind, u32, String)>,
    /// The step at which a leak finding first named the guilty lines.
    named: Option<u32>,
    /// The same as a warning or an alert.
    loud: Option<u32>,
}

impl Said {
    fn of(d: &Drawn) -> Said {
        let (mut replay, mut detector) = (Replay::new(), Detector::new(Policy::default()));
        let mut said = Said { accused: None, named: None, loud: None };
        for item in &d.items {
            let p = replay.apply(item, &d.names);
            detector.after(p, &replay);
            let Some(step) = p.step else { continue };
            for f in detector.findings().iter().filter(|f| f.withdrawn_step.is_none()) {
                if f.severity > Severity::Info {
                    let frame = f.sites.first().and_then(|s| replay.site(s.site)).map(|s| &s.frame);
                    let line = frame.map_or(String::new(), |f| format!("{}:{}", f.file, f.line));
                    let line = format!(
                        "{line} and {} more, {}: {}",
                        f.sites.len().saturating_sub(1),
                        f.severity.name(),
                        f.explain
                    );
                    said.accused = said.accused.take().or(Some((f.kind, step, line)));
                }
                let file = |s| replay.site(s).is_some_and(|s| s.frame.file == "leak.py");
                if f.kind.is_leak() && f.sites.iter().any(|s| file(s.site)) {
                    said.named = said.named.or(Some(step));
                    if f.severity > Severity::Info {
                        said.loud = said.loud.or(Some(step));
                    }
                }
            }
        }
        said
    }
}

/// Whether the leak must be found: it leaked four times or more, and the last of it has outlived its grace; at its
/// rate 1 % of the card is full after 100 steps.
fn must_be_found(d: &Drawn) -> bool {
    let Some(l) = &d.leak else { return false };
    let seen = (d.steps.saturating_sub(l.start + 2)).div_ceil(l.burst);
    seen >= 4 && d.bursts() >= 4 && l.rate * 100.0 >= 0.01 * CARD as f64
}

/// Steps of a run in which a leak of any of `leaks`' shapes is found. In shorter ones a line that is freed steps later has not
/// been seen for long enough, and of many lines each has leaked once or twice.
const LONG: u64 = 40;

/// A sample of every trait in each run of the tests; the rates themselves are in docs/measurements.md.
#[test]
fn drawn_jobs_are_judged_right() {
    for seed in 5_000_000..5_000_045 {
        let quiet = Said::of(&synthetic::draw(seed, false));
        assert_eq!(quiet.accused, None, "the healthy job of seed {seed}");
        let (name, draw) = healthy::SHAPES[(seed % 9) as usize];
        let other = Said::of(&healthy::draw((name, draw), seed));
        assert_eq!(other.accused, None, "{name}, seed {seed}");
        let leaky = synthetic::draw(seed, true);
        let said = Said::of(&leaky);
        assert!(said.named.is_some() || !must_be_found(&leaky), "seed {seed}: {:?}", leaky.leak);
        let kind = leaks::KINDS[(seed % 7) as usize];
        let (other, bursts) = leaks::draw(kind, seed);
        let must = other.steps >= LONG && leaks::must_be_found(&other, bursts);
        assert!(!must || Said::of(&other).named.is_some(), "{}, seed {seed}: {:?}", kind.0, other.leak);
    }
}

/// A cache that fills for a hundred steps, and two blocks of garbage that began just now, are not one leak of both rates.
#[test]
fn what_began_just_now_is_no_part_of_what_fills() {
    assert_eq!(Said::of(&synthetic::draw(20638, false)).accused, None);
}

/// Requests that run on while others come and go: the old pages of those that were there before are no part of what has
/// come since (956, 1663), nor are pages that go while others come part of another line's growth (956, 1901). And a buffer that
/// fills faster and faster has not filled at its present pace all the time (1399).
#[test]
fn what_serves_long_requests_is_no_leak() {
    for seed in [956, 1399, 1663, 1901] {
        let job = healthy::draw(("serving", crate::unseen::serving), seed);
        assert_eq!(Said::of(&job).accused, None, "seed {seed}");
    }
}

/// The generator here says what `synthetic.py` says, event for event.
#[test]
fn drawn_jobs_are_those_of_the_script() {
    for (seed, kind) in [(11, "--leaky"), (12, "--healthy"), (4_000_000_123, "--leaky")] {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/leakbench/synthetic.py");
        let out = std::process::Command::new("python3").args([script, &seed.to_string(), kind]).output();
        let out = out.expect("python3 runs");
        let text = String::from_utf8(out.stdout).expect("text");
        let theirs = load::parse(&text, CARD);
        let ours = synthetic::draw(seed, kind == "--leaky");
        let says = |items: &[Item], names: &Names| -> Vec<String> {
            let line = |s| names.frames(s).next().map(|f| format!("{}:{}", f.file, f.line));
            let say = |i: &Item| match i {
                Item::Event(Event { body: Body::Alloc(b), .. }) => {
                    Some(format!("alloc {} {} {} {:?}", b.addr.0, b.size.0, b.stream.0, line(b.stack)))
                }
                Item::Event(Event { body: Body::FreeRequested(b), .. }) => {
                    Some(format!("free {} {} {}", b.addr.0, b.size.0, b.stream.0))
                }
                Item::Event(Event { body: Body::ManualStep(_), .. }) => Some("step".into()),
                _ => None,
            };
            items.iter().filter_map(say).collect()
        };
        let (theirs, ours) = (says(&theirs.items, &theirs.names), says(&ours.items, &ours.names));
        assert_eq!(theirs.len(), ours.len(), "seed {seed}");
        assert_eq!(theirs.iter().zip(&ours).find(|(a, b)| a != b), None, "seed {seed}");
    }
}

/// Seeds FROM..TO of `STRANDLINE_SEEDS`.
fn seeds() -> std::ops::Range<u64> {
    let seeds = std::env::var("STRANDLINE_SEEDS").expect("STRANDLINE_SEEDS");
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    from.parse().expect("a seed")..to.parse().expect("a seed")
}

/// Judges each seed, on all cores.
fn each<T: Send>(seeds: std::ops::Range<u64>, of: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let done = std::sync::Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|s| {
        for _ in 0..cores {
            s.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let said = of(seed);
                    done.lock().expect("no judge panicked").push(said);
                }
            });
        }
    });
    done.into_inner().expect("no judge panicked")
}

/// The table of docs/measurements.md: `STRANDLINE_SEEDS=FROM..TO nice -n 19 cargo test --release -p strandline --test
/// detect_streams drawn_rates -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement: needs STRANDLINE_SEEDS=FROM..TO"]
fn drawn_rates() {
    let seeds = seeds();
    let healthy = each(seeds.clone(), |seed| (seed, Said::of(&synthetic::draw(seed, false)).accused));
    let accused: Vec<_> = healthy.into_iter().filter(|h| h.1.is_some()).collect();
    let leaky = each(seeds.clone(), |seed| {
        let mut d = synthetic::draw(seed, true);
        let said = Said::of(&d);
        d.items = Vec::new();
        (seed, d, said)
    });
    let mut groups: std::collections::BTreeMap<(u8, String), [u32; 5]> = Default::default();
    let mut missed = Vec::new();
    for (seed, d, said) in &leaky {
        let l = d.leak.as_ref().expect("leaky");
        let must = must_be_found(d);
        if must && said.named.is_none() {
            missed.push((seed, d.steps, l.clone()));
        }
        let share = l.rate * 100.0 / CARD as f64;
        let rate = usize::from(share >= 0.001) + usize::from(share >= 0.01) + usize::from(share >= 0.1);
        let bursts = match d.bursts() {
            0..4 => "1 to 3 bursts",
            4..12 => "4 to 11 bursts",
            12..40 => "12 to 39 bursts",
            _ => "40 bursts and more",
        };
        for key in [
            (0, "all".to_string()),
            (
                1,
                format!(
                    "{} of the card per 100 steps",
                    ["under 0.1 %", "0.1 to 1 %", "1 to 10 %", "10 % and more"][rate]
                ),
            ),
            (2, bursts.to_string()),
            (3, format!("a burst every {:02} steps", l.burst)),
            (4, format!("{:02} sites", l.sites)),
            (5, format!("{:03} steps", d.steps)),
            (6, if l.side { "side stream" } else { "main stream" }.to_string()),
            (7, if l.decays { "rate decays" } else { "rate holds" }.to_string()),
        ] {
            let g = groups.entry(key).or_default();
            g[0] += 1;
            g[1] += u32::from(said.named.is_some());
            g[2] += u32::from(said.loud.is_some());
            g[3] += u32::from(must);
            g[4] += u32::from(must && said.named.is_some());
        }
    }
    let n = seeds.end - seeds.start;
    println!("healthy: {} of {n} accused: {accused:?}", accused.len());
    println!(
        "| leaks | drawn | named | as warning or alert | must be found | of these named |\n|---|---|---|---|---|---|"
    );
    for ((_, name), g) in &groups {
        println!("| {name} | {} | {} | {} | {} | {} |", g[0], g[1], g[2], g[3], g[4]);
    }
    println!("missed: {missed:?}");
    assert!(accused.len() as u64 * 10_000 <= 3 * n.max(10_000) && missed.is_empty());
}

/// Jobs of other shapes (of one, with `STRANDLINE_SHAPE`) that leak nothing: `STRANDLINE_SEEDS=FROM..TO nice -n 19 cargo test --release -p strandline --test
/// detect_streams other_shapes -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement: needs STRANDLINE_SEEDS=FROM..TO"]
fn other_shapes() {
    let mut worst = 0;
    let only = std::env::var("STRANDLINE_SHAPE").unwrap_or_default();
    for shape in healthy::SHAPES.into_iter().filter(|s| s.0.contains(&only)) {
        let said = each(seeds(), |seed| (seed, Said::of(&healthy::draw(shape, seed)).accused));
        let n = said.len();
        let accused: Vec<_> = said.into_iter().filter_map(|s| Some((s.0, s.1?))).collect();
        println!("{}: {} of {n} accused", shape.0, accused.len());
        accused.iter().take(40).for_each(|(seed, a)| println!("  {seed}: {a:?}"));
        worst = worst.max(accused.len());
    }
    assert!(worst as u64 * 400 <= seeds().count() as u64, "{worst}");
}

/// Leaks of other shapes: `STRANDLINE_SEEDS=FROM..TO nice -n 19 cargo test --release -p strandline --test detect_streams
/// other_leaks -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement: needs STRANDLINE_SEEDS=FROM..TO"]
fn other_leaks() {
    println!(
        "| leak | drawn | named | as warning or alert | must be found | of these named | accused beside it |\n|---|---|---|---|---|---|---|"
    );
    let mut missed = Vec::new();
    for kind in leaks::KINDS {
        let all = each(seeds(), |seed| {
            let (mut d, bursts) = leaks::draw(kind, seed);
            let said = Said::of(&d);
            d.items = Vec::new();
            (seed, d, bursts, said)
        });
        let mut g = [0u32; 6];
        for (seed, d, bursts, said) in &all {
            let must = leaks::must_be_found(d, *bursts);
            let other = said.accused.is_some() && said.loud.is_none();
            let counts =
                [true, said.named.is_some(), said.loud.is_some(), must, must && said.named.is_some(), other];
            g.iter_mut().zip(counts).for_each(|(n, yes)| *n += u32::from(yes));
            if must && said.named.is_none() {
                missed.push((kind.0, *seed, d.steps, d.leak.clone(), *bursts));
            }
        }
        println!("| {} | {} |", kind.0, g.map(|n| n.to_string()).join(" | "));
    }
    missed.iter().for_each(|m| println!("missed: {m:?}"));
    assert!(missed.iter().all(|m| m.2 < LONG), "only runs too short for it may be missed");
}

/// Error rates over synthetic streams: `STRANDLINE_SYNTHETIC` names a folder of files that `synthetic.py
/// SEED` wrote. Prints each mistake and a summary.
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

/// Outcomes of synthetic streams; `material` leaks fill the card within 10,000 steps, in runs of 40 steps or
/// more.
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

/// Events per second of replay and judgement together, on one core: the recorded TRL job again and again, and
/// one job that leaks all the while. Run with `cargo test --release -p strandline --test detect_streams
/// throughput -- --ignored --nocapture`.
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
