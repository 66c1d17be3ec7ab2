//! Recordings of every format version, kept as they were written: whatever changes, they are read to the same facts.
//!
//! A new version adds files, with `cargo test --test recording -- --ignored freeze`; files of older versions never change.

use crate::job::{Job, Life, noise, read_from};
use std::path::PathBuf;
use strandline::event::{Body, Item, StackId};
use strandline::format::raw::{Kind, Record};
use strandline::format::region::Geometry;
use strandline::writer::{Memory, Options};

const GEOMETRY: Geometry = Geometry { lanes: 2, records: 256, overflow: 64, definitions: 4096 };

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(format!("{name}.strand"))
}

const PLAIN: Facts = Facts {
    events: 2_904,
    allocs: 921,
    alloc_bytes: 42_774_904,
    frees: 884,
    free_bytes: 41_359_872,
    nanos: 55_631_058_526_384,
    gaps: 0,
    dropped: 0,
    last_step: 20,
    damage: 0,
};
const GAP: Facts = Facts {
    events: 2_189,
    allocs: 698,
    alloc_bytes: 31_753_375,
    frees: 665,
    free_bytes: 30_564_352,
    nanos: 20_898_865_287_736,
    gaps: 498,
    dropped: 0,
    last_step: 20,
    damage: 0,
};
const DROPPED: Facts = Facts {
    events: 1_468,
    allocs: 441,
    alloc_bytes: 22_968_049,
    frees: 457,
    free_bytes: 23_875_072,
    nanos: 336_321_445_753_440,
    gaps: 0,
    dropped: 11_213,
    last_step: 120,
    damage: 0,
};

/// Most bytes of the recordings with dropped chunks.
const BOUND: u64 = 40 << 10;

/// What a recording says, in numbers.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    events: u64,
    allocs: u64,
    alloc_bytes: u64,
    frees: u64,
    free_bytes: u64,
    /// Sum of all times: every one of them counts.
    nanos: u64,
    gaps: u64,
    dropped: u64,
    last_step: u64,
    damage: usize,
}

fn facts(name: &str) -> Facts {
    let read = read_from(std::fs::read(path(name)).unwrap(), None);
    let s = read.reader.summary();
    assert!(s.complete);
    assert_eq!(s.ended(), Some("exit"));
    assert_eq!(s.facts["version"], "frozen");
    let frames: Vec<_> = read
        .reader
        .names()
        .frames(StackId(4))
        .map(|f| (f.file.as_str(), f.line, f.function.as_str()))
        .collect();
    assert_eq!(frames, [("train.py", 12, "step"), ("train.py", 11, "step")]);
    assert_eq!(read.reader.names().text(1), Some("warm up"));
    assert!(matches!(read.items.last(), Some(Item::End(_))));
    let mut f = Facts {
        events: read.events.len() as u64,
        allocs: 0,
        alloc_bytes: 0,
        frees: 0,
        free_bytes: 0,
        nanos: 0,
        gaps: 0,
        dropped: s.dropped.iter().map(|d| d.records).sum(),
        last_step: 0,
        damage: read.reader.damage().len(),
    };
    for e in &read.events {
        f.nanos = f.nanos.wrapping_add(e.time.0);
        match e.body {
            Body::Alloc(b) => (f.allocs, f.alloc_bytes) = (f.allocs + 1, f.alloc_bytes + b.size.0),
            Body::FreeRequested(b) => (f.frees, f.free_bytes) = (f.frees + 1, f.free_bytes + b.rounded.0),
            Body::Gap { lost } => f.gaps += lost,
            Body::ManualStep(n) => f.last_step = n,
            _ => {}
        }
    }
    f
}

#[test]
fn version_1_plain() {
    assert_eq!(facts("v1-plain"), PLAIN);
}

#[test]
fn version_1_with_a_gap() {
    assert_eq!(facts("v1-gap"), GAP);
}

#[test]
fn version_1_with_a_dropped_chunk() {
    assert_eq!(facts("v1-dropped"), DROPPED);
}

/// Version 2: as version 1, with the place of dropped pages used again.
#[test]
fn version_2_plain() {
    assert_eq!(facts("v2-plain"), PLAIN);
}

#[test]
fn version_2_with_a_gap() {
    assert_eq!(facts("v2-gap"), GAP);
}

#[test]
fn version_2_with_dropped_chunks() {
    assert_eq!(facts("v2-dropped"), DROPPED);
    assert!(std::fs::metadata(path("v2-dropped")).unwrap().len() <= BOUND);
}

/// `steps` steps of 100 events each; the rings are swept after every step that is not in `unswept`.
fn record(steps: u64, unswept: std::ops::Range<u64>, options: Options) -> Vec<u8> {
    let mut job = Job::new(GEOMETRY, 2, options, Memory::default());
    job.define(5);
    let (mut life, mut random) = (Life::new(), noise(1));
    for step in 1..=steps {
        for i in 0..100 {
            let r = life.next(&mut job, &mut random);
            job.lanes[i % 2].push(r);
        }
        let r = Record { a: step, kind: Kind::ManualStep as u8, ..Record::default() };
        let r = job.stamp(r, 1000);
        job.lanes[0].push(r);
        if !unswept.contains(&step) {
            job.seal();
        }
    }
    job.end()
}

#[test]
#[ignore = "writes tests/recordings/v2-*.strand; only for a new version of the format"]
fn freeze() {
    let unbounded = Options { max_size: None, ..Options::default() };
    let bounded = Options { max_size: Some(BOUND), ..Options::default() };
    let samples = [
        ("v2-plain", record(20, 0..0, unbounded)),
        ("v2-gap", record(20, 5..14, unbounded)),
        ("v2-dropped", record(120, 0..0, bounded)),
    ];
    for (name, bytes) in samples {
        assert!(!path(name).exists(), "{name} is frozen");
        std::fs::write(path(name), bytes).unwrap();
        println!("{name}: {:?}", facts(name));
    }
}
