//! Who holds what: the answers of the probe in a job, and that the job cannot see that it was asked.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strandline::reader::{FactsFollower, Reader};
use support::{Folder, Job, Recording, cache, command, python, python_3_13, python_with_transformers, root};

const SCRIPT: &str = "tests/python/holder.py";

/// Waits for the answer in a recording that is being written, then tells the job.
fn tell_when_answered(recording: PathBuf, answered: PathBuf) {
    let until = Instant::now() + Duration::from_secs(110);
    let mut follower = None;
    while Instant::now() < until {
        follower = follower.or_else(|| Reader::open(&recording).ok().map(FactsFollower::from_reader));
        let facts = follower.as_mut().map(FactsFollower::poll).unwrap_or_default();
        if facts.iter().any(|f| f.get("holders").is_some()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = std::fs::write(answered, "");
}

/// What the job says of itself, and the answer to each question.
fn run(python: &Path, packages: &str, probe: &str) -> (String, Value) {
    let folder = Folder::new("holder");
    let job = Job::program(&folder, python).arg(root().join(SCRIPT)).env("STRANDLINE_PROBE", probe);
    let job = job.env("PYTHONPATH", packages);
    let (recording, answered) = (folder.join("recording.strand"), folder.join("answered"));
    let watch = (probe == "on").then(|| {
        let answered = answered.clone();
        std::thread::spawn(move || tell_when_answered(recording, answered))
    });
    if watch.is_none() {
        std::fs::write(&answered, "").expect("a file");
    }
    let ran = job.run().succeeded();
    watch.into_iter().for_each(|w| w.join().expect("no panic"));
    let recording = Recording::read(&ran.recording()).whole();
    let left = folder.tails();
    assert!(probe == "off" || left.is_empty(), "{left:?}");
    (ran.stdout(), recording.fact("holders").clone())
}

#[test]
fn every_kind_of_holder_is_named_and_the_job_sees_nothing_of_it() {
    every_kind(python(), "");
}

/// Debian's and Ubuntu's Python is no position-independent program, and takes the address of `malloc`: that is then its own stub's for
/// the whole process. This is what real machines have; a Python that was built by hand is otherwise.
#[test]
fn every_kind_of_holder_in_the_python_of_the_distribution() {
    let system = Path::new("/usr/bin/python3");
    let said = |python: &Path, what: &str| {
        let source = format!("import sys, sysconfig; print({what})");
        let output = std::process::Command::new(python).args(["-c", &source]).output().ok();
        output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default()
    };
    const EXECUTABLE: [u8; 2] = [2, 0];
    let kind = std::fs::read(system).ok().and_then(|b| b.get(16..18).map(<[u8]>::to_vec));
    let version = |python| said(python, "sys.version_info[:2]");
    if kind.as_deref() != Some(&EXECUTABLE) || version(system) != version(python()) {
        return println!(
            "skipped: /usr/bin/python3 is not a fixed executable of the version that torch is installed for"
        );
    }
    every_kind(system, &said(python(), "sysconfig.get_path('purelib')"));
}

#[test]
fn every_kind_of_holder_on_python_3_13() {
    if let Some(python) = python_3_13() {
        every_kind(&python, "");
    }
}

/// LEAKBENCH_HOLD=3: the holders are there for three seconds after the last step, on however busy a machine.
#[test]
fn leakbench_holders_are_named_within_three_seconds() {
    let folder = Folder::new("holders");
    let python = python_with_transformers();
    let mut holders = std::process::Command::new(python);
    holders.arg(root().join("tests/leakbench/holders.py")).args([
        "--simulated",
        "--hold",
        "3",
        "--jobs",
        "2",
    ]);
    // How long it takes is measured elsewhere.
    holders.args(["--longest", "1e9"]).arg("--strandline").arg(command()).arg("--python").arg(python);
    holders.arg("--wheels").arg(cache().join("wheels")).arg("--out").arg(folder.path());
    let output = holders.output().expect("Python starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("4 passed"), "{out}{err}");
}

fn every_kind(python: &Path, packages: &str) {
    let (looked_into, answers) = run(python, packages, "on");
    let (left_alone, none) = run(python, packages, "off");
    assert_eq!(looked_into, left_alone, "a job that is looked into is the same job");
    assert!(none.is_null(), "{none}");
    let findings = answers[0]["findings"].as_array().expect("findings");
    let cost = &answers[0]["cost"];
    assert_eq!(answers[0]["collector"], "off", "the job has switched it off");
    let holder = |about: &str| {
        let f =
            findings.iter().find(|f| f["about"] == about).unwrap_or_else(|| panic!("{about}: {answers:#}"));
        let h = &f["holders"][0];
        (h["name"].as_str().unwrap_or(""), h["type"].as_str().unwrap_or(""), h["graph"] == true)
    };
    assert_eq!(holder("attribute"), ("Stash.kept", "dict", false), "{answers:#}");
    assert_eq!(holder("graph"), ("__main__.keepers", "list", true), "{answers:#}");
    let graph = &findings.iter().find(|f| f["about"] == "graph").expect("graph")["holders"][0];
    assert_eq!(
        (&graph["through"], &graph["blocks"]),
        (&"KeeperBackward.context".into(), &8.into()),
        "{graph}"
    );
    assert_eq!(holder("records"), ("__main__.history", "list", false), "{answers:#}");
    let cycle = &findings.iter().find(|f| f["about"] == "cycle").expect("cycle")["holders"];
    assert_eq!((&cycle[0]["name"], &cycle[0]["blocks"]), (&"Node.t".into(), &4.into()), "{answers:#}");
    assert!(cycle[0]["graph"] == false && cycle[1].is_null(), "what lies about is no holder: {cycle}");
    assert_eq!(
        holder("closure"),
        ("inside, a closure of closing.<locals>.closed", "list", false),
        "{answers:#}"
    );
    assert_eq!(holder("subclass"), ("__main__.subs", "list", false), "{answers:#}");
    assert_eq!(holder("local"), ("outs, a local of wait", "list", false), "{answers:#}");
    let nothing = findings.iter().find(|f| f["about"] == "nothing").expect("nothing");
    assert_eq!(nothing["status"], "not_found", "{nothing}");
    assert!(
        cost["slices"].as_u64().is_some_and(|n| n > 2) && cost["objects"].as_u64() > Some(1000),
        "{cost}"
    );
}

/// With PYTHONMALLOC=debug what is freed is overwritten: whatever reads it as an object that is alive dies of it.
#[test]
fn what_dies_between_two_slices_is_not_looked_at() {
    for python in [Some(python().into()), python_3_13()].into_iter().flatten() {
        let folder = Folder::new("gone");
        let job = Job::python_at(&folder, &python, "tests/python/gone.py", &["8"]);
        let ran = job.env("STRANDLINE_PROBE", "on:0").env("PYTHONMALLOC", "debug").run().succeeded();
        let answers =
            Recording::read(&ran.recording()).whole().fact("holders").as_array().map_or(0, Vec::len);
        assert!(answers > 5, "{answers}: {}", ran.stderr());
    }
}

/// Python has the states of threads that C code has ended: what they point to is on stacks that others use.
#[test]
fn a_thread_that_c_code_has_ended_has_no_frames() {
    for python in [Some(python().into()), python_3_13()].into_iter().flatten() {
        let folder = Folder::new("cut_short");
        let mut job = Command::new(command());
        job.arg("run").arg("-o").arg(folder.join("rec")).arg("--").arg(python);
        job.arg(root().join("tests/python/cut_short.py")).env("STRANDLINE_PROBE", "on:0");
        let output = job.output().expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"80\n"[..]), "{said}");
        assert!(said.contains("Kept.all"), "{said}");
    }
}

/// Whoever asks has to wait for its turn as well: the job's end waits longer for the last question where threads wait for a processor.
#[test]
fn a_short_job_on_a_busy_machine_is_searched_as_it_ends() {
    let folder = Folder::new("busy");
    std::fs::write(
        folder.join("train.py"),
        "import torch\nw = torch.zeros(8, device='cuda', requires_grad=True)\no = torch.optim.SGD([w])\nkept = []\n\
         for _ in range(60):\n    kept.append(torch.zeros(1 << 20, device='cuda'))\n    w.sum().backward()\n    o.step()\n",
    )
    .expect("a file");
    let mut job = Command::new(command());
    job.args(["run", "-o", "rec", "--"]).arg(python()).arg("train.py").current_dir(folder.path());
    let is_over = AtomicBool::new(false);
    let busy = 2 * std::thread::available_parallelism().map_or(2, |n| n.get());
    let output = std::thread::scope(|threads| {
        for _ in 0..busy {
            threads.spawn(|| {
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let output = job.output();
        is_over.store(true, Relaxed);
        output.expect("the command starts")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("train.py:6: kept.append("), "{said}");
}

/// `cargo test --test holder cpython -- --ignored --nocapture`; `CPYTHON_TESTS` names other modules.
#[test]
#[ignore = "minutes: CPython's own tests in two versions, each with and without a probe all the time"]
fn cpythons_own_tests_end_as_without_the_probe() {
    const MODULES: &str =
        "test_gc test_frame test_coroutines test_weakref test_scope test_contextlib test_deque test_super";
    let modules = std::env::var("CPYTHON_TESTS").unwrap_or_else(|_| MODULES.into());
    let modules: Vec<&str> = modules.split_whitespace().collect();
    for python in [Some(python().into()), python_3_13()].into_iter().flatten() {
        let run = |probe: &str| {
            let folder = Folder::new("cpython");
            let job = Job::python_at(&folder, &python, "tests/python/cpython_tests.py", &modules);
            let ran = job.env("STRANDLINE_PROBE", probe).env("PYTHONMALLOC", "debug").run().succeeded();
            let answers = Recording::read(&ran.recording()).fact("holders").as_array().map_or(0, Vec::len);
            // Some tests print what they do, and how long it took.
            let results =
                ran.stdout().lines().filter(|l| l.starts_with("result ")).collect::<Vec<_>>().join("\n");
            (results, answers)
        };
        let ((looked_into, answers), (left_alone, _)) = (run("on:0"), run("off"));
        println!("{looked_into}\n{answers} answers at the end");
        assert_eq!(looked_into, left_alone, "{}", python.display());
        assert!(answers > 5, "{answers}");
    }
}

/// `cargo test --test holder churn -- --ignored --nocapture`; `CHURN_SECONDS` for longer.
#[test]
#[ignore = "a minute: threads that make and free objects, code, tensors and graphs, under one probe after another"]
fn under_churn_nothing_else_is_ever_named_and_the_job_is_the_same_job() {
    let seconds = std::env::var("CHURN_SECONDS").unwrap_or_else(|_| "60".into());
    let run = |probe: &str, seconds: &str| {
        let folder = Folder::new("churn");
        let job = Job::python_at(&folder, python(), "tests/python/churn.py", &[seconds]);
        let recording = folder.join("recording.strand");
        let ended = std::sync::Arc::new(AtomicBool::new(false));
        let watch = std::thread::spawn({
            let ended = ended.clone();
            move || all_answers(&recording, &ended)
        });
        let ran = job.env("STRANDLINE_PROBE", probe).run().succeeded();
        ended.store(true, Relaxed);
        Recording::read(&ran.recording()).whole();
        (ran.stdout(), watch.join().expect("no panic"))
    };
    let (left_alone, none) = run("off", "5");
    let (looked_into, answers) = run("on:0", &seconds);
    assert_eq!(looked_into, left_alone, "a job that is looked into is the same job");
    assert!(none.is_empty() && looked_into.contains("failures []"), "{looked_into}");
    let (mut found, mut others) = (0, std::collections::BTreeMap::<String, u32>::new());
    for finding in answers.values().flat_map(|a| a["findings"].as_array().expect("findings")) {
        let right = match finding["about"].as_str() {
            Some("attribute") => ("Stash.kept", false),
            _ => ("__main__.losses", true),
        };
        let holders = finding["holders"].as_array().expect("holders");
        for h in holders {
            assert_eq!((h["name"].as_str().unwrap_or(""), h["graph"] == true), right, "{finding}");
        }
        match finding["status"] == "found" {
            true => found += 1,
            false => *others.entry(finding["reason"].to_string()).or_default() += 1,
        }
    }
    let worst = answers.values().map(|a| &a["cost"]).max_by_key(|c| c["longest_ns"].as_u64());
    println!("{} answers, {found} holders found; {others:?}; longest pause: {worst:?}", answers.len());
    assert!(found > 0);
}

/// Every answer in a recording that is being written, by the number of its question, until the job has ended.
fn all_answers(recording: &Path, ended: &AtomicBool) -> std::collections::BTreeMap<u64, Value> {
    let (mut follower, mut all) = (None, std::collections::BTreeMap::new());
    loop {
        let last = ended.load(Relaxed);
        follower = follower.or_else(|| Reader::open(recording).ok().map(FactsFollower::from_reader));
        for facts in follower.as_mut().map(FactsFollower::poll).unwrap_or_default() {
            for answer in facts.get("holders").and_then(Value::as_array).into_iter().flatten() {
                all.insert(answer["number"].as_u64().unwrap_or(0), answer.clone());
            }
        }
        if last {
            return all;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
