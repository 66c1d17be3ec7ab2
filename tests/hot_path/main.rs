//! The hot path makes no heap allocation, no lock, no system call, no call of the loader and none of CUDA: counted, in
//! the events of a thread, its first one and first sights of stacks and code objects included.

#[path = "../support/mod.rs"]
mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use strandline::event::Body;
use support::{Folder, Job, Recording, libraries, python, root};

/// What may be called: it looks at memory and touches nothing else. For one of a process's first 32 keys, which ours is,
/// `pthread_setspecific` is two stores into the thread's own descriptor.
const HARMLESS: [&str; 7] =
    ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen", "pthread_setspecific"];

/// The recorder's imports are counted, and the five functions of the heap that it keeps the addresses of.
#[track_caller]
fn is_counted(head: &Value) {
    let is_more = |key: &str, than: i64| head[key].as_i64().is_some_and(|n| n > than);
    assert!(is_more("imports", 20) && is_more("kept", 4), "{head}");
}

/// Compiles the counters with the C compiler that the build needs anyway.
fn counters(folder: &Folder) -> PathBuf {
    let library = folder.join("libcounted.so");
    let source = root().join("tests/hot_path/counted.c");
    let mut cc = Command::new("cc");
    let status = cc.args(["-O2", "-shared", "-fPIC", "-w", "-o"]).arg(&library).arg(source).status();
    assert!(status.expect("cc starts").success());
    library
}

fn job(folder: &Folder, argument: &Path) -> Job {
    let script = root().join("tests/hot_path/windows.py");
    Job::program(folder, python())
        .arg(script)
        .arg(libraries())
        .arg(argument)
        .env("PYTHONDONTWRITEBYTECODE", "1")
}

#[test]
fn no_event_calls_what_could_wait_the_first_one_and_a_new_stack_included() {
    for stacks in ["python", "native", "both"] {
        let folder = Folder::new("hot");
        let ran = job(&folder, &counters(&folder)).env("STRANDLINE_STACKS", stacks).run().succeeded();
        let rows: Vec<Value> =
            ran.stdout().lines().map(|l| serde_json::from_str(l).expect("JSON lines")).collect();
        let [head, windows @ ..] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(windows.len(), 12, "two threads, each with a first, a later and four unseen stacks");
        is_counted(head);
        // Where the kernel has no user dispatch, only the recorder's own calls are seen.
        assert!([110, -2].contains(&head["self_test"].as_i64().expect("a number")), "{head}");
        let recording = Recording::read(&ran.recording()).whole();
        let clock = (recording.fact("clock") != "tsc").then_some("clock_gettime");
        let called = |row: &Value| -> Vec<String> {
            let calls = row["calls"].as_object().expect("calls");
            let harmless = |n: &&String| HARMLESS.contains(&n.as_str()) || Some(n.as_str()) == clock;
            calls.keys().filter(|n| !harmless(n)).cloned().collect()
        };
        for row in windows {
            assert_eq!(called(row), Vec::<String>::new(), "--stacks {stacks}: {row}");
            assert_eq!(row["system_call"], -1, "--stacks {stacks}: {row}");
        }
        let counted = |row: &Value| row["calls"].as_object().is_some_and(|c| c.contains_key("memcpy"));
        assert!(windows.iter().any(counted), "a definition is copied: the counters count");
        // The new stacks did get definitions.
        assert_eq!(recording.fact("stacks_undefined"), 0);
        let names = recording.reader.names();
        let blocks = recording.events.iter().filter_map(|e| match &e.body {
            Body::Alloc(b) => Some(b.stack),
            _ => None,
        });
        let (mut deepest, mut new) = (0, 0);
        for stack in blocks {
            let unseen = names.frames(stack).filter(|f| f.file.starts_with('<') && f.file.ends_with(" 0>"));
            new += unseen.count();
            deepest = deepest.max(names.frames(stack).count() + names.native(stack).len());
        }
        let expected = if stacks == "native" { 0 } else { 8 };
        assert_eq!(new, expected, "--stacks {stacks}");
        assert!(deepest > if stacks == "native" { 10 } else { 300 }, "--stacks {stacks}: {deepest}");
        let of_worker = |n: &str| n.starts_with("python");
        let named = recording.threads.iter().filter(|t| of_worker(&t.name)).count();
        assert!(named >= 3, "threads are named without their help: {:?}", recording.threads);
        assert!(recording.threads.iter().all(|t| t.tid > 0), "{:?}", recording.threads);
    }
}

/// What the recorder calls in each window of `windows.py … HOW`, but for what is harmless; and each window's name.
fn windows(how: &str, allocator: (&str, &str), stacks: &str) -> Vec<(String, Vec<String>)> {
    let folder = Folder::new("windows");
    let job = job(&folder, &counters(&folder)).arg(how).env("STRANDLINE_STACKS", stacks);
    let ran = job.env(allocator.0, allocator.1).run().succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    let clock = (recording.fact("clock") != "tsc").then_some("clock_gettime");
    let rows: Vec<Value> =
        ran.stdout().lines().map(|l| serde_json::from_str(l).expect("JSON lines")).collect();
    let [head, windows @ ..] = &rows[..] else { panic!("{rows:?}") };
    is_counted(head);
    // The first event of each thread is in a window: it has the recorder told of the thread's end.
    let begun = |row: &&Value| row["calls"]["pthread_setspecific"] == 1;
    assert_eq!(windows.iter().filter(begun).count(), 2, "{rows:?}");
    let called = |row: &Value| {
        let calls = row["calls"].as_object().expect("calls").keys().cloned();
        calls.filter(|n| !HARMLESS.contains(&n.as_str()) && Some(n.as_str()) != clock).collect()
    };
    let name = |row: &Value| format!("{} = {}", row["call"].as_str().expect("a name"), row["status"]);
    windows.iter().map(|row| (name(row), called(row))).collect()
}

#[test]
fn no_hook_of_a_cuda_call_calls_what_could_wait() {
    for stacks in ["none", "python", "both"] {
        let windows = windows("calls", ("A", ""), stacks);
        assert_eq!(windows.len(), 4 * 23, "two threads, twice");
        for (name, called) in &windows {
            assert_eq!(called, &Vec::<String>::new(), "--stacks {stacks}: {name}");
        }
        let refused = |name: &str| windows.iter().filter(|(n, _)| n == &format!("{name} = 2")).count();
        assert_eq!(
            (refused("cudaMalloc"), refused("cudaGetLastError")),
            (4, 4),
            "and where memory is refused"
        );
    }
}

#[test]
fn no_step_calls_what_could_wait_whichever_allocator_pytorch_has() {
    let allocators = [
        ("PYTORCH_ALLOC_CONF", ""),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True"),
        ("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    ];
    for allocator in allocators {
        let windows = windows("torch", allocator, "both");
        assert_eq!(windows.len(), 4, "two threads, twice");
        for (name, called) in windows {
            assert_eq!(called, Vec::<String>::new(), "{allocator:?}: {name}");
        }
    }
}

#[test]
fn no_cuda_call_is_added() {
    let folder = Folder::new("traced");
    let calls = |preload: bool| {
        let trace = folder.join(if preload { "with" } else { "without" });
        let job = job(&folder, Path::new("traced")).env("STRANDLINE_SIM_TRACE", &trace);
        let job = if preload { job } else { job.env("LD_PRELOAD", "") };
        job.run().succeeded();
        let text = std::fs::read_to_string(&trace).expect("a trace");
        let mut calls: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines() {
            let name = line.split(" ->").next().unwrap_or_default().to_string();
            *calls.entry(name).or_default() += 1;
        }
        calls
    };
    let (with, without) = (calls(true), calls(false));
    assert!(without.values().sum::<usize>() > 0, "the simulated device was used");
    assert_eq!(with, without);
}

/// What PyTorch asks before every kernel came to us only to tell when its allocator is there.
#[test]
fn what_was_only_a_trigger_is_past_us_once_we_are_attached() {
    let current = "_ZN3c104cuda20getCurrentCUDAStreamEa";
    let set = "_ZN3c104cuda20setCurrentCUDAStreamENS0_10CUDAStreamE";
    let bound = |disabled: bool| -> Value {
        let folder = Folder::new("aside");
        let job = Job::python(&folder, "tests/hot_path/aside.py", &[current, set]);
        let job = if disabled { job.env("STRANDLINE_DISABLE", "1") } else { job };
        serde_json::from_str(&job.run().succeeded().stdout()).expect("JSON")
    };
    let recorded = bound(false);
    assert_eq!(recorded["after"][current], "libc10_cuda.so", "{recorded}");
    assert_eq!(recorded["after"][set], "libstrandline.so", "{recorded}");
    let before = &recorded["before"][current];
    assert_ne!(before, "libc10_cuda.so", "not bound yet, or bound to us: {recorded}");
    let passed = bound(true);
    assert_eq!(passed["after"][current], "libc10_cuda.so", "{passed}");
}
