//! Whole reports, held against files: `UPDATE_GOLDEN=1 cargo test` writes them anew, and the diff is read.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

mod doors;
mod job;
mod killed;
mod later;
mod many;

use self::job::{CALL, FORWARD, GIB, Job, Judged, MAIN, MIB, STASH, as_known, rank};
use super::*;
use crate::detect::{
    Detector, Finding, GrainName, Kind, Outcome, SecondsToOom, StepsToOom, Testimony, Verdict, judge,
};
use crate::event::{
    Addr, Block, Body, Bytes, DeviceId, DriverMemory, Event, Fault, Frame, Item, Names, Nanos, Phase,
    SegmentOp, StackId, StreamHandle, ThreadId, Totals,
};
use crate::replay::Replay;

/// A kernel that failed an assertion.
const FAULT: Fault =
    Fault { call: 31, status: 710, device: DeviceId(0), stream: StreamHandle(0), stack: StackId(CALL) };
/// More steps than a job has that fills the card.
const FULL: u64 = 99;

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
    json::write(&mut out, r).unwrap();
    same(&format!("{name}.json"), &String::from_utf8(out).unwrap());
}

/// The report for programs.
fn value(r: &Report<'_>) -> Value {
    let mut out = Vec::new();
    json::write(&mut out, r).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// The text as one line.
fn one_line(r: &Report<'_>) -> String {
    let mut out = Vec::new();
    text::write(&mut out, r, Style::default()).unwrap();
    String::from_utf8(out).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
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
        pair("strandline snapshot", "for pytorch.org/memory_viz"),
        pair("strandline report --format json", "for scripts"),
    ]
}

/// The report on one process that ended with this status.
fn ended(process: Process<'_>, status: i32) -> Report<'_> {
    Report {
        processes: vec![process],
        exit: Some(Exit { status, own: true }),
        next: next(),
        ..Report::default()
    }
}

/// What keeps it is known: that it may be cycles is not said.
#[test]
fn a_leak_that_filled_the_card() {
    let j = Job::new().train(FULL, STASH[0], 0).judged(as_known, Ended::Exit);
    assert!(j.findings[0].explain.ends_with(crate::detect::UNCOLLECTED));
    let mut p = j.process();
    p.cost = Cost {
        step_time_fraction: Some(0.003),
        host: Some(Bytes(19 * MIB)),
        disk: Some(Bytes(2_411_725)),
        probe: None,
    };
    reads("leak_oom", &ended(p, 1));
}

/// Beside it something grew until it was full.
#[test]
fn a_leak_that_still_runs() {
    let j = Job::new().train(13, STASH[0], 64 * MIB).train(17, STASH[0], 0).judged(as_known, Ended::Running);
    let again = ("strandline report".to_owned(), "run this again when the job has ended".to_owned());
    reads(
        "leak_running",
        &Report { processes: vec![j.process()], exit: None, next: vec![again], ..Report::default() },
    );
}

/// What GROWING means is said below the first line.
#[test]
fn what_grows_is_not_called_a_leak_yet() {
    let j = Job::new().train(20, 0, 64 * MIB).judged(as_known, Ended::Exit);
    let mut p = j.process();
    p.known[0].held_by = HeldBy::Skipped("the search took too long".into());
    reads("growing", &ended(p, 0));
}

/// The driver was not asked: what is outside of PyTorch is one lump.
#[test]
fn no_leak() {
    let mut j = Job::new();
    j.asks = false;
    reads("clean", &ended(j.train(20, 0, 0).judged(as_known, Ended::Exit).process(), 0));
}

#[test]
fn too_few_steps_are_not_judged() {
    let mut j = Job::new();
    j.give(Item::Meta(json!({"stacks_undefined": 3})));
    (0..3).for_each(|_| assert!(j.alloc(16 * MIB, MAIN, 0).is_some()));
    reads("too_short", &ended(j.train(5, 0, 0).judged(as_known, Ended::Exit).process(), 0));
}

/// What was measured of an empty process has a name of its own.
#[test]
fn a_context_that_was_measured_has_its_name() {
    let j = Job::new().train(20, 0, 0).judged(as_known, Ended::Exit);
    let mut p = j.process();
    let of = |mib: u64| Context {
        bytes: Bytes(mib * MIB),
        driver: "580.95.05".into(),
        measured: "2026-11-22".into(),
    };
    p.contexts.insert(DeviceId(0), of(450));
    reads("context", &ended(p.clone(), 0));
    // More than there is room for was measured of something else.
    p.contexts.insert(DeviceId(0), of(600));
    let text = one_line(&ended(p, 0));
    assert!(!text.contains("CUDA context") && text.contains("CUDA and libraries 0.5"), "{text}");
}

#[test]
fn blind_is_not_clean() {
    let (mut replay, names) = (Replay::new(), Names::default());
    let reason = "PyTorch is built without symbols";
    let mut give = |item| replay.apply(&item, &names);
    give(Item::Meta(json!({"pid": 7, "coverage": {"level": "segments", "reason": reason}})));
    for second in 1..=8 {
        let (device, addr, size) = (DeviceId(0), Addr(second << 40), Bytes(20 * MIB));
        let segment = Body::Segment {
            op: SegmentOp::Alloc,
            device,
            addr,
            size,
            stream: MAIN,
            pool: Default::default(),
        };
        let body = if second < 8 { segment } else { Body::Gap { lost: 12 } };
        give(Item::Event(Event { time: Nanos(second * 1_000_000_000), thread: ThreadId(0), body }));
    }
    let v = judge(&replay, &Detector::default());
    let mut p = Process::new(&replay, &names, &v, &[]);
    p.damage = vec!["4096 bytes are not valid recording data (at byte 81920)".into()];
    p.ended = Ended::Signal(9);
    reads("blind", &Report { processes: vec![p], exit: None, ..Report::default() });
}

/// A batch that is larger than those before it.
fn out_of_memory(mut j: Job) -> Judged {
    j.train(14, 0, 0);
    while j.alloc(3 * GIB, MAIN, FORWARD).is_some() {}
    j.judged(as_known, Ended::Exit)
}

#[test]
fn a_step_that_is_larger_than_others_runs_out_of_memory() {
    reads("oom", &ended(out_of_memory(Job::new()).process(), 1));
}

/// Nothing is said of leaks.
#[test]
fn a_job_that_is_larger_than_the_card_runs_out_of_memory() {
    let mut j = Job::new();
    j.step(20 * GIB, 0, 0);
    reads("out_of_memory", &ended(j.judged(as_known, Ended::Exit).process(), 1));
}

#[test]
fn a_kernel_that_fails_leads() {
    let mut j = Job::new();
    j.train(14, 0, 0).alloc(4 * GIB, MAIN, FORWARD);
    j.event(Body::Failed(FAULT));
    reads("cuda_error", &ended(j.judged(as_known, Ended::Exit).process(), 1));
}

#[test]
fn several_ranks_are_one_report() {
    let ranks = [0, 1, 2].map(|i| rank(i, 3, i < 2));
    let processes = ranks.iter().map(Judged::process).collect();
    reads("ranks", &Report { processes, exit: None, next: next(), ..Report::default() });
}

/// The names of the contract: every key of schema 1 is there, in every report.
#[test]
fn every_key_of_the_schema_is_there() {
    let j = Job::new().train(FULL, STASH[0], 0).judged(as_known, Ended::Exit);
    let v = value(&Report { processes: vec![j.process()], ..Report::default() });
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
        "at weights gradients optimizer activations temporaries left_behind growing suppressed cached libraries other_processes free",
    );
    has("/processes/0/devices/0/per_step/0", "step allocated_bytes reserved_bytes pending_bytes peak_bytes");
    has(
        "/processes/0/findings/0",
        "kind severity grain device stream first_step detected_step withdrawn_step bytes_per_step blocks_per_step \
         current_bytes_per_step bytes_now blocks_now newest_steps_not_counted steps_to_oom explain held_by kept_at kept_too \
         modified_source fix sites",
    );
    has("/processes/0/findings/0/stream", "id handle side epoch");
    has("/processes/0/findings/0/steps_to_oom", "low mid high");
    has("/processes/0/findings/0/held_by", "status holders reason details");
    has("/processes/0/findings/0/sites/0", "share your_line frames");
    has("/processes/0/findings/0/sites/0/frames/0", "file line function");
}
