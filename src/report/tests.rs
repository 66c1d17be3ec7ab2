//! Whole reports, held against files: `UPDATE_GOLDEN=1 cargo test` writes them anew, and the diff is read.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

mod doors;
mod killed;
mod many;

use super::*;
use crate::detect::{
    Certainty, Evidence, Finding, FindingSite, GrainName, Kind, Outcome, SecondsToOom, SelfFault, Severity,
    StepsToOom, StreamRef, UNCOLLECTED, Verdict,
};
use crate::event::{
    Addr, Block, Body, Bytes, DeviceId, DriverMemory, Event, Fault, Frame, Item, Names, Nanos, Phase,
    SegmentOp, StackId, StreamHandle, ThreadId, Totals,
};
use crate::replay::anatomy::{Anatomy, At};
use crate::replay::{Replay, SiteKind};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const SIDE: StreamHandle = StreamHandle(0x5581_1c00);
const TRL: &str = "/opt/env/lib/python3.12/site-packages/trl/models/activation_offloading.py";

/// A job that a test makes up: events with times, and totals that add up.
struct Job {
    replay: Replay,
    names: Names,
    time: u64,
    next: u64,
    totals: [u64; 2],
    step: u64,
}

impl Job {
    fn new(rank: u64) -> Job {
        let mut names = Names::default();
        let frame =
            |file: &str, line, function: &str| Frame { file: file.into(), line, function: function.into() };
        let yours = frame("/home/u/job/train.py", 88, "<module>");
        names.add_stack(
            StackId(1),
            [frame(TRL, 430, "OffloadActivations.unpack_tensor_with_streams"), yours.clone()],
        );
        names.add_stack(StackId(2), [frame("/home/u/job/model.py", 12, "Model.forward"), yours]);
        let mut j =
            Job { replay: Replay::new(), names, time: 0, next: 0x7f00_0000_0000, totals: [0; 2], step: 0 };
        j.give(Item::Meta(json!({
            "command": ["python", "train.py", "vl.yaml"], "cwd": "/home/u/job", "host": "node7", "pid": 4711 + rank,
            "rank": rank, "framework": "torch 2.11.0", "allocator": "native", "coverage": {"level": "blocks", "reason": null},
            "devices": [{"index": 0, "name": "RTX 3090", "capacity_bytes": 24 * GIB}],
        })));
        j.give(Item::Stack(StackId(1)));
        j.give(Item::Stack(StackId(2)));
        j
    }

    fn give(&mut self, item: Item) {
        self.replay.apply(&item, &self.names);
    }

    fn event(&mut self, body: Body) {
        self.time += 1_000_000;
        self.give(Item::Event(Event { time: Nanos(self.time), thread: ThreadId(0), body }));
    }

    fn segment(&mut self, size: u64) {
        let addr = Addr(self.next);
        self.totals[1] += size;
        let (device, stream) = (DeviceId(0), StreamHandle(0));
        self.event(Body::Segment {
            op: SegmentOp::Alloc,
            device,
            addr,
            size: Bytes(size),
            stream,
            pool: Default::default(),
        });
    }

    fn alloc(&mut self, size: u64, stream: StreamHandle, stack: u32, backward: bool) -> Block {
        let block = Block {
            addr: Addr(self.next),
            size: Bytes(size),
            rounded: Bytes(size),
            stream,
            stack: StackId(stack),
            phase: Phase { backward, ..Phase::default() },
            ..Block::default()
        };
        self.next += size;
        self.totals[0] += size;
        self.event(Body::Alloc(Block { totals: self.now(), ..block }));
        block
    }

    fn free(&mut self, b: Block) {
        self.totals[0] -= b.rounded.0;
        self.event(Body::FreeRequested(Block { stack: StackId(0), totals: None, ..b }));
        self.event(Body::FreeCompleted(Block { stack: StackId(0), totals: self.now(), ..b }));
    }

    fn now(&self) -> Option<Totals> {
        Some(Totals { allocated: Bytes(self.totals[0]), reserved: Bytes(self.totals[1]) })
    }

    /// A step: activations come and go, and `left` bytes of a side stream stay.
    fn train(&mut self, steps: u64, left: u64) {
        for _ in 0..steps {
            let activations = self.alloc(4 * GIB, StreamHandle(0), 2, false);
            if left > 0 {
                self.alloc(left, SIDE, 1, true);
            }
            self.free(activations);
            self.time += 11_000_000_000;
            self.step += 1;
            self.event(Body::ManualStep(self.step));
        }
    }

    fn fail(&mut self) {
        self.alloc(4 * GIB, StreamHandle(0), 2, true);
        let (device, stream, stack) = (DeviceId(0), StreamHandle(0), StackId(2));
        self.event(Body::Oom { device, requested: Bytes(148 * MIB), free: Bytes(90 * MIB), stream, stack });
    }

    fn site(&self, line: u32) -> crate::event::SiteId {
        self.replay.sites().iter().find(|s| s.frame.line == line).expect("the line allocated").id
    }

    fn leak(&self) -> Finding {
        let site = |line, share, blocks_now, bytes_now| FindingSite {
            site: self.site(line),
            share,
            blocks_now,
            bytes_now,
            of_optimizer: None,
        };
        Finding {
            kind: Kind::LiveAfterStreamExit,
            id: 1,
            certainty: Certainty::Leak,
            evidence: vec![Evidence::new("blocks that are kept", 1116.0)],
            bound: None,
            severity: Severity::Alert,
            urgency: Severity::Alert,
            grain: GrainName::Step,
            device: DeviceId(0),
            stream: Some(StreamRef { id: crate::event::StreamId(1), handle: SIDE, side: true, epoch: 0 }),
            first_step: 1,
            detected_step: 4,
            withdrawn_step: None,
            suppressed_by: None,
            established: true,
            bytes_per_step: 285.0 * MIB as f64,
            blocks_per_step: 62.0,
            current_bytes_per_step: 300.0 * MIB as f64,
            bytes_now: 5 * GIB,
            blocks_now: 1116,
            steps_to_oom: Some(StepsToOom { low: 54, mid: 62, high: u64::MAX }),
            seconds_to_oom: None,
            last_step: 19,
            explain: "1,116 of 1,116 blocks from this line are still live, the oldest for 18 steps; their stream was \
                      left after each"
                .into(),
            sites: vec![site(430, 0.97, 1083, 5 * GIB), site(12, 0.03, 33, 150 * MIB)],
        }
    }
}

fn verdict(outcome: Outcome, reason: &str) -> Verdict {
    Verdict::new(outcome, reason)
}

/// The verdict on a process whose first finding is a leak.
fn leaks() -> Verdict {
    let reason = "285 MiB more every step since step 1 on GPU 0";
    Verdict { finding: Some(0), ..Verdict::new(Outcome::Leak, reason) }
}

fn filled(step: u32, at: At) -> Moment {
    let mib = |n: u64| Bytes(n * MIB);
    let anatomy = Anatomy {
        step,
        weights: mib(6246),
        gradients: mib(102),
        optimizer: mib(205),
        activations: mib(10547),
        temporaries: mib(300),
        left_behind: mib(5427),
        other: mib(417),
        cached: mib(102),
        allocated: mib(23244),
        reserved: mib(23346),
        libraries: Some(mib(512)),
        other_processes: Some(mib(300)),
        free: Some(mib(418)),
        ..Anatomy::default()
    };
    Moment { device: DeviceId(0), at, anatomy }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/report").join(name)
}

#[track_caller]
fn same(name: &str, text: &str) {
    let path = golden(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{} is now:\n{text}", path.display());
}

/// The text at 100 columns is a file's; from 60 to 200 nothing sticks out, in ASCII neither.
#[track_caller]
fn reads(name: &str, r: &Report<'_>) {
    let mut annotations = Vec::new();
    ci::github(&mut annotations, r, "/home/u").unwrap();
    same(&format!("{name}.github"), &String::from_utf8(annotations).unwrap());
    for width in [100, 80, 60, 120, 200] {
        let written = |ascii| {
            let mut out = Vec::new();
            text::write(&mut out, r, Style { width, ascii, ..Style::default() }).unwrap();
            String::from_utf8(out).unwrap()
        };
        let [text, ascii] = [false, true].map(written);
        assert!(ascii.is_ascii(), "{name}: {ascii}");
        for l in text.lines().chain(ascii.lines()) {
            assert!(l.chars().count() <= width, "{name} at {width} columns: {l}");
        }
        if width == 100 {
            same(&format!("{name}.txt"), &text);
        }
        let mut coloured = Vec::new();
        text::write(&mut coloured, r, Style { colour: true, width, ascii: false }).unwrap();
        assert_eq!(plain(&String::from_utf8(coloured).unwrap()), text, "{name}: colour changes the text");
    }
    let mut out = Vec::new();
    json::write(&mut out, r, true).unwrap();
    same(&format!("{name}.json"), &String::from_utf8(out).unwrap());
}

fn plain(coloured: &str) -> String {
    let mut out = String::new();
    let mut rest = coloured;
    while let Some(i) = rest.find('\x1b') {
        out.push_str(&rest[..i]);
        rest = rest[i..].split_once('m').unwrap().1;
    }
    out + rest
}

fn next() -> Vec<(String, String)> {
    let pair = |c: &str, w: &str| (c.to_owned(), w.to_owned());
    vec![
        pair("strandline snapshot --at end", "for pytorch.org/memory_viz"),
        pair("strandline report --format json", "the same for programs"),
    ]
}

#[test]
fn a_leak_that_filled_the_card() {
    let mut j = Job::new(0);
    j.segment(23 * GIB);
    j.alloc(6 * GIB, StreamHandle(0), 2, false);
    j.train(18, 285 * MIB);
    j.fail();
    let v = leaks();
    // What keeps it is known: that it may be cycles is not said.
    let leak = j.leak();
    let findings = [Finding { explain: leak.explain.clone() + UNCOLLECTED, ..leak }];
    let mut p = Process::new(&j.replay, &j.names, &v, &findings);
    p.known = vec![Known {
        held_by: HeldBy::Found(vec![Holder {
            name: "OffloadActivations.bwd_tensor_stash".into(),
            kind: "dict".into(),
            entries: Some(1116),
            share: 1.0,
            ..Holder::default()
        }]),
        fix: Some(Fix {
            known: "huggingface/trl#5700".into(),
            text: "fixed in trl 1.4.0 (you have 1.3.0)".into(),
        }),
        ..Known::default()
    }];
    p.anatomies = vec![filled(19, At::Oom)];
    p.cost = Cost {
        step_time_fraction: Some(0.003),
        host: Some(Bytes(19 * MIB)),
        disk: Some(Bytes(2_411_725)),
        probe: None,
    };
    p.ended = Ended::Exit;
    reads(
        "leak_oom",
        &Report { processes: vec![p], exit: Some(Exit { status: 1, own: true }), next: next() },
    );
}

#[test]
fn a_leak_that_still_runs() {
    let mut j = Job::new(0);
    j.segment(16 * GIB);
    j.train(30, 100 * MIB);
    let v = leaks();
    let withdrawn = Finding { withdrawn_step: Some(20), kind: Kind::StepGrowth, ..j.leak() };
    let info = Finding {
        severity: Severity::Info,
        bytes_per_step: 512.0,
        blocks_per_step: 1.0,
        bytes_now: 14_848,
        ..j.leak()
    };
    let findings = [j.leak(), withdrawn, info];
    let mut p = Process::new(&j.replay, &j.names, &v, &findings);
    p.ended = Ended::Running;
    p.known =
        vec![Known { held_by: HeldBy::Skipped("more than 2,000,000 objects".into()), ..Known::default() }];
    reads("leak_running", &Report { processes: vec![p], exit: None, next: next() });
}

#[test]
fn no_leak() {
    let mut j = Job::new(0);
    j.segment(12 * GIB);
    j.alloc(6 * GIB, StreamHandle(0), 2, false);
    j.train(5, 0);
    j.give(Item::Driver(DriverMemory {
        time: Nanos(0),
        device: DeviceId(0),
        total: Bytes(24 * GIB),
        free: Bytes(11 * GIB),
        process: None,
    }));
    let v = verdict(Outcome::Clean, "nothing grows over 5 steps");
    let mut p = Process::new(&j.replay, &j.names, &v, &[]);
    // The driver told the total alone: the rest of the card is one lump.
    let mut m = filled(3, At::Peak);
    m.anatomy = Anatomy {
        left_behind: Bytes(0),
        libraries: None,
        other_processes: None,
        free: None,
        ..m.anatomy.clone()
    };
    p.anatomies = vec![m];
    reads(
        "clean",
        &Report { processes: vec![p], exit: Some(Exit { status: 0, own: true }), next: Vec::new() },
    );
}

/// What was measured of an empty process has a name of its own, whether the driver tells what this one holds or not.
#[test]
fn a_context_that_was_measured_has_its_name() {
    let mut j = Job::new(0);
    j.segment(12 * GIB);
    j.alloc(6 * GIB, StreamHandle(0), 2, false);
    j.train(5, 0);
    let v = verdict(Outcome::Clean, "nothing grows over 5 steps");
    let mut p = Process::new(&j.replay, &j.names, &v, &[]);
    let of = |mib: u64| Context {
        bytes: Bytes(mib * MIB),
        driver: "580.95.05".into(),
        measured: "2026-11-22".into(),
    };
    p.contexts.insert(DeviceId(0), of(450));
    let told = filled(3, At::Peak);
    let mut untold = filled(3, At::Oom);
    untold.anatomy =
        Anatomy { libraries: None, other_processes: None, free: Some(Bytes(300 * MIB)), ..untold.anatomy };
    p.anatomies = vec![told, untold];
    reads("context", &Report { processes: vec![p.clone()], exit: None, next: Vec::new() });
    // More than there is room for was measured of something else.
    p.contexts.insert(DeviceId(0), of(600));
    let mut out = Vec::new();
    p.anatomies.truncate(1);
    text::write(&mut out, &Report { processes: vec![p], exit: None, next: Vec::new() }, Style::default())
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("CUDA context") && text.contains("CUDA and libraries 0.5"), "{text}");
}

#[test]
fn blind_is_not_clean() {
    let mut replay = Replay::new();
    let names = Names::default();
    replay.apply(
        &Item::Meta(json!({"pid": 7, "stacks_undefined": 3, "coverage": {"level": "segments", "reason": "PyTorch is built without symbols"}})),
        &names,
    );
    let body = Body::Segment {
        op: SegmentOp::Alloc,
        device: DeviceId(0),
        addr: Addr(1 << 40),
        size: Bytes(20 * MIB),
        stream: StreamHandle(0),
        pool: Default::default(),
    };
    replay.apply(&Item::Event(Event { time: Nanos(1), thread: ThreadId(0), body }), &names);
    replay.apply(
        &Item::Event(Event { time: Nanos(2), thread: ThreadId(0), body: Body::Gap { lost: 12 } }),
        &names,
    );
    let v = verdict(Outcome::Unknown, "only segments were seen, no block");
    let mut p = Process::new(&replay, &names, &v, &[]);
    p.damage = vec!["page 17 at byte 81920 is torn: 4096 bytes skipped.".into()];
    p.ended = Ended::Signal(9);
    reads("blind", &Report { processes: vec![p], exit: None, next: Vec::new() });
}

#[test]
fn out_of_memory_without_a_leak() {
    let mut j = Job::new(0);
    j.segment(4 * GIB);
    j.train(4, 0);
    (0..3).for_each(|_| {
        j.segment(5 * GIB);
        j.alloc(5 * GIB, StreamHandle(0), 2, false);
    });
    j.fail();
    let v = verdict(Outcome::Oom, "a batch of 4.8× the median: step 5 needed more");
    let mut p = Process::new(&j.replay, &j.names, &v, &[]);
    let mut m = filled(5, At::Oom);
    m.anatomy.left_behind = Bytes(0);
    p.anatomies = vec![m];
    reads("oom", &Report { processes: vec![p], exit: Some(Exit { status: 1, own: true }), next: next() });
}

#[test]
fn several_ranks_are_one_report() {
    let mut jobs: Vec<Job> = (0..3).map(Job::new).collect();
    for (i, j) in jobs.iter_mut().enumerate() {
        j.segment(16 * GIB);
        j.train(12, if i < 2 { 100 * MIB } else { 0 });
    }
    let leak = leaks();
    let clean = verdict(Outcome::Clean, "nothing grows over 12 steps");
    let findings = [[jobs[0].leak()], [jobs[1].leak()]];
    let mut processes: Vec<Process<'_>> =
        (0..2).map(|i| Process::new(&jobs[i].replay, &jobs[i].names, &leak, &findings[i])).collect();
    processes.push(Process::new(&jobs[2].replay, &jobs[2].names, &clean, &[]));
    reads("ranks", &Report { processes, exit: None, next: next() });
}

/// The names of the contract: every key of schema 1 is there, in every report.
#[test]
fn every_key_of_the_schema_is_there() {
    let mut j = Job::new(0);
    j.segment(23 * GIB);
    j.train(18, 285 * MIB);
    j.fail();
    let v = leaks();
    let findings = [j.leak()];
    let mut p = Process::new(&j.replay, &j.names, &v, &findings);
    p.anatomies = vec![filled(19, At::Oom)];
    let v = json::value(&Report { processes: vec![p], ..Report::default() });
    let has = |pointer: &str, keys: &str| {
        let at = v.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}")).as_object().unwrap();
        for k in keys.split_whitespace() {
            assert!(at.contains_key(k), "{pointer} lacks {k}");
        }
    };
    has("", "schema tool verdict reason command processes");
    has(
        "/processes/0",
        "pid host rank framework allocator coverage ended step_source steps microbatches events events_lost \
         accounting_drift_bytes damage cost devices findings",
    );
    has("/processes/0/coverage", "level reason");
    has("/processes/0/cost", "step_time_fraction host_bytes disk_bytes probe");
    has(
        "/processes/0/devices/0",
        "index name capacity_bytes limit_bytes free_source peak_allocated_bytes peak_reserved_bytes peak_step peak_phase \
         end_allocated_bytes end_reserved_bytes anatomy oom per_step",
    );
    has(
        "/processes/0/devices/0/anatomy",
        "at weights gradients optimizer activations temporaries left_behind cached libraries other_processes free",
    );
    has("/processes/0/devices/0/per_step/0", "step allocated_bytes reserved_bytes pending_bytes peak_bytes");
    has(
        "/processes/0/findings/0",
        "kind severity grain device stream first_step detected_step withdrawn_step bytes_per_step blocks_per_step \
         current_bytes_per_step bytes_now blocks_now steps_to_oom explain held_by kept_at fix sites",
    );
    has("/processes/0/findings/0/stream", "id handle side epoch");
    has("/processes/0/findings/0/steps_to_oom", "low mid high");
    has("/processes/0/findings/0/held_by", "status holders reason details");
    has("/processes/0/findings/0/sites/0", "share your_line frames");
    has("/processes/0/findings/0/sites/0/frames/0", "file line function");
}
