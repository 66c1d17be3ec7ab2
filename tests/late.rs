//! The late door: a job on the simulated device that asks for strandline when it runs already, with nothing put before it.
//!
//! The oracle is torch: what it says from then on is what the recording says.

mod support;

use serde_json::{Value, json};
use strandline::event::Body;
use support::{Folder, Job, Ran, Recording, cache, command, report, root, strandline};

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
    let ran = job.run_for(300.0).succeeded();
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
    assert_eq!(recording.fact("step_hooks"), "direct");
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
        assert_eq!(report.verdict().0, if leak { "leak" } else { "clean" }, "{}", report.run);
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
    let python = match std::env::var("STRANDLINE_TEST_PYTHON").ok().filter(|p| !p.is_empty()) {
        Some(python) => python,
        None => strandline(&["simulate", "--with-transformers", "--python"]).trim_end().to_string(),
    };
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
