//! torch.compile, as far as it goes without Triton: AOTAutograd's graphs run eagerly, and as CUDA graphs in trees. A recorded job is as it
//! is alone, call by call, and what it leaks is named. inductor itself: `tests/gpu/compile.sh`.

mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use strandline::event::{Block, Body};
use support::{Folder, Job, Ran, Recording, report, root};

const MIB: u64 = 1 << 20;
const SCRIPT: &str = "tests/python/compiled.py";
const STEPS: &str = "24";

/// What a job said, less the values that no kernel computed, and its calls of CUDA with their counts.
type Told = (Value, BTreeMap<String, usize>);

/// The job alone, and recorded.
fn twins(folder: &Folder, arguments: &[&str], conf: &str) -> ([Told; 2], Ran) {
    let arguments = [arguments, &[STEPS]].concat();
    let [(bare, _), (recorded, ran)] = [false, true].map(|preload| {
        let trace = folder.join(if preload { "with" } else { "without" });
        let job = Job::python(folder, SCRIPT, &arguments)
            .env("PYTORCH_CUDA_ALLOC_CONF", conf)
            .env("STRANDLINE_SIM_TRACE", &trace);
        let ran = if preload { job } else { job.env("LD_PRELOAD", "") }.run_imported().succeeded();
        let mut said: Value = serde_json::from_str(&ran.stdout()).expect("JSON");
        said.as_object_mut().expect("an object").remove("losses");
        let mut calls = BTreeMap::new();
        for line in std::fs::read_to_string(&trace).expect("a trace").lines() {
            *calls.entry(line.split(" ->").next().unwrap_or_default().to_owned()).or_default() += 1;
        }
        ((said, calls), ran)
    });
    ([bare, recorded], ran)
}

/// Such a job is as it is alone, and its numbers are PyTorch's. Its report.
#[track_caller]
fn is_as_alone(folder: &Folder, arguments: &[&str], conf: &str) -> (support::Report, Recording) {
    let ([bare, recorded], ran) = twins(folder, arguments, conf);
    assert_eq!(recorded, bare);
    let recording = Recording::read(&ran.recording()).whole();
    let told = report(&ran.recording()).whole();
    let (said, p) = (recorded.0, &told.process);
    // A compiled step runs no hooks: ends of backward count, of which one that is only traced is none.
    let source = if arguments.contains(&"optimizer") { "backward" } else { "optimizer" };
    assert_eq!((&p["steps"], &p["step_source"]), (&said["steps"], &json!(source)), "{p}");
    assert_eq!(p["microbatches"], said["steps"], "{p}");
    let d = &p["devices"][0];
    assert_eq!((&d["peak_allocated_bytes"], &d["peak_reserved_bytes"]), (&said["peak"], &said["reserved"]));
    (told, recording)
}

#[test]
fn a_compiled_job_is_recorded_as_it_is_alone() {
    let folder = Folder::new("compiled");
    let (told, _) = is_as_alone(&folder, &["aot_eager"], "");
    assert_eq!((told.verdict().0, &told.process["findings"]), ("clean", &json!([])), "{}", told.run);
}

#[test]
fn a_compiled_optimizer_leaves_the_steps_to_the_backward() {
    let folder = Folder::new("compiled-optimizer");
    let (told, _) = is_as_alone(&folder, &["aot_eager", "optimizer"], "");
    assert_eq!((told.verdict().0, &told.process["findings"]), ("clean", &json!([])), "{}", told.run);
}

/// Trees of CUDA graphs give PyTorch's allocator back a state of their own; what a graph returns is a copy when it is kept.
#[test]
fn a_leak_beside_trees_of_captured_graphs_is_named() {
    beside_trees("");
}

#[test]
fn a_leak_beside_trees_in_expandable_segments_is_named() {
    beside_trees("expandable_segments:True");
}

#[track_caller]
fn beside_trees(conf: &str) {
    let folder = Folder::new("compiled-trees");
    let (told, recording) = is_as_alone(&folder, &["cudagraphs", "copies"], conf);
    assert_eq!(told.verdict().0, "growing", "{}", told.run);
    let (inside, outside): (Vec<&Block>, Vec<&Block>) =
        recording.blocks().into_iter().partition(|b| b.pool.is_private());
    assert!(inside.len() > 20 && outside.len() > 20, "{} and {}", inside.len(), outside.len());
    assert!(recording.count(|b| matches!(b, Body::Segment { .. })) > 0);
    let finding = &told.process["findings"][0];
    let source = std::fs::read_to_string(root().join(SCRIPT)).expect("the job");
    let planted = source.lines().position(|l| l.ends_with("# LEAK")).expect("the planted line") + 1;
    let line = &finding["sites"][0]["your_line"];
    assert_eq!((&line["line"], &finding["bytes_per_step"]), (&json!(planted), &json!(64 * MIB)), "{finding}");
    let findings = told.process["findings"].as_array().expect("findings");
    assert_eq!(findings.iter().filter(|f| f["certainty"] != "note").count(), 1, "{}", told.process);
}
