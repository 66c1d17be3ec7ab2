//! PyTorch without a cache of its own: every block is a call of CUDA's, on the simulated device. What PyTorch can still say
//! about itself is the oracle.

mod support;

use serde_json::{Value, json};
use strandline::event::{Block, Body};
use support::{Folder, Job, Ran, Recording, report, root};

const MIB: u64 = 1 << 20;
/// How a job is told to have its blocks from `cudaMallocAsync`.
const ASYNC: (&str, &str) = ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync");

/// How a job is told to have them from `cudaMalloc`.
const UNCACHED: (&str, &str) = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1");

/// `tests/python/direct.py`; what it said, and its recording.
fn job(folder: &Folder, mode: (&str, &str), arguments: &[&str]) -> (Value, Ran) {
    let ran = Job::python(folder, "tests/python/direct.py", arguments)
        .env(mode.0, mode.1)
        .run_imported()
        .succeeded();
    let said = serde_json::from_str(&ran.stdout()).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout()));
    (said, ran)
}

/// A leaking job and its healthy twin.
fn trains(mode: (&str, &str), allocator: &str, kind: &str) -> Value {
    let folder = Folder::new("direct");
    let (said, ran) = job(&folder, mode, &["train", "leak"]);
    assert_eq!(ran.theirs(), "", "the job's stderr is its own");
    let recording = Recording::read(&ran.recording()).whole();
    let all = recording.blocks();
    assert!(all.iter().all(|b| b.pool.is_direct() && b.stack.0 != 0), "a stack for each");
    assert!(recording.count(|b| matches!(b, Body::RecordStream { .. })) >= 20);
    assert!(recording.count(|b| matches!(b, Body::StreamWait { .. })) >= 20);
    let leaked = report(&ran.recording());
    assert_eq!(leaked.verdict().0, "growing", "{}", leaked.run);
    let p = &leaked.process;
    assert_eq!(
        (&p["allocator"], &p["steps"], &p["step_source"]),
        (&json!(allocator), &json!(20), &json!("optimizer"))
    );
    assert_eq!((&p["events_lost"], &p["damage"]), (&json!(0), &json!([])));
    let (coverage, device) = (&p["coverage"], &p["devices"][0]);
    assert_eq!(coverage["level"], "blocks");
    let of_cuda = coverage["reason"].as_str().unwrap_or_default();
    assert!(of_cuda.contains("PyTorch keeps no totals"), "{of_cuda}");
    assert_eq!(p["findings"].as_array().map(Vec::len), Some(1), "{p}");
    let finding = &p["findings"][0];
    assert_eq!((&finding["kind"], &finding["bytes_per_step"]), (&json!(kind), &json!(16 * MIB)));
    let line = &finding["sites"][0]["your_line"];
    let source = std::fs::read_to_string(root().join("tests/python/direct.py")).expect("the job");
    let planted = source.lines().position(|l| l.ends_with("# LEAK")).expect("the planted line") + 1;
    assert_eq!((&line["line"], &line["function"]), (&json!(planted), &json!("train")));
    if said["peak"] != 0 {
        assert_eq!((&device["peak_allocated_bytes"], &said["allocated"]), (&said["peak"], &live(&recording)));
    }

    let twin = Folder::new("direct-twin");
    let (_, ran) = job(&twin, mode, &["train"]);
    let healthy = report(&ran.recording());
    assert_eq!(healthy.verdict().0, "clean", "{}", healthy.run);
    leaked.process
}

/// What is live before the job's end: sums of what came, less what went.
fn live(recording: &Recording) -> Value {
    let at_synchronize = recording.events.iter().rposition(|e| matches!(e.body, Body::DeviceDone(_)));
    let mut held = std::collections::HashMap::new();
    for e in &recording.events[..at_synchronize.expect("the job waits for the device")] {
        match &e.body {
            Body::Alloc(b) => drop(held.insert(b.addr, b.rounded.0)),
            Body::FreeRequested(b) => drop(held.remove(&b.addr)),
            _ => {}
        }
    }
    json!(held.values().sum::<u64>())
}

#[test]
fn stream_ordered_blocks_are_judged_as_any_others() {
    trains(ASYNC, "cudaMallocAsync", "live-after-stream-exit");
}

#[test]
fn blocks_past_the_cache_are_judged_and_other_memory_is_told_apart() {
    // A `cudaMalloc` is in no stream's order.
    let p = trains(UNCACHED, "native", "step-growth");
    // PyTorch rounds pinned memory to a power of two.
    assert_eq!(p["pinned_host"]["bytes"], json!(4 * MIB), "{p}");
    assert_eq!(p["managed"], json!({ "bytes": 5 * MIB, "peak_bytes": 5 * MIB }), "{p}");
    let mine = p["libraries"].as_array().and_then(|l| l.iter().find(|l| l["bytes"] == json!(6 * MIB)));
    let name = mine.and_then(|l| l["name"].as_str()).unwrap_or_default();
    assert!(name.contains("ffi"), "who called is named: {}", p["libraries"]);
}

/// CUDA's own blocks are counted with PyTorch's and under no lock, so their records may come late. PyTorch's keep their order.
#[test]
fn blocks_of_cuda_beside_pytorch_leave_its_sums_right() {
    let folder = Folder::new("direct-beside");
    let (_, ran) = job(&folder, ("PYTORCH_CUDA_ALLOC_CONF", ""), &["beside"]);
    let recording = Recording::read(&ran.recording()).whole();
    let own: Vec<bool> = recording.blocks().iter().map(|b| b.pool.is_direct()).collect();
    assert!(own.contains(&true) && own.contains(&false), "CUDA's own and PyTorch's are recorded");
    report(&ran.recording()).whole();
}

/// The calls of CUDA that reach the device are the job's own, through each of PyTorch's allocators, captures included.
#[test]
fn no_call_of_cuda_is_added() {
    let conf = |value| ("PYTORCH_CUDA_ALLOC_CONF", value);
    let modes = [conf(""), conf("expandable_segments:True"), ASYNC, UNCACHED];
    for (mode, what) in modes.into_iter().flat_map(|m| [(m, "train"), (m, "graph")]) {
        if what == "graph" && mode == UNCACHED {
            continue; // PyTorch itself cannot
        }
        let folder = Folder::new("direct-calls");
        let [with, without] = [true, false].map(|preload| {
            let trace = folder.join(if preload { "with" } else { "without" });
            let job = Job::python(&folder, "tests/python/direct.py", &[what, "alone", "8"]);
            let job = job.env(mode.0, mode.1).env("STRANDLINE_SIM_TRACE", &trace);
            if preload { job } else { job.env("LD_PRELOAD", "") }.run_imported().succeeded();
            let mut calls = std::collections::BTreeMap::<String, usize>::new();
            for line in std::fs::read_to_string(&trace).expect("a trace").lines() {
                *calls.entry(line.split(" ->").next().unwrap_or_default().into()).or_default() += 1;
            }
            calls
        });
        assert!(without.values().sum::<usize>() > 50, "{mode:?} {what}: {without:?}");
        assert_eq!(with, without, "{mode:?} {what}");
    }
}

#[test]
fn a_captured_graphs_blocks_are_the_graphs() {
    let folder = Folder::new("direct-graph");
    let (_, ran) = job(&folder, ASYNC, &["graph"]);
    let recording = Recording::read(&ran.recording()).whole();
    let (inside, outside): (Vec<&Block>, Vec<&Block>) =
        recording.blocks().into_iter().partition(|b| b.pool.is_private());
    assert!(inside.len() >= 2 && inside.iter().all(|b| b.phase.capture), "{inside:?}");
    assert!(outside.iter().any(|b| b.size.0 == MIB), "{outside:?}");
    let p = report(&ran.recording()).process;
    assert_eq!(p["damage"], json!([]), "{p}");
}

#[test]
fn the_call_that_first_heard_of_a_broken_device_is_named() {
    let folder = Folder::new("direct-fault");
    let ran = Job::python(&folder, "tests/python/fault.py", &["700"]).run_imported();
    assert_eq!(ran.output.status.code(), Some(1), "{}", ran.theirs());
    let said: Value = serde_json::from_str(&ran.stdout()).expect("JSON");
    for which in ["first", "second"] {
        assert!(said[which].as_str().is_some_and(|s| s.contains("an illegal memory access")), "{said}");
    }
    let source = std::fs::read_to_string(root().join("tests/python/fault.py")).expect("the job");
    let line = source.lines().position(|l| l.ends_with("# HEARD")).expect("the line") + 1;
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.count(|b| matches!(b, Body::Failed(_))), 1, "the first alone");
    let p = report(&ran.recording()).process;
    let call = &p["failed_call"];
    assert_eq!(
        (&call["call"], &call["status"], &call["step"], &call["device"]),
        (&json!("cudaStreamSynchronize"), &json!(700), &json!(7), &json!(0)),
        "{p}"
    );
    assert_eq!((&call["your_line"]["line"], &call["your_line"]["function"]), (&json!(line), &json!("train")));
    assert!(call["stream"].is_u64(), "{call}");
    let text = support::strandline(&["report".as_ref(), ran.recording().as_os_str()]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "In step 7 (forward), CUDA reported an illegal memory access on GPU 0: cudaStreamSynchronize returned error 700";
    assert!(text.matches(expected).count() == 2 && text.contains(" at your "), "{text}");
    assert!(text.contains(&format!("fault.py:{line} in train")), "{text}");
    assert!(text.contains("CUDA_LAUNCH_BLOCKING=1"), "{text}");
}

#[test]
fn out_of_memory_is_seen() {
    let folder = Folder::new("direct-oom");
    let (said, ran) = job(&folder, ASYNC, &["oom"]);
    assert!(said["oom"].as_str().is_some_and(|t| t.contains("out of memory")), "{said}");
    let recording = Recording::read(&ran.recording()).whole();
    let seen: Vec<(u64, bool)> = recording
        .events
        .iter()
        .filter_map(|e| match &e.body {
            Body::Oom { requested, free, stack, .. } => Some((requested.0, free.0 > 0 && stack.0 != 0)),
            _ => None,
        })
        .collect();
    assert_eq!(seen, [(1 << 36, true)]);
}

/// Where PyTorch does not cache, no allocator of its own says that it gave up: what the job ended of is the call.
#[test]
fn a_job_past_the_cache_that_ends_of_a_refused_call_ran_out_of_memory() {
    let folder = Folder::new("direct-refused");
    let ran = Job::python(&folder, "tests/python/direct.py", &["oom", "uncaught"])
        .env(UNCACHED.0, UNCACHED.1)
        .run();
    assert_eq!(ran.output.status.code(), Some(1), "{}", ran.stderr());
    let told = report(&ran.recording());
    assert_eq!(told.verdict().0, "oom", "{}", told.run);
    let failed = &told.process["devices"][0]["oom"];
    assert_eq!(
        (&failed["requested_bytes"], &failed["call"]),
        (&json!(1u64 << 36), &json!("malloc")),
        "{failed}"
    );
    let line = failed["frames"].as_array().and_then(|f| f.last()).expect("its stack");
    assert!(line["file"].as_str().is_some_and(|f| f.ends_with("direct.py")), "{failed}");

    let twin = Folder::new("direct-refused-twin");
    let (_, ran) = job(&twin, UNCACHED, &["oom"]);
    let p = report(&ran.recording()).process;
    assert_eq!(p["devices"][0]["oom"], Value::Null, "it was caught: {p}");
}
