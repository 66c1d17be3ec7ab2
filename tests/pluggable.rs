//! The pluggable door: real torch on the simulated device, its memory from `strandline_malloc`, with and without the preload.
//!
//! The oracle is torch's view of it: what `torch.cuda.memory_*` says is what the recording adds up to, and what a job sees
//! of statistics, errors and graphs is what it sees with PyTorch's own allocator.

mod support;

use serde_json::{Value, json};
use strandline::event::{Body, PoolId, SegmentOp};
use support::{Folder, Job, Ran, Recording, cache, command, report, root};

/// `tests/python/pluggable.py`, with or without the preload. What it said, and its recording.
fn job(folder: &Folder, preload: bool, arguments: &[&str]) -> (Value, Ran) {
    let mut job = Job::python(folder, "tests/python/pluggable.py", arguments)
        .env("PYTHONPATH", root().join("tools/python"))
        .env("STRANDLINE_BIN", command())
        .env("XDG_CACHE_HOME", cache());
    if !preload {
        job = job.env("LD_PRELOAD", "");
    }
    let ran = job.run().succeeded();
    let said = serde_json::from_str(&ran.stdout()).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout()));
    (said, ran)
}

const MIB: u64 = 1 << 20;

/// What a leaking job says and what is said of it.
#[track_caller]
fn leaks(preload: bool) {
    leaks_after(preload, None);
}

/// The same where the job calls `strandline.start()` too.
#[track_caller]
fn leaks_after(preload: bool, start: Option<&str>) {
    let folder = Folder::new("pluggable");
    let arguments: Vec<&str> = ["train", "leak"].into_iter().chain(start).collect();
    let (said, ran) = job(&folder, preload, &arguments);
    let hooked = preload || start.is_some();
    assert_eq!(ran.theirs(), "", "the job's stderr is its own");
    // 1000 bytes and 3 MiB: two blocks, rounded to 512, in the pools that PyTorch would count them in.
    let (one, two) = (1024, 3 * MIB);
    assert_eq!(said["first"], json!([0, one + two, 2]));
    assert_eq!(said["requested"], json!(1000 + two));
    assert_eq!(said["pools"], json!([one, two]));
    assert_eq!((&said["freed"], &said["peak"]), (&json!([one, one + two]), &json!(one)));
    for truth in ["reserved", "accelerator", "summary", "cache"] {
        assert_eq!(said[truth], true, "{truth} of {said}");
    }
    let recording = Recording::read(&ran.recording()).whole();
    // What torch said before the 256 MiB block is what the recording adds up to at it.
    let all = recording.blocks();
    let big = all.iter().find(|b| b.size.0 == 256 * MIB).expect("the last block");
    let totals = big.totals.expect("every event has its totals");
    assert_eq!(json!(totals.allocated.0 - 256 * MIB), said["allocated"]);
    assert_eq!(
        recording.count(|b| matches!(b, Body::Scope { .. })) > 0,
        hooked,
        "scopes come by the hooks alone"
    );
    assert!(recording.count(|b| matches!(b, Body::RecordStream { .. })) >= 40);

    let report = report(&ran.recording()).whole();
    assert_eq!(report.verdict().0, "leak", "{}", report.run);
    let p = &report.process;
    assert_eq!(
        (&p["allocator"], &p["steps"], &p["step_source"]),
        (&json!("pluggable"), &json!(40), &json!("optimizer"))
    );
    assert_eq!(p["coverage"]["level"], "blocks");
    let blind = p["coverage"]["reason"].as_str().unwrap_or_default();
    assert_eq!(blind.contains("stream scopes") && blind.contains("without LD_PRELOAD"), !hooked, "{blind}");
    if start.is_some() {
        assert!(blind.starts_with("what this process did before strandline.start()"), "{blind}");
        assert_eq!(said["path"], json!(ran.recording()), "one recording");
        assert_eq!(recording.count(|b| matches!(b, Body::BackwardBegin { .. })), 40);
        assert!(recording.count(|b| matches!(b, Body::Scope { .. })) >= 80);
        assert_eq!(finding_kind(p), "live-after-stream-exit", "{p}");
    }
    assert_eq!(p["devices"][0]["capacity_bytes"], json!(24u64 << 30));
    let finding = &p["findings"][0];
    assert_eq!(finding["bytes_per_step"], json!(16 * MIB), "{finding}");
    assert_eq!(finding["stream"]["side"], true, "{finding}");
    let line = &finding["sites"][0]["your_line"];
    let source = std::fs::read_to_string(root().join("tests/python/pluggable.py")).expect("the job");
    let planted = source.lines().position(|l| l.ends_with("# LEAK")).expect("the planted line") + 1;
    assert!(line["file"].as_str().is_some_and(|f| f.ends_with("tests/python/pluggable.py")), "{line}");
    assert_eq!((&line["line"], &line["function"]), (&json!(planted), &json!("train")));
    assert_eq!(p["findings"].as_array().map(Vec::len), Some(1), "{p}");
}

fn finding_kind(process: &Value) -> &str {
    process["findings"][0]["kind"].as_str().unwrap_or_default()
}

#[test]
fn a_job_that_is_found_running_behind_the_door_has_the_hooks_too() {
    leaks_after(false, Some("after"));
}

#[test]
fn a_job_that_starts_before_it_takes_the_door_has_the_hooks_too() {
    leaks_after(false, Some("before"));
}

#[test]
fn a_leak_is_found_without_the_preload() {
    leaks(false);
}

#[test]
fn a_leak_is_found_with_the_preload() {
    leaks(true);
}

#[test]
fn a_healthy_job_is_clean() {
    let folder = Folder::new("pluggable-clean");
    let (said, ran) = job(&folder, true, &["train"]);
    assert_eq!((&said["kept"], &said["grown"]), (&json!(0), &json!(0)));
    let report = report(&ran.recording()).whole();
    assert_eq!(report.verdict().0, "clean", "{}", report.run);
}

#[test]
fn out_of_memory_is_pytorchs_own_error() {
    let folder = Folder::new("pluggable-oom");
    let (said, ran) = job(&folder, false, &["oom"]);
    for (share, tried) in [("1.0", "24.00 GiB"), ("0.5", "12.00 GiB")] {
        let text = said[share].as_str().unwrap_or_default();
        let begins =
            format!("CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of 24.00 GiB");
        assert!(text.starts_with(&begins), "{text}");
    }
    assert_eq!((&said["fraction"], &said["ooms"], &said["alive"]), (&json!(0.5), &json!(2), &json!(8)));
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.count(|b| matches!(b, Body::Oom { .. })), 2);
    let oom = &report(&ran.recording()).process["devices"][0]["oom"];
    assert!(oom.is_object(), "{oom}");
}

#[test]
fn a_graph_keeps_its_memory_to_itself() {
    let folder = Folder::new("pluggable-graph");
    let (said, ran) = job(&folder, true, &["graph"]);
    assert_eq!((&said["reused"], &said["kept_apart"]), (&json!(true), &json!(true)), "{said}");
    assert_eq!(said["allocated"], json!(64 * 64 * 4), "only the weight is left");
    let recording = Recording::read(&ran.recording()).whole();
    assert!(recording.blocks().iter().any(|b| b.pool != PoolId::default() && b.phase.capture));
}

#[test]
fn one_region_is_seen_as_its_segments_or_better() {
    let folder = Folder::new("pluggable-region");
    let segments = |r: &Recording| r.count(|b| matches!(b, Body::Segment { op: SegmentOp::Alloc, .. }));
    // PyTorch's own allocator keeps the blocks; the door gives it the one pool's segment.
    let (_, ran) = job(&folder, true, &["region"]);
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!((recording.blocks().len(), segments(&recording)), (2, 2));
    assert_eq!(recording.fact("allocator"), "native");

    let alone = Folder::new("pluggable-region-alone");
    let (_, ran) = job(&alone, false, &["region"]);
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!((recording.blocks().len(), segments(&recording)), (0, 1));
    assert_eq!(report(&ran.recording()).verdict().0, "unknown");
}
