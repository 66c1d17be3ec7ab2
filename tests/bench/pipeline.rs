//! A recording of a hundred million events: written once, then read, replayed and judged on one core.
//!
//! ```sh
//! export STRANDLINE_BIG=/tmp/big.strand   # some 300 MB
//! cargo test --release -p strandline --test recording big_is_written -- --ignored --nocapture
//! taskset -c 0 cargo test --release -p strandline --test recording big_is_judged -- --ignored --nocapture
//! ```

use crate::job::{BEGAN, Job, WHO, leakbench};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use strandline::detect::{Detector, Policy};
use strandline::event::{CodeDef, CodeId, StackId};
use strandline::format::definition::{put_code, put_stack};
use strandline::format::header::Header;
use strandline::format::raw::{Kind, Record, flag};
use strandline::format::region::Geometry;
use strandline::reader::{Batch, Reader};
use strandline::replay::Replay;
use strandline::writer::{Memory, Options, Sink, Writer};

/// A recording on disk.
struct Disk(File);

impl Sink for Disk {
    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, place)
    }
}

fn big() -> PathBuf {
    std::env::var_os("STRANDLINE_BIG").expect("STRANDLINE_BIG=FILE").into()
}

/// A line of its own for each stack of the recorded job, reached through three others.
fn define_lines(job: &Job) {
    let mut b = Vec::new();
    for n in 1..=1000 {
        b.clear();
        let code = CodeDef {
            id: CodeId(n),
            file: format!("/job/model{}.py", n % 20),
            function: "forward".to_owned(),
            first_line: n,
            line_table: vec![4, 1, 4, 1, 4, 1],
            python_minor: 10,
        };
        put_code(&mut b, &code);
        let frames = [0, n / 2, n / 3, n / 4].map(|k| (CodeId((n - k).max(1)), 4));
        put_stack(&mut b, StackId(n), frames.into_iter(), false);
        assert!(job.region.define(&b));
    }
}

/// The recorded job again and again, each time freeing at its end what it left: a run of many thousand steps that
/// holds at no time more than the real one.
#[test]
#[ignore = "writes 300 MB: needs STRANDLINE_BIG=FILE"]
fn big_is_written() {
    let events: u64 =
        std::env::var("STRANDLINE_EVENTS").map_or(100_000_000, |n| n.parse().expect("a number"));
    let geometry = Geometry { lanes: 15, records: 32_768, overflow: 4096, definitions: 1 << 20 };
    let options = || Options { max_size: None, ..Options::default() };
    let mut job = Job::new(geometry, 1, options(), Memory::default());
    let mut writer = {
        let header = Header { who: WHO, tail: None, unix_ns: 1, provenance: serde_json::json!({}) };
        Writer::new(Disk(File::create(big()).expect("a file")), &header, options()).expect("a writer")
    };
    define_lines(&job);
    let mut records = leakbench(Path::new("tests/leakbench/events/a_offload_vl_fixed.events.gz"), &mut job);
    let mut live: BTreeMap<u64, Record> = BTreeMap::new();
    let mut segments: BTreeMap<u64, Record> = BTreeMap::new();
    for r in &records {
        match Kind::from_u8(r.kind) {
            Some(Kind::Alloc) => live.insert(r.a, *r),
            Some(Kind::FreeRequested) => live.remove(&r.a),
            Some(Kind::SegmentAlloc) => segments.insert(r.a, *r),
            Some(Kind::SegmentFree) => segments.remove(&r.a),
            _ => None,
        };
    }
    let left =
        |r: &Record, kind: Kind, flags| Record { kind: kind as u8, flags, allocated: 0, reserved: 0, ..*r };
    let free = live.values().map(|r| left(r, Kind::FreeRequested, flag::COMPLETED));
    let back = segments.values().map(|r| left(r, Kind::SegmentFree, 0));
    for r in free.chain(back).collect::<Vec<_>>() {
        records.push(job.stamp(r, 1000));
    }
    let (length, mut at, mut sequence, mut step, mut told) = (job.now - BEGAN, BEGAN, 0, 0, 0);
    for round in 0.. {
        for r in &records {
            let mut r = *r;
            r.ticks += round * length;
            if r.kind <= Kind::SegmentUnmap as u8 {
                let rounded = r.rounded();
                r.set_sequence(sequence);
                r.set_rounded(rounded);
                sequence = sequence.wrapping_add(1);
            } else if r.kind == Kind::ManualStep as u8 {
                step += 1;
                r.a = step;
            }
            told += 1 + u64::from(r.flags & flag::COMPLETED != 0);
            assert!(job.lanes[0].push(r), "swept in time");
            // The drain looks every 10 ms.
            if r.ticks - at > 10_000_000 {
                (at, job.now) = (r.ticks, r.ticks);
                let now = job.moment();
                writer.sweep(&mut job.drain, now).expect("room on the disk");
            }
        }
        if told >= events {
            break;
        }
    }
    let now = job.moment();
    writer.end(&mut job.drain, now, &serde_json::json!({"ended": "exit"})).expect("an end");
    println!("{told} events, {step} steps, {} MB", big().metadata().expect("a file").len() / 1_000_000);
}

/// Peak of this process's resident memory, MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Processor time of this process so far, seconds (field 14 and 15 of its `stat`, in hundredths).
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |s| s.1).split_whitespace();
    fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Read, replayed and judged at every step, as `strandline report` does it.
#[test]
#[ignore = "a measurement: needs STRANDLINE_BIG=FILE"]
fn big_is_judged() {
    let (begin, used) = (Instant::now(), processor());
    let mut reader = Reader::open(big()).expect("a recording");
    let mut read = 0;
    while let Some(b) = reader.next_batch() {
        if let Batch::Events(e) = b {
            read += e.len() as u64;
        }
    }
    let reading = (begin.elapsed().as_secs_f64(), processor() - used);
    assert_eq!(reader.damage(), []);
    drop(reader);
    let (begin, used) = (Instant::now(), processor());
    let mut reader = Reader::open(big()).expect("a recording");
    let (mut replay, mut detector) = (Replay::new(), Detector::new(Policy::default()));
    loop {
        // The names are needed only beside an item.
        let item = match reader.next_batch() {
            None => break,
            Some(Batch::Events(events)) => {
                for e in events {
                    let p = replay.apply_event(e);
                    detector.after(p, &replay);
                }
                continue;
            }
            Some(Batch::Item(item)) => item,
        };
        let p = replay.apply(&item, reader.names());
        detector.after(p, &replay);
    }
    detector.at_step(&replay);
    let all = (begin.elapsed().as_secs_f64(), processor() - used);
    assert_eq!((replay.events(), replay.inconsistencies()), (read, &[][..]));
    let n = read as f64 / 1e6;
    println!(
        "{n:.1} M events, {} steps, {} cohorts, {} MiB resident at most, {} lost",
        replay.steps(),
        replay.cohorts().len(),
        resident(),
        replay.lost(),
    );
    for (what, (wall, cpu)) in [("read", reading), ("read, replayed, judged", all)] {
        println!(
            "{what}: {wall:.1} s, {:.1} M/s; {cpu:.1} s of processor time, {:.1} M/s",
            n / wall,
            n / cpu
        );
    }
    for f in detector.findings().iter().filter(|f| f.withdrawn_step.is_none()) {
        println!("{:?} {:?}: {}", f.severity, f.kind, f.explain);
    }
}
