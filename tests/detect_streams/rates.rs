//! Measurements: error rates over synthetic streams, events per second.

use crate::judged::{CARD, Judged, events};
use crate::load::{self, Job};
use strandline::detect::{Detector, Finding, Kind, Policy, Severity};
use strandline::event::{Addr, Block, Body, Event, Item};
use strandline::replay::Replay;

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
