//! Python frames in every interpreter that is installed here, against the interpreter's own word.
//!
//! No torch is needed but its allocator library, which knows nothing of Python: the programs load it through ctypes.

mod churn;
mod early;
mod interpreters;
mod proof;
mod sub;
#[path = "../support/mod.rs"]
mod support;

use interpreters::Interpreter;
use serde_json::Value;
use std::collections::HashMap;
use strandline::event::{Body, StackId};
use support::{Folder, Job, Ran, Recording, libraries, root};

const CASES: [&str; 8] =
    ["plain", "recursion", "generators", "coroutines", "reuse", "threads", "observed", "begun"];

/// A program of this folder in an interpreter, under the preload.
fn job(folder: &Folder, with: &Interpreter, script: &str, how: &str, cases: &[&str]) -> Job {
    let job = Job::program(folder, &with.path)
        .arg(root().join("tests/frames").join(script))
        .arg(libraries())
        .arg(how)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONIOENCODING", "utf-8");
    cases.iter().fold(job, |j, c| j.arg(c))
}

/// Our lines that say that there are no stacks.
fn refusals(ran: &Ran) -> Vec<String> {
    ran.ours().into_iter().filter(|l| l.ends_with("no stacks")).collect()
}

type Frames = Vec<(String, u32, String)>;

/// What the program said, against the recording. Returns stacks compared, and allocations that have none.
#[track_caller]
fn compare(ran: &Ran, version: &str) -> (usize, usize) {
    let recording = Recording::read(&ran.recording()).whole();
    let mut stacks: HashMap<u64, StackId> = HashMap::new();
    for e in &recording.events {
        if let Body::Alloc(b) = &e.body {
            assert_eq!(stacks.insert(b.size.0, b.stack), None, "{version}: sizes are unique");
        }
    }
    let (mut compared, mut without) = (0, 0);
    for row in ran.stdout().lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON lines")) {
        if let Some(again) = row["reused"].as_u64() {
            // A free-threaded build does not use them again at once; there are no stacks to be wrong in it.
            assert!(
                again > 20 || version.ends_with('t'),
                "{version}: only {again} addresses were used again"
            );
            continue;
        }
        let size = row["size"].as_u64().expect("a size");
        let stack =
            stacks.remove(&size).unwrap_or_else(|| panic!("{version}: {row} is not in the recording"));
        let frame = |f: &Value| {
            let text = |i: usize| f[i].as_str().expect("text").to_string();
            (text(0), f[1].as_u64().expect("a line") as u32, text(2))
        };
        let theirs: Frames = row["frames"].as_array().expect("frames").iter().map(frame).collect();
        let ours: Frames = recording.frames(stack);
        if ours.is_empty() {
            without += 1;
            continue;
        }
        let differs = (0..ours.len().max(theirs.len())).find(|&i| ours.get(i) != theirs.get(i));
        if let Some(i) = differs {
            let (ours, theirs) = (ours.get(i), theirs.get(i));
            panic!(
                "{version}: {} {size}: frame {i} is {ours:?}, the interpreter says {theirs:?}",
                row["case"]
            );
        }
        compared += 1;
    }
    (compared, without)
}

#[test]
fn every_kind_of_frame_in_every_interpreter() {
    let mut tested = Vec::new();
    for with in interpreters::all() {
        let version = &with.version;
        let folder = Folder::new("frames");
        let ran = job(&folder, with, "program.py", "held", &CASES).run().succeeded();
        let refused = refusals(&ran);
        let (compared, without) = compare(&ran, version);
        if with.is_known() {
            assert!(refused.is_empty(), "{version}: {refused:?}");
            assert!(compared > 500 && without == 0, "{version}: {compared} compared, {without} without");
            tested.push(format!("{version} ({compared} stacks)"));
        } else {
            assert_eq!((compared, refused.len()), (0, 1), "{version}: {:?}", ran.ours());
            tested.push(format!("{version} (refused)"));
        }
    }
    println!("frames equal the interpreter's own: {}", tested.join(", "));
    assert!(!tested.is_empty());
}

#[test]
fn attached_without_the_gil_stacks_begin_with_a_pending_call() {
    for with in interpreters::all().iter().filter(|i| i.is_known()) {
        let folder = Folder::new("released");
        let ran = job(&folder, with, "program.py", "released", &["settle", "plain"]).run().succeeded();
        let (compared, without) = compare(&ran, &with.version);
        assert!(compared > 20 && without == 0, "{}: {compared} compared, {without} without", with.version);
        assert_eq!(refusals(&ran), Vec::<String>::new());
    }
}

#[test]
fn a_tracer_and_a_profiler_meet_no_code_of_ours() {
    for with in interpreters::all().iter().filter(|i| i.is_known()) {
        for (how, what) in [("held", "trace"), ("released", "profile")] {
            let run = |preload: Option<&str>| {
                let folder = Folder::new("traced");
                let job = job(&folder, with, "traced.py", how, &[what]);
                preload.into_iter().fold(job, |j, p| j.env("LD_PRELOAD", p)).run().succeeded().stdout()
            };
            let (ours, theirs) = (run(None), run(Some("")));
            assert!(theirs.starts_with("still set: True"), "{theirs}");
            assert_eq!(ours, theirs, "{} {how} {what}", with.version);
        }
    }
}
