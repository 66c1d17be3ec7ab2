//! The late door: a job on the simulated device that asks for strandline when it runs already, with nothing put before it.
//!
//! The oracle is torch: what it says from then on is what the recording says.

mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use strandline::event::Body;
use support::snapshot_rules::must_be_valid;
use support::{
    Folder, Job, Ran, Recording, cache, command, python_with_transformers, report, root, strandline,
};

/// A job on the simulated device, without the preload, whose recording is asked for by the job.
fn asks(folder: &Folder, script: &str, arguments: &[&str]) -> Job {
    Job::python(folder, script, arguments)
        .env("PYTHONPATH", root().join("tools/python"))
        .env("STRANDLINE_BIN", command())
        .env("XDG_CACHE_HOME", cache())
        .env("LD_PRELOAD", "")
}

/// Its last line, which is JSON.
fn last_line(ran: &Ran) -> Value {
    let line = ran.stdout().lines().last().map(serde_json::from_str);
    line.and_then(Result::ok).unwrap_or_else(|| panic!("{}{}", ran.stdout(), ran.stderr()))
}

/// `tests/python/late.py`, without the preload. What it said, and its recording.
fn job(folder: &Folder, python: Option<&str>, arguments: &[&str]) -> (Value, Ran) {
    job_with(folder, python, arguments, "")
}

/// The same with PyTorch's allocator configured.
fn job_with(folder: &Folder, python: Option<&str>, arguments: &[&str], conf: &str) -> (Value, Ran) {
    let script = "tests/python/late.py";
    let job = match python {
        None => Job::python(folder, script, arguments),
        Some(python) => {
            let job = Job::program(folder, python).arg("-u").arg(root().join(script));
            arguments.iter().fold(job, |job, argument| job.arg(argument))
        }
    };
    let job = job
        .env("PYTHONPATH", root().join("tools/python"))
        .env("STRANDLINE_BIN", command())
        .env("XDG_CACHE_HOME", cache())
        .env("LEAKBENCH_NO_CUDNN", "1")
        .env("PYTORCH_CUDA_ALLOC_CONF", conf)
        .env("LD_PRELOAD", "");
    let ran = if python.is_none() { job.run_imported() } else { job.run_for(300.0) }.succeeded();
    let said = serde_json::from_str(&ran.stdout()).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout()));
    (said, ran)
}

const MIB: u64 = 1 << 20;

#[track_caller]
fn is_what_torch_says(said: &Value, ran: &Ran) -> Value {
    assert_eq!(ran.theirs(), "", "the job's stderr is its own");
    assert_eq!((&said["path"], &said["again"]), (&json!(ran.recording()), &json!(ran.recording())));
    let recording = Recording::read(&ran.recording()).whole();
    let steps = said["steps"].as_u64().expect("a number") as usize;
    // What the loader bound to CUDA and torch before we came is ours now.
    assert_eq!(recording.count(|b| matches!(b, Body::BackwardBegin { .. })), steps);
    assert!(recording.count(|b| matches!(b, Body::Scope { .. })) >= 2 * steps);
    // Calls of CUDA are ours too, though its functions stand before our own in the global scope.
    assert!(recording.count(|b| matches!(b, Body::StreamWait { .. })) >= steps);
    assert!(recording.count(|b| matches!(b, Body::DeviceDone(_))) >= 1);
    assert!(recording.count(|b| matches!(b, Body::RecordStream { .. })) >= steps);
    assert_eq!(recording.fact("step_hooks"), "pending");
    let report = report(&ran.recording()).whole();
    let p = report.process;
    assert_eq!((&p["steps"], &p["step_source"]), (&said["steps"], &json!("optimizer")));
    let d = &p["devices"][0];
    assert_eq!((&d["peak_allocated_bytes"], &d["peak_reserved_bytes"]), (&said["peak"], &said["reserved"]));
    assert_eq!((&d["capacity_bytes"], &d["name"]), (&json!(24u64 << 30), &json!("Simulated device 0")));
    let unseen = p["coverage"]["reason"].as_str().unwrap_or_default();
    assert!(unseen.starts_with("what this process did before strandline.start()"), "{unseen}");
    assert!(!unseen.contains("somebody else"), "{unseen}");
    json!({ "verdict": report.run["verdict"], "process": p })
}

#[test]
fn what_leaks_from_then_on_is_found() {
    let folder = Folder::new("late-leak");
    let (said, ran) = job(&folder, None, &["train", "leak"]);
    let told = is_what_torch_says(&said, &ran);
    let finding = &told["process"]["findings"][0];
    assert_eq!(finding["bytes_per_step"], json!(16 * MIB), "{finding}");
    assert_eq!(
        (&finding["kind"], &finding["stream"]["side"]),
        (&json!("live-after-stream-exit"), &json!(true))
    );
    let source = std::fs::read_to_string(root().join("tests/python/late.py")).expect("the job");
    let planted = source.lines().position(|l| l.ends_with("# LEAK")).expect("the planted line") + 1;
    let line = &finding["sites"][0]["your_line"];
    assert_eq!((&line["line"], &line["function"]), (&json!(planted), &json!("train")));
}

#[test]
fn what_was_there_before_is_no_leak_and_no_contradiction() {
    let folder = Folder::new("late-clean");
    let (said, ran) = job(&folder, None, &["train"]);
    let told = is_what_torch_says(&said, &ran);
    assert_eq!(told["verdict"], "clean", "{told}");
    assert_eq!(told["process"]["findings"], json!([]));
}

#[test]
fn a_job_with_expandable_segments_is_found_running() {
    let folder = Folder::new("late-expandable");
    let (said, ran) = job_with(&folder, None, &["train", "leak"], "expandable_segments:True");
    let told = is_what_torch_says(&said, &ran);
    assert_eq!(told["process"]["findings"][0]["bytes_per_step"], json!(16 * MIB), "{told}");
}

/// `cudaMallocAsync` keeps no totals: blocks from before are unknown, and so is their sum.
#[test]
fn a_job_on_stream_ordered_memory_is_found_running() {
    for leak in [true, false] {
        let folder = Folder::new("late-async");
        let arguments = if leak { &["train", "leak", "40"][..] } else { &["train", "40"] };
        let (_, ran) = job_with(&folder, None, arguments, "backend:cudaMallocAsync");
        assert_eq!(ran.theirs(), "", "the job's stderr is its own");
        let report = report(&ran.recording());
        let p = &report.process;
        assert_eq!(report.verdict().0, if leak { "growing" } else { "clean" }, "{}", report.run);
        assert_eq!(
            (&p["allocator"], &p["steps"], &p["events_lost"]),
            (&json!("cudaMallocAsync"), &json!(36), &json!(0))
        );
        assert_eq!((&p["coverage"]["level"], &p["damage"]), (&json!("blocks"), &json!([])));
        let unseen = p["coverage"]["reason"].as_str().unwrap_or_default();
        assert!(unseen.starts_with("what this process did before strandline.start()"), "{unseen}");
        let found = p["findings"].as_array().expect("findings");
        assert_eq!(found.len(), usize::from(leak), "{p}");
        if leak {
            assert_eq!(found[0]["bytes_per_step"], json!(16 * MIB), "{p}");
            assert_eq!(found[0]["kind"], "live-after-stream-exit", "{p}");
        }
    }
}

#[test]
fn a_real_leak_is_named_nine_steps_after_the_start() {
    let folder = Folder::new("late-bench");
    let python = python_with_transformers().to_string_lossy();
    let script = root().join("tests/leakbench/trl_offload_streams.py");
    let wheels = cache().join("wheels");
    let (script, wheels) = (script.to_string_lossy(), wheels.to_string_lossy());
    let (said, ran) =
        job(&folder, Some(&python), &["bench", "5", &script, "--wheels", &wheels, "--steps", "14"]);
    let p = report(&ran.recording()).whole().process;
    assert_eq!(p["steps"], 9, "from the end of step 5 to that of step 14");
    let findings = p["findings"].as_array().expect("findings");
    let named =
        findings.iter().find(|f| f["kind"] == "live-after-stream-exit").unwrap_or_else(|| panic!("{p}"));
    assert!(matches!(named["severity"].as_str(), Some("alert" | "warning")), "{named}");
    let frame = &named["sites"][0]["frames"][0];
    let truth = said["leak_site"].as_str().and_then(|s| s.rsplit(':').next()).expect("the leaking line");
    assert_eq!(frame["line"].to_string(), truth);
    assert!(frame["function"].as_str().is_some_and(|f| f.ends_with("unpack_tensor_with_streams")), "{frame}");
    assert_eq!(named["fix"]["known"], "huggingface/trl#5700");
}

const NASTY: &str = "tests/python/late_nasty.py";

/// The number of a marked line of that job.
fn marked(mark: &str) -> usize {
    let source = std::fs::read_to_string(root().join(NASTY)).expect("the job");
    source.lines().position(|l| l.ends_with(mark)).expect("a marked line") + 1
}

/// A job that runs out of memory after a late start; its report.
#[track_caller]
fn runs_out(arguments: &[&str], verdict: &str) -> (Folder, Ran, Value) {
    let folder = Folder::new("late-oom");
    let ran = asks(&folder, NASTY, &[&["oom"], arguments].concat()).run_imported();
    let is_caught = arguments.contains(&"caught");
    assert_eq!(ran.output.status.code(), Some(i32::from(!is_caught)), "{}", ran.stderr());
    let said = last_line(&ran);
    let told = report(&ran.recording()).whole();
    assert_eq!(told.verdict().0, verdict, "{}", told.run);
    let p = told.process;
    let (d, oom) = (&p["devices"][0], &p["devices"][0]["oom"]);
    assert_eq!(p["steps"], if is_caught { 24 } else { 20 }, "{p}");
    assert_eq!(
        (&d["peak_allocated_bytes"], &d["peak_reserved_bytes"]),
        (&said["peak"], &said["peak_reserved"])
    );
    assert_eq!(oom["allocated_bytes"], said["allocated"]);
    // All that was there when it began, less the two blocks that were freed since.
    let early = said["before"]["allocated"].as_u64().expect("a number") - 2 * (1 << 30);
    assert_eq!(oom["before_recording_bytes"], json!(early), "{oom}");
    assert_eq!((&d["anatomy"]["at"], &d["anatomy"]["before_recording"]), (&json!("oom"), &json!(early)));
    assert_eq!(d["anatomy"]["weights"], 0, "a job that had trained builds no model: {d}");
    let lines: Vec<&Value> =
        oom["holders"].as_array().expect("holders").iter().map(|h| &h["line"]["line"]).collect();
    assert!(lines.contains(&&json!(marked("# AFTER"))), "{oom}");
    let text = strandline(&["report".as_ref(), ran.recording().as_os_str()]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "4.0 GiB allocated before the recording began, by an unknown line",
        "the lines that allocated 4.0 GiB on GPU 0 before the recording began",
        &format!("2.9 GiB allocated since step 1 by your late_nasty.py:{}", marked("# AFTER")),
    ] {
        assert!(words.contains(said), "{said}: {text}");
    }
    // What it looked like then is a snapshot that opens, of what is known.
    let path = folder.join("oom.pickle");
    let recording = ran.recording();
    strandline(&[Path::new("snapshot"), &recording, "--at".as_ref(), "oom".as_ref(), "-o".as_ref(), &path]);
    must_be_valid(&std::fs::read(&path).expect("a snapshot"));
    (folder, ran, p)
}

#[test]
fn out_of_memory_after_it_tells_what_was_there_before() {
    let (_folder, ran, p) = runs_out(&[], "oom");
    assert!(ran.stderr().contains("torch.OutOfMemoryError"), "{}", ran.stderr());
    assert_eq!(p["findings"], json!([]), "{p}");
    let (_folder, _, p) = runs_out(&["caught"], "clean");
    assert_eq!(p["findings"], json!([]), "{p}");
}

#[test]
fn a_request_larger_than_the_card_is_no_leaks_doing_and_what_grows_is_named() {
    let (_folder, _, p) = runs_out(&["leak"], "oom");
    assert_eq!(p["devices"][0]["oom"]["cause"], "one-request", "{p}");
    assert_eq!(p["findings"].as_array().map(Vec::len), Some(1), "{p}");
    let finding = &p["findings"][0];
    assert_eq!((&finding["kind"], &finding["bytes_per_step"]), (&json!("step-growth"), &json!(64 * MIB)));
    let line = &finding["sites"][0]["your_line"];
    assert_eq!((&line["line"], &line["function"]), (&json!(marked("# LEAK")), &json!("out_of_memory")));
}

/// Graphs captured before the start, after it, and around it: their pools are used, replayed and freed; torch's numbers are ours.
#[test]
fn captured_graphs_are_no_contradiction_to_it() {
    for (what, steps, conf) in
        [("graph", 12, ""), ("graph", 12, "expandable_segments:True"), ("capture", 16, "")]
    {
        let folder = Folder::new("late-graph");
        let ran =
            asks(&folder, NASTY, &[what]).env("PYTORCH_CUDA_ALLOC_CONF", conf).run_imported().succeeded();
        assert_eq!(ran.theirs(), "", "the job's stderr is its own");
        let said = last_line(&ran);
        let recording = Recording::read(&ran.recording()).whole();
        let told = report(&ran.recording()).whole();
        assert_eq!((told.verdict().0, &told.process["steps"]), ("clean", &json!(steps)), "{}", told.run);
        assert_eq!(told.process["findings"], json!([]), "{}", told.run);
        let d = &told.process["devices"][0];
        assert_eq!(
            (&d["peak_allocated_bytes"], &d["peak_reserved_bytes"]),
            (&said["peak"], &said["peak_reserved"])
        );
        let inside: Vec<_> = recording.blocks().into_iter().filter(|b| b.pool.is_private()).collect();
        // Where the capture's begin was before the start, its blocks are known by their pool alone.
        let seen = what == "graph";
        assert!(!inside.is_empty() && inside.iter().all(|b| b.phase.capture == seen), "{what}: {inside:?}");
        let text = strandline(&["report".as_ref(), ran.recording().as_os_str()]);
        assert!(!text.contains("what really happened"), "{text}");
    }
}

#[test]
fn the_call_that_first_heard_of_a_broken_device_is_named_after_it() {
    let folder = Folder::new("late-fault");
    let ran = asks(&folder, NASTY, &["fault"]).run_imported();
    assert_eq!(ran.output.status.code(), Some(1), "{}", ran.stderr());
    let p = report(&ran.recording()).whole().process;
    let call = &p["failed_call"];
    let told = (&call["call"], &call["status"], &call["your_line"]["line"]);
    assert_eq!(told, (&json!("cudaStreamSynchronize"), &json!(700), &json!(marked("# HEARD"))), "{p}");
}

/// What other libraries do that were loaded before.
const LIBRARY: &str = r"
#include <stddef.h>
int cudaMalloc(void **, size_t), cudaMallocManaged(void **, size_t, unsigned);
int take(size_t n) { void *p; return cudaMalloc(&p, n); }
int manage(size_t n) { void *p; return cudaMallocManaged(&p, n, 1); }
";

#[test]
fn memory_beside_torchs_is_counted_from_then_on() {
    let folder = Folder::new("late-beside");
    let (source, library) = (folder.join("mine.c"), folder.join("libmine.so"));
    std::fs::write(&source, LIBRARY).expect("the source");
    let mut cc = Command::new("cc");
    assert!(
        cc.args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status()
            .expect("cc starts")
            .success()
    );
    let library = library.display().to_string();
    let ran = asks(&folder, NASTY, &["beside", &library]).run_imported().succeeded();
    let p = report(&ran.recording()).whole().process;
    // PyTorch rounds it to a power of two; what was there before was not seen.
    assert_eq!(p["pinned_host"], json!({ "bytes": 4 * MIB, "peak_bytes": 4 * MIB }), "{p}");
    assert_eq!(p["managed"], json!({ "bytes": 5 * MIB, "peak_bytes": 5 * MIB }), "{p}");
    let mine =
        p["libraries"].as_array().and_then(|l| l.iter().find(|l| l["name"].as_str() == Some("libmine.so")));
    assert_eq!(mine.map(|l| &l["bytes"]), Some(&json!(6 * MIB)), "{p}");
}
