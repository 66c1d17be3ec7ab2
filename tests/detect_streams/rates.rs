//! Measurements: error rates over synthetic streams, events per second.

use crate::judged::{CARD, Judged, events};
use crate::load::{self, Job};
use crate::seen::Seen;
use crate::synthetic::{self, Drawn};
use crate::{fills, healthy, leaks, pauses};
use strandline::detect::{Certainty, Detector, Finding, Kind, Policy};
use strandline::event::{Addr, Block, Body, Event, Item, Names};
use strandline::replay::Replay;

/// Whether the leak must be found: it leaked four times or more, the last of which has outlived its grace; and it is more
/// than a few numbers.
fn must_be_found(d: &Drawn) -> bool {
    let Some(l) = &d.leak else { return false };
    let seen = (d.steps.saturating_sub(l.start + 2)).div_ceil(l.burst);
    seen >= 4 && d.bursts() >= 4 && l.rate >= 4096.0
}

/// Steps of a run in which a leak of any of `leaks`' shapes is found. In shorter ones a line that is freed steps later has not
/// been seen for long enough, and of many lines each has leaked once or twice.
const LONG: u64 = 40;

/// What must hold of a healthy job.
#[track_caller]
fn is_well(name: &str, seed: u64, seen: &Seen) {
    assert_eq!((&seen.leak, &seen.idle), (&None, &None), "{name}, seed {seed}");
}

/// Of how many healthy jobs of a hundred something may be said to grow at the end that does not any more: a few blocks that came
/// at long intervals are not told from others that will go on coming.
const IDLE: usize = 1;

/// A sample of every trait in each run of the tests; the rates themselves are in docs/measurements.md.
#[test]
fn drawn_jobs_are_judged_right() {
    let (mut jobs, mut idle) = (0, Vec::new());
    for seed in 5_000_000..5_000_042 {
        let synthetic = Seen::of(&synthetic::draw(seed, false));
        let pauses = pauses::SHAPES[(seed % 4) as usize];
        let shapes = [healthy::SHAPES[(seed % 9) as usize], fills::SHAPES[(seed / 3 % 14) as usize], pauses];
        let others = shapes.map(|shape| (shape.0, Seen::of(&healthy::draw(shape, seed))));
        for (name, seen) in others.into_iter().chain([("synthetic", synthetic)]) {
            assert_eq!(seen.leak, None, "{name}, seed {seed}");
            idle.extend(seen.idle.map(|said| (name, seed, said)));
            jobs += 1;
        }
        let leaky = synthetic::draw(seed, true);
        let said = Seen::of(&leaky);
        assert!(said.named.is_some() || !must_be_found(&leaky), "seed {seed}: {:?}", leaky.leak);
        let kind = leaks::KINDS[(seed % 7) as usize];
        let (other, bursts) = leaks::draw(kind, seed);
        let must = other.steps >= LONG && leaks::must_be_found(&other, bursts);
        assert!(!must || Seen::of(&other).named.is_some(), "{}, seed {seed}: {:?}", kind.0, other.leak);
        let shape = fills::LEAKS[(seed / 4 % 9) as usize];
        let other = healthy::draw(shape, seed);
        let said = Seen::of(&other);
        assert!(
            other.steps < LONG || said.named.is_some() && said.lost.is_none(),
            "{}, seed {seed}",
            shape.0
        );
        let shape = pauses::LEAKS[(seed / 4 % 4) as usize];
        let other = healthy::draw(shape, seed);
        let said = Seen::of(&other);
        assert!(other.steps < LONG || said.left < 5 || said.named.is_some(), "{}, seed {seed}", shape.0);
    }
    assert!(idle.len() * 100 <= IDLE * jobs, "of {jobs}: {idle:#?}");
}

/// A cache that fills for a hundred steps, and two blocks of garbage that began just now, are not one leak of both rates.
#[test]
fn what_began_just_now_is_no_part_of_what_fills() {
    is_well("synthetic", 20638, &Seen::of(&synthetic::draw(20638, false)));
}

/// Requests that run on while others come and go: the old pages of those that were there before are no part of what has
/// come since (956, 1663), nor are pages that go while others come part of another line's growth (956, 1901). And a buffer that
/// fills faster and faster has not filled at its present pace all the time (1399).
#[test]
fn what_serves_long_requests_is_no_leak() {
    for seed in [956, 1399, 1663, 1901] {
        is_well("serving", seed, &Seen::of(&healthy::draw(("serving", crate::unseen::serving), seed)));
    }
}

/// As many are kept as there are places, and the last one has a name of its own where it finds none: one block more or fewer at a mark
/// is no growth, and what is kept takes the place of what was.
#[test]
fn the_best_of_all_are_no_leak() {
    for seed in [1210073, 1210299] {
        let best = fills::SHAPES.into_iter().find(|s| s.0 == "best").expect("a shape");
        is_well("best", seed, &Seen::of(&healthy::draw(best, seed)));
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

/// What was said of many healthy jobs: mistakes of each kind, and the first seeds of each.
#[derive(Default)]
struct Mistakes {
    jobs: u64,
    leak: Vec<(u64, String)>,
    idle: Vec<(u64, String)>,
    alert: Vec<(u64, String)>,
    again: Vec<(u64, String)>,
    twice: Vec<(u64, String)>,
}

impl Mistakes {
    fn of(all: Vec<(u64, Seen)>) -> Mistakes {
        let mut m = Mistakes { jobs: all.len() as u64, ..Mistakes::default() };
        for (seed, s) in all {
            m.leak.extend(s.leak.map(|l| (seed, format!("{l:?}"))));
            m.idle.extend(s.idle.map(|l| (seed, l)));
            m.alert.extend(s.alert.map(|l| (seed, format!("{l:?}"))));
            m.again.extend(s.again.map(|l| (seed, format!("{l:?}"))));
            m.twice.extend(s.twice.map(|l| (seed, format!("{l:?}"))));
        }
        m
    }

    fn tell(&self, name: &str) {
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} |",
            self.jobs,
            self.leak.len(),
            self.idle.len(),
            self.alert.len(),
            self.again.len(),
            self.twice.len()
        );
        let told = |list: &[(u64, String)], what: &str| {
            list.iter().take(40).for_each(|(seed, l)| println!("    {what} {seed}: {l}"));
        };
        told(&self.leak, "leak");
        told(&self.idle, "idle");
        told(&self.again, "again");
        told(&self.twice, "twice");
    }
}

/// Healthy jobs of every shape (of one, with `STRANDLINE_SHAPE`): `STRANDLINE_SEEDS=FROM..TO nice -n 19 cargo test --release -p strandline
/// --test detect_streams healthy_rates -- --ignored --nocapture`. None may be called a leak at any step, and what grows at the end
/// is what does grow.
#[test]
#[ignore = "a measurement: needs STRANDLINE_SEEDS=FROM..TO"]
fn healthy_rates() {
    println!(
        "| healthy | drawn | leak at any step | growing at the end, but does not | alert at any step | said anew | two findings of one line |"
    );
    let only = std::env::var("STRANDLINE_SHAPE").unwrap_or_default();
    let (mut leak, mut idle, mut jobs) = (0, 0, 0);
    let mut add = |name: &str, m: Mistakes| {
        m.tell(name);
        (leak, idle, jobs) = (leak + m.leak.len() as u64, idle + m.idle.len() as u64, jobs + m.jobs);
    };
    if "synthetic".contains(&only) {
        add("synthetic", Mistakes::of(each(seeds(), |seed| (seed, Seen::of(&synthetic::draw(seed, false))))));
    }
    for shape in
        healthy::SHAPES.into_iter().chain(fills::SHAPES).chain(pauses::SHAPES).filter(|s| s.0.contains(&only))
    {
        add(shape.0, Mistakes::of(each(seeds(), |seed| (seed, Seen::of(&healthy::draw(shape, seed))))));
    }
    println!(
        "{leak} of {jobs} called a leak at some step, {idle} growing at their end though nothing grows there"
    );
    assert!(leak * 10_000 <= jobs && idle * 100 <= IDLE as u64 * jobs);
}

/// Of a leaky job: its seed, whether it must be named, and what was said.
type Said = (u64, bool, Seen);

/// Of a thousand steps from the one on at which a leak was named first, those at which it was not, on average of so many jobs.
fn without(all: &[&Said]) -> f64 {
    let part = |s: &&&Said| f64::from(s.2.stood[1]) / f64::from((s.2.stood[0] + s.2.stood[1]).max(1));
    1000.0 * all.iter().map(|s| part(&s)).sum::<f64>() / all.len().max(1) as f64
}

/// Leaks of every shape (of one, with `STRANDLINE_SHAPE`): `STRANDLINE_SEEDS=FROM..TO nice -n 19 cargo test --release -p strandline --test detect_streams leak_rates
/// -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement: needs STRANDLINE_SEEDS=FROM..TO"]
fn leak_rates() {
    println!(
        "| leak | drawn | named | must be named | of these named | and lost again | not named, of 1,000 steps since |"
    );
    let only = std::env::var("STRANDLINE_SHAPE").unwrap_or_default();
    let (mut must_all, mut named_all, mut missed) = (0u64, 0u64, Vec::new());
    let (mut lost_all, mut silent_all) = ([0u64; 2], [0u64; 2]);
    let mut add = |name: &str, all: Vec<Said>| {
        let named = all.iter().filter(|s| s.2.named.is_some()).count();
        let must: Vec<&Said> = all.iter().filter(|s| s.1).collect();
        let found: Vec<&Said> = must.iter().copied().filter(|s| s.2.named.is_some()).collect();
        let lost = || found.iter().filter_map(|s| Some((s.0, s.2.lost?)));
        let (drawn, n, without) = (all.len(), lost().count(), without(&found));
        println!("| {name} | {drawn} | {named} | {} | {} | {n} | {without:.1} |", must.len(), found.len());
        for (what, all) in [("lost", &mut lost_all), ("silent", &mut silent_all)] {
            let when =
                |s: &Said| if what == "lost" { s.2.lost } else { s.2.silent.filter(|_| s.2.lost.is_none()) };
            for (s, step) in found.iter().filter_map(|s| Some((s, when(s)?))) {
                let is_back = s.2.when.last().is_some_and(|w| w.1 == s.2.steps);
                let end = if is_back { "named at the end" } else { "not named at the end" };
                println!("    {what} {} at {step}: {end} ({}); named in {:?}", s.0, s.2.steps, s.2.when);
                *all = [all[0] + 1, all[1] + u64::from(!is_back)];
            }
        }
        (must_all, named_all) = (must_all + must.len() as u64, named_all + found.len() as u64);
        missed.extend(must.iter().filter(|s| s.2.named.is_none()).map(|s| (name.to_string(), s.0)));
    };
    if "synthetic".contains(&only) {
        let of = |seed| {
            let d = synthetic::draw(seed, true);
            let said = Seen::of(&d);
            (seed, must_be_found(&d), said)
        };
        add("synthetic", each(seeds(), of));
    }
    for kind in leaks::KINDS.into_iter().filter(|k| k.0.contains(&only)) {
        let of = |seed| {
            let (d, bursts) = leaks::draw(kind, seed);
            let said = Seen::of(&d);
            (seed, d.steps >= LONG && leaks::must_be_found(&d, bursts), said)
        };
        add(kind.0, each(seeds(), of));
    }
    for shape in fills::LEAKS.into_iter().chain(pauses::LEAKS).filter(|s| s.0.contains(&only)) {
        let of = |seed| {
            let d = healthy::draw(shape, seed);
            let said = Seen::of(&d);
            // What was level for long is known to rise after a while only.
            let least = if shape.0 == fills::LATE { 20 } else { 5 };
            let leaks =
                said.left >= least || shape.0 == fills::ANEW && said.left_bytes >= 4096 * d.steps as i64;
            (seed, d.steps >= LONG && leaks, said)
        };
        add(shape.0, each(seeds(), of));
    }
    println!("{named_all} of {must_all} named; missed: {:?}", &missed[..missed.len().min(20)]);
    println!(
        "lost at some step of the last third, and at the end: {lost_all:?}; silent then: {silent_all:?}"
    );
    assert!(named_all * 1000 >= must_all * 999);
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
    assert!(t.healthy_false_at_end * 100 <= t.healthy);
    assert!(t.hits * 100 >= t.leaks * 80);
}

/// Outcomes of synthetic streams; `material` leaks fill the card within 10,000 steps, in runs of 40 steps or
/// more.
#[derive(Debug, Default)]
struct Tally {
    streams: u32,
    healthy: u32,
    healthy_false_at_end: u32,
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
            let leak = |f: &&Finding| f.is_active_leak() && f.certainty == Certainty::Leak;
            self.healthy += 1;
            self.healthy_false_at_end += u32::from(j.detector.findings().iter().any(|f| leak(&f)));
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
        let hit = !named.is_empty();
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
