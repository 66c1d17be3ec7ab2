//! The pluggable door: real torch on the simulated device, its memory from `strandline_malloc`, with and without the preload.
//!
//! The oracle is torch's view of it: what `torch.cuda.memory_*` says is what the recording adds up to, and what a job sees
//! of statistics, errors and graphs is what it sees with PyTorch's own allocator.

mod support;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use strandline::event::{Body, PoolId, SegmentOp};
use support::{Folder, Job, Ran, Recording, cache, command, report, root};

/// `tests/python/pluggable.py`, with or without the preload. What it said, and its recording.
fn job(folder: &Folder, preload: bool, arguments: &[&str]) -> (Value, Ran) {
    traced(folder, preload, arguments, None)
}

/// The same, with each call of its written down.
fn traced(folder: &Folder, preload: bool, arguments: &[&str], trace: Option<&Path>) -> (Value, Ran) {
    let mut job = Job::python(folder, "tests/python/pluggable.py", arguments)
        .devices(2)
        .env("PYTHONPATH", root().join("tools/python"))
        .env("STRANDLINE_BIN", command())
        .env("XDG_CACHE_HOME", cache());
    if !preload {
        job = job.env("LD_PRELOAD", "");
    }
    if let Some(trace) = trace {
        job = job.env("STRANDLINE_SIM_TRACE", trace);
    }
    let ran = job.run_imported().succeeded();
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
    assert_eq!(report.verdict().0, "growing", "{}", report.run);
    let p = &report.process;
    assert_eq!(
        (&p["allocator"], &p["steps"], &p["step_source"]),
        (&json!("pluggable"), &json!(40), &json!("optimizer"))
    );
    assert_eq!(p["coverage"]["level"], "blocks");
    let blind = p["coverage"]["reason"].as_str().unwrap_or_default();
    assert_eq!(
        blind.contains("when streams are entered") && blind.contains("without LD_PRELOAD"),
        !hooked,
        "{blind}"
    );
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

/// What a capture forbids waits for its end: an older graph's memory, a block that another stream used.
#[test]
fn a_graph_goes_while_another_is_captured() {
    for preload in [true, false] {
        let folder = Folder::new("pluggable-graphs");
        let (said, ran) = job(&folder, preload, &["graphs"]);
        assert_eq!((&said["short"], &said["allocated"]), (&json!(true), &json!(64 * 64 * 4)), "{said}");
        assert!(said["reserved"].as_u64() < Some(64 * MIB), "what waited was given back: {said}");
        let recording = Recording::read(&ran.recording()).whole();
        assert_eq!(recording.count(|b| matches!(b, Body::Oom { .. })), 1);
        report(&ran.recording()).whole();
    }
}

#[test]
fn what_waits_for_a_capture_is_there_for_who_is_short() {
    let folder = Folder::new("pluggable-short");
    let (said, ran) = job(&folder, true, &["short"]);
    assert_eq!((&said["again"], &said["retries"]), (&json!(true), &json!(1)), "{said}");
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.count(|b| matches!(b, Body::Oom { .. })), 0);
}

/// Frees nothing and waits for nothing between a capture's begin and end.
#[track_caller]
fn leaves_captures_alone(trace: &Path) {
    let [all, captured] = called(trace, &BTreeSet::new());
    for call in ["cuMemFreeAsync", "cuCtxSynchronize", "cuStreamWaitEvent", "cuMemPoolTrimTo"] {
        assert_eq!(captured.get(call), None, "{call} during a capture: {captured:?}");
    }
    assert!(all.contains_key("cuMemFreeAsync"), "{all:?}");
}

/// What a part says that captures a stream, whose capture nothing of ours may touch.
#[track_caller]
fn captures(part: &str) -> Value {
    let folder = Folder::new(&format!("pluggable-{part}"));
    let trace = folder.join("trace");
    let (said, _) = traced(&folder, false, &[part], Some(&trace));
    leaves_captures_alone(&trace);
    said
}

/// A stream that a capture has not reached allocates on the capturing thread: that is no end of the capture.
#[test]
fn a_side_stream_does_not_end_a_capture() {
    let said = captures("side");
    assert_eq!(said["allocated"], json!(64 * 64 * 4), "{said}");
    assert!(said["reserved"].as_u64() < Some(64 * MIB), "what waited was given back: {said}");
}

/// A device with a captured stream cannot be waited for: what is short there is out of memory, as PyTorch says it, and the capture holds.
#[test]
fn a_device_that_a_capture_has_spread_to_is_out_of_memory() {
    let said = captures("spread");
    assert_eq!([&said["short"], &said["again"]], [&json!(true); 2], "{said}");
}

#[test]
fn a_block_that_outlives_its_graph_waits_for_the_last_replay() {
    let folder = Folder::new("pluggable-outlives");
    let trace = folder.join("trace");
    let (said, _) = traced(&folder, false, &["outlives"], Some(&trace));
    let calls = std::fs::read_to_string(&trace).expect("a trace");
    let calls: Vec<&str> = calls.lines().collect();
    let last = |what: &str| calls.iter().rposition(|l| l.contains(what));
    let replay = last("cudaGraphLaunch").expect("a replay");
    let address = format!("at {} ", said["address"].as_str().expect("an address"));
    let frees = |l: &&str| l.starts_with("cuMemFreeAsync") && l.contains(&address);
    let free = calls.iter().rposition(frees).expect("the block was freed");
    let waits = calls.get(replay..free).expect("a free behind the replay");
    assert!(waits.iter().any(|l| l.starts_with("cuCtxSynchronize")), "{waits:?}");
}

#[test]
fn memory_beside_it_is_told_apart() {
    let folder = Folder::new("pluggable-beside");
    let (_, ran) = job(&folder, true, &["beside"]);
    let p = report(&ran.recording()).whole().process;
    assert_eq!((&p["allocator"], &p["pinned_host"]["bytes"]), (&json!("pluggable"), &json!(4 * MIB)), "{p}");
    assert_eq!(p["managed"]["bytes"], json!(5 * MIB), "{p}");
    let mine = p["libraries"].as_array().and_then(|l| l.iter().find(|l| l["bytes"] == json!(6 * MIB)));
    let name = mine.and_then(|l| l["name"].as_str()).unwrap_or_default();
    assert!(name.contains("ffi"), "who called is named: {}", p["libraries"]);
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

/// Calls by name, with their counts; a second form of one (`_v2`) is that one.
type Calls = BTreeMap<String, usize>;

/// The rows of ARCHITECTURE.md's table of calls: all of them, and those that are made while a stream is captured.
fn promised() -> [BTreeSet<String>; 2] {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text.split("| while a stream is captured |").nth(1).expect("the table").lines().skip(2);
    let rows = table.map_while(|l| l.strip_prefix("| ")).map(|l| l.split(" | ").collect::<Vec<_>>());
    let mut promised = [BTreeSet::new(), BTreeSet::new()];
    for row in rows {
        let [calls, _, captured] = row[..] else { panic!("three columns: {row:?}") };
        let calls = calls.split(", ").map(|c| c.trim_matches('`').to_string());
        let captured = captured.starts_with("yes");
        for call in calls {
            assert!(call.starts_with("cu"), "{call}");
            if captured {
                promised[1].insert(call.clone());
            }
            assert!(promised[0].insert(call), "once");
        }
    }
    promised
}

/// A traced job's calls, and those between the begin and the end of a capture. What is ours is relaxed there: `ours` says what that is.
fn called(trace: &Path, ours: &BTreeSet<String>) -> [Calls; 2] {
    let mut called = [Calls::new(), Calls::new()];
    let (mut capturing, mut relaxed) = (false, false);
    for line in std::fs::read_to_string(trace).expect("a trace").lines() {
        let (name, told) = line.split_once(" -> ").expect("a call");
        let name = name.trim_end_matches("_v2");
        *called[0].entry(name.into()).or_default() += 1;
        capturing &= name != "cudaStreamEndCapture";
        if capturing {
            *called[1].entry(name.into()).or_default() += 1;
            match name {
                "cuThreadExchangeStreamCaptureMode" => {
                    relaxed = told.ends_with("2 instead of 0") || told.ends_with("2 instead of 2")
                }
                "cuCtxGetCurrent" | "cuCtxSetCurrent" => {}
                _ => assert!(relaxed || !ours.contains(name), "not in the relaxed mode: {line}"),
            }
        }
        capturing |= name == "cudaStreamBeginCapture";
    }
    called
}

/// Of the driver the door calls what ARCHITECTURE.md lists, all of it and nothing else, and during a capture no more than it says
/// there: the rest of a job's calls are those that it makes with an allocator that calls nothing.
#[test]
fn the_door_calls_what_is_promised_and_nothing_else() {
    let folder = Folder::new("pluggable-calls");
    let plain = folder.join("calls_nothing.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w", "-o"]).arg(&plain).arg(root().join("tests/python/calls_nothing.c"));
    assert!(cc.status().expect("cc starts").success());
    let [all, captured] = promised();
    let calls = |name: &str, preload: bool, arguments: &[&Path], ours: &BTreeSet<String>| {
        let trace = folder.join(name);
        let job = Job::python(&folder, "tests/python/calls.py", arguments)
            .devices(2)
            .env("PYTHONPATH", root().join("tools/python"))
            .env("STRANDLINE_BIN", command())
            .env("XDG_CACHE_HOME", cache())
            .env("STRANDLINE_OUT", folder.join(&format!("{name}.strand")))
            .env("STRANDLINE_SIM_TRACE", &trace);
        let ran = if preload { job } else { job.env("LD_PRELOAD", "") }.run_imported().succeeded();
        (serde_json::from_str::<Value>(&ran.stdout()).expect("JSON"), called(&trace, ours))
    };
    let (_, without) = calls("plain", false, &[&plain], &BTreeSet::new());
    assert!(without[1].values().sum::<usize>() > 50, "{without:?}");
    for (name, preload) in [("alone", false), ("preloaded", true)] {
        let (said, with) = calls(name, preload, &[], &all);
        let full = json!("CUDA out of memory");
        assert_eq!([&said["captured"], &said["limited"], &said["refused"]], [&full; 3], "{said}");
        assert!(said["broken"].as_str().is_some_and(|e| e.contains("illegal memory access")), "{said}");
        for (when, promised) in [(0, &all), (1, &captured)] {
            let differ = with[when].iter().filter(|(call, n)| without[when].get(*call) != Some(n));
            let more: BTreeSet<String> = differ.map(|(call, _)| call.clone()).collect();
            assert_eq!(&more, promised, "{name}, {}", ["at any time", "during captures"][when]);
            assert!(without[when].keys().all(|call| with[when].contains_key(call)), "{with:?}\n{without:?}");
        }
    }
}
