//! Programs that use no PyTorch: a few lines of C that reach CUDA by the runtime, by the driver, by names, and as a runtime
//! inside the program does. On the simulated device.

mod support;

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use strandline::event::{Body, RuntimeOp};
use support::{Folder, Job, Recording, libraries, report, root, strandline};

const MIB: u64 = 1 << 20;
const ROUTES: [&str; 5] = ["runtime", "linked", "dlsym", "static", "inside"];

/// Where the simulated CUDA libraries lie.
fn cuda() -> PathBuf {
    let folder = libraries().join("../../nvidia/cu13/lib");
    assert!(folder.join("libcuda.so.1").exists(), "{}", folder.display());
    folder
}

/// The program, made for a route.
fn program(folder: &Folder, route: &str) -> PathBuf {
    let out = folder.join(route);
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O1", "-w", "-fno-omit-frame-pointer", "-o"])
        .arg(&out)
        .arg(root().join("tests/driver/job.c"));
    let library = match route {
        "linked" => Some(("-DLINKED", "-l:libcuda.so.1")),
        "runtime" => Some(("-DRUNTIME", "-l:libcudart.so.13")),
        "inside" => {
            cc.arg("-DINSIDE");
            None
        }
        _ => None,
    };
    if let Some((define, library)) = library {
        cc.arg(define).arg("-L").arg(cuda()).arg(library).arg(format!("-Wl,-rpath,{}", cuda().display()));
    }
    assert!(cc.arg("-ldl").status().expect("cc starts").success());
    out
}

fn job(folder: &Folder, program: &Path, route: &str, what: &str) -> Job {
    Job::program(folder, program)
        .arg(route)
        .arg(what)
        .arg("20")
        .env("LD_LIBRARY_PATH", cuda())
        .env("STRANDLINE_SIM_TOTAL", "4GiB")
}

/// Every block of the program is one event, and the calls are those of the program alone.
#[track_caller]
fn is_judged(route: &str) {
    let folder = Folder::new("driver");
    let made = program(&folder, route);
    let [with, without] = [true, false].map(|preload| {
        let trace = folder.join(if preload { "with" } else { "without" });
        let job = job(&folder, &made, route, "leak").env("STRANDLINE_SIM_TRACE", &trace);
        let ran = if preload { job } else { job.env("LD_PRELOAD", "") }.run().succeeded();
        let calls = std::fs::read_to_string(&trace).expect("a trace").lines().count();
        (ran.stdout(), ran.theirs(), calls, ran)
    });
    assert!(without.2 > 100, "{}", without.2);
    assert_eq!((&with.0, &with.1, with.2), (&without.0, &without.1, without.2), "{route}");
    let recording = Recording::read(&with.3.recording()).whole();
    let each = [3 * MIB, 5 * MIB + 1, 8 * MIB];
    let expected: Vec<u64> = std::iter::once(32 * MIB).chain([each; 20].concat()).collect();
    assert_eq!(recording.allocated(), expected, "{route}: each once, in order");
    let all = recording.blocks();
    assert!(all.iter().all(|b| b.pool.is_direct() && b.stack.0 != 0), "a stack for each");
    assert_eq!(recording.count(|b| matches!(b, Body::FreeRequested(_))), 41);

    let leaked = report(&with.3.recording());
    assert_eq!(leaked.verdict().0, "growing", "{}", leaked.run);
    let p = &leaked.process;
    let figures = [&p["allocator"], &p["steps"], &p["events_lost"], &p["damage"], &p["coverage"]["level"]];
    assert_eq!(figures, [&json!("CUDA"), &json!(20), &json!(0), &json!([]), &json!("blocks")], "{p}");
    assert_eq!(p["findings"].as_array().map(Vec::len), Some(1), "{p}");
    let finding = &p["findings"][0];
    assert_eq!((&finding["kind"], &finding["bytes_per_step"]), (&json!("step-growth"), &json!(8 * MIB)));
    assert!(in_function(finding, "keep"), "{route}: {finding}");
    let first = &finding["sites"][0]["native_frames"][0]["function"];
    assert_eq!(
        (first, &finding["blocks_now"]),
        (&json!("keep"), &json!(18)),
        "{route}: who asked the runtime: {finding}"
    );
    assert_eq!(p["devices"][0]["peak_allocated_bytes"], json!((32 + 20 * 8 + 8 + 1) * MIB - MIB + 512));

    let twin = Folder::new("driver-twin");
    let ran = job(&twin, &made, route, "clean").env("STRANDLINE_STACKS", "both").run().succeeded();
    assert!(!ran.stderr().contains("no stacks"), "a parent may read this stderr: {}", ran.stderr());
    let healthy = report(&ran.recording());
    assert_eq!(healthy.verdict().0, "clean", "{route}: {}", healthy.run);
}

fn in_function(finding: &Value, name: &str) -> bool {
    let frames = finding["sites"][0]["native_frames"].as_array();
    frames.is_some_and(|f| f.iter().any(|f| f["function"] == name))
}

#[test]
fn a_program_with_the_runtime_as_a_library_is_judged() {
    is_judged(ROUTES[0]);
}

#[test]
fn a_program_that_imports_the_driver_is_judged() {
    is_judged(ROUTES[1]);
}

#[test]
fn a_program_that_looks_the_driver_up_by_name_is_judged() {
    is_judged(ROUTES[2]);
}

#[test]
fn a_program_with_a_runtime_inside_is_judged() {
    is_judged(ROUTES[3]);
}

#[test]
fn who_calls_a_runtime_inside_the_program_is_told_from_the_runtime() {
    is_judged(ROUTES[4]);
}

#[test]
fn the_first_call_that_a_broken_device_fails_is_named() {
    for (route, call) in ROUTES.into_iter().zip(["cudaDeviceSynchronize", "", "", "cuCtxSynchronize_v2", ""])
    {
        if call.is_empty() {
            continue; // the same hook as the last one's
        }
        let folder = Folder::new("driver-broken");
        let made = program(&folder, route);
        let ran = job(&folder, &made, route, "broken").run().succeeded();
        assert_eq!(ran.stdout(), "719 719\n");
        let p = report(&ran.recording()).process;
        let failed = &p["failed_call"];
        let told = (&failed["call"], &failed["status"], &failed["explain"]);
        assert_eq!(told, (&json!(call), &json!(719), &json!("a kernel that failed")), "{p}");
    }
}

/// What the last allocation that CUDA refused a program is said to be, by the route that it took.
#[test]
fn a_program_that_ends_of_a_refused_allocation_ran_out_of_memory() {
    for (route, what, other) in [
        ("static", "dies", "0"),
        ("runtime", "dies", "3GiB"),
        ("dlsym", "aborts", "0"),
        ("linked", "dies", "0"),
    ] {
        let folder = Folder::new("driver-refused");
        let made = program(&folder, route);
        let ran = job(&folder, &made, route, what).env("STRANDLINE_SIM_OTHER", other).run();
        assert!(!ran.output.status.success(), "{}", ran.stderr());
        assert_eq!(ran.stdout(), "alloc: 2\n", "{route}");
        let report = report(&ran.recording());
        assert_eq!(report.verdict().0, "oom", "{route} {what}: {}", report.run);
        let failed = &report.process["devices"][0]["oom"];
        let figures = [&failed["requested_bytes"], &failed["step"], &failed["call"], &failed["free_bytes"]];
        assert_eq!(figures, [&json!(64u64 << 30), &json!(21), &json!("malloc"), &Value::Null], "{failed}");
        assert_eq!(failed["allocated_bytes"], json!(32 * MIB), "{failed}");
        assert_eq!(failed["holders"][0]["bytes"], json!(32 * MIB), "{failed}");
        let text = strandline(&["report".as_ref(), ran.recording().as_os_str()]);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.starts_with("strandline: OUT OF MEMORY, NO LEAK ("), "{text}");
        assert!(
            words.contains("64.0 GiB was requested in step 21 by keep (")
                && words.contains("tests/driver/job.c:"),
            "{text}"
        );
        assert!(words.contains("and CUDA refused; free memory was not queried"), "{text}");
    }
}

#[test]
fn what_a_program_does_without_is_no_shortage() {
    for route in ROUTES {
        let folder = Folder::new("driver-probes");
        let made = program(&folder, route);
        let ran = job(&folder, &made, route, "probes").run();
        assert_eq!(ran.output.status.code(), Some(3), "{}{}", ran.stdout(), ran.stderr());
        let report = report(&ran.recording());
        assert_eq!(report.verdict().0, "clean", "{route}: {}", report.run);
        assert_eq!(report.process["devices"][0]["oom"], Value::Null, "{}", report.process);
        let recording = Recording::read(&ran.recording()).whole();
        let refused = |b: &Body| matches!(b, Body::Runtime { addr, .. } if addr.0 == 0);
        assert_eq!(recording.count(refused), 40, "{route}: both kinds, in every step");
    }
}

#[test]
fn every_kind_of_memory_is_seen_once() {
    for route in &ROUTES[1..4] {
        let folder = Folder::new("driver-kinds");
        let made = program(&folder, route);
        let ran = job(&folder, &made, route, "kinds").devices(2).env("JOB_DEVICE", "1").run().succeeded();
        let recording = Recording::read(&ran.recording()).whole();
        let sizes = recording.allocated();
        let pitched = 1024 * 1024;
        assert_eq!(
            sizes[sizes.len() - 3..],
            [pitched, 6 * MIB, 4 * MIB],
            "{route}: rows, a stream's, mapped"
        );
        assert_eq!(recording.count(|b| matches!(b, Body::FreeRequested(_))), 60 + 2 + 1, "{route}");
        assert!(recording.blocks().iter().all(|b| b.device.0 == 1), "{route}: on the device of its context");
        let calls: Vec<(RuntimeOp, u64)> = recording
            .events
            .iter()
            .filter_map(|e| match &e.body {
                Body::Runtime { op, size, .. } => Some((*op, size.0)),
                _ => None,
            })
            .collect();
        let others =
            [(RuntimeOp::MallocManaged, 3 * MIB), (RuntimeOp::HostAlloc, 2 * MIB), (RuntimeOp::HostFree, 0)];
        assert_eq!(calls, others, "{route}");
        let p = report(&ran.recording()).process;
        assert_eq!(p["damage"], json!([]), "{p}");
    }
}

/// CuPy tells of its pool's blocks; here a pool and hooks by its names do.
#[test]
fn cupys_pool_is_seen_inside_by_its_hooks() {
    let folder = Folder::new("driver-cupy");
    let (from, to) = (root().join("tests/python/cupy_stub/cupy"), folder.join("site-packages/cupy"));
    std::fs::create_dir_all(to.join("cuda")).expect("a folder");
    for file in ["__init__.py", "cuda/__init__.py", "cuda/memory_hook.py"] {
        std::fs::copy(from.join(file), to.join(file)).expect("copied");
    }
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w", "-o"]).arg(to.join("chunk.so")).arg(from.join("chunk.c"));
    cc.arg("-L").arg(cuda()).arg("-l:libcuda.so.1").arg(format!("-Wl,-rpath,{}", cuda().display()));
    assert!(cc.status().expect("cc starts").success());
    let path =
        format!("{}:{}", root().join("tools/python").display(), folder.join("site-packages").display());
    let source = std::fs::read_to_string(root().join("tests/python/cupy_pool.py")).expect("the job");
    let planted = source.lines().position(|l| l.ends_with("# LEAK")).expect("the planted line") + 1;
    for (preload, leak) in [(true, true), (true, false), (false, true), (false, false)] {
        let made = Folder::new("driver-cupy-job");
        let arguments = if leak { &["leak"][..] } else { &[] };
        let job = Job::python(&made, "tests/python/cupy_pool.py", arguments)
            .env("PYTHONPATH", &path)
            .env("STRANDLINE_SIM_TOTAL", "4GiB")
            .env("STRANDLINE_BIN", support::command())
            .env("XDG_CACHE_HOME", support::cache());
        let ran = if preload { job } else { job.env("LD_PRELOAD", "") }.run().succeeded();
        assert!(!ran.stderr().contains("libc10"), "{}", ran.stderr());
        assert_eq!(ran.theirs(), "", "the job's stderr is its own");
        let said: Value = serde_json::from_str(&ran.stdout()).expect("JSON");
        assert_eq!((&said["path"], &said["hooks"]), (&said["again"], &json!(["strandline"])), "{said}");
        let recording = Recording::read(&ran.recording()).whole();
        let each = if leak { &[3 * MIB, 5 * MIB, 8 * MIB][..] } else { &[3 * MIB, 5 * MIB] };
        let expected: Vec<u64> = std::iter::once(8 * MIB).chain(each.repeat(24)).collect();
        assert_eq!(recording.allocated(), expected, "each array once, and no chunk");
        assert!(recording.blocks().iter().all(|b| b.stack.0 != 0), "a stack for each");
        let report = report(&ran.recording());
        assert_eq!(report.verdict().0, if leak { "growing" } else { "clean" }, "{}", report.run);
        let p = &report.process;
        assert_eq!((&p["allocator"], &p["coverage"]["level"]), (&json!("CuPy"), &json!("blocks")), "{p}");
        if leak {
            let finding = &p["findings"][0];
            assert_eq!(finding["bytes_per_step"], json!(8 * MIB), "{finding}");
            let line = &finding["sites"][0]["your_line"];
            assert_eq!((&line["line"], &line["function"]), (&json!(planted), &json!("batch")), "{finding}");
        }
    }
}

/// `errno`, traps of floating-point numbers, stacks of coroutines, children without handlers of forks, the forms of functions that
/// `cuGetProcAddress` gives out, and the runtime that a library is linked to, beside another one that its package has renamed.
#[test]
fn what_a_program_sees_of_cuda_is_as_without_strandline() {
    let folder = Folder::new("driver-undisturbed");
    let parts: [(&str, &[&str], &[&str]); 6] = [
        ("libcuda.so.1", &["-DDRIVER"], &[]),
        ("libcudart.ab12cd34.so.12", &["-DRUNTIME=12"], &[]),
        ("libcudart.so.13", &["-DRUNTIME=13"], &[]),
        ("libuser12.so", &["-DUSER=12"], &["-l:libcudart.ab12cd34.so.12"]),
        ("libuser13.so", &["-DUSER=13"], &["-l:libcudart.so.13"]),
        ("undisturbed", &[], &["-l:libcuda.so.1"]),
    ];
    for (name, defines, libraries) in parts {
        let mut cc = Command::new("cc");
        cc.args(["-g", "-O1", "-w", "-o"]).arg(folder.join(name)).args(defines);
        if name.starts_with("lib") {
            cc.args(["-shared", "-fPIC"]).arg(format!("-Wl,-soname,{name}"));
        }
        cc.arg(root().join("tests/driver/undisturbed.c")).arg("-L").arg(folder.path()).args(libraries);
        assert!(cc.args(["-ldl", "-lpthread", "-lm"]).status().expect("cc starts").success(), "{name}");
    }
    let [with, without] = [true, false].map(|preload| {
        let job = Job::program(&folder, folder.join("undisturbed")).arg(folder.path());
        let job = job.env("LD_LIBRARY_PATH", folder.path());
        if preload { job } else { job.env("LD_PRELOAD", "") }.run().succeeded()
    });
    assert_eq!(with.stdout(), without.stdout());
    for line in [
        "first thread: errno 77 after cuMemAlloc_v2(&p, 1 << 20)",
        "  driver: copy on the thread's own default stream",
        "  driver: context 42 is waited for",
        "switched stacks",
        "child: 3, at once",
        "launched: 98 0; last errors 0 98 0",
        "  properties of 12 bytes",
    ] {
        assert!(without.stdout().lines().any(|l| l == line), "{line}: {}", without.stdout());
    }
    let recording = Recording::read(&with.recording()).whole();
    assert_eq!(
        recording.allocated(),
        [MIB; 15],
        "two threads, two stacks, and two libraries twice; nothing of the child"
    );
}
