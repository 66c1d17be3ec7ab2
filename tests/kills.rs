//! Deaths without a last word: a recording is readable up to the last event, and how the process ended is told as far as it
//! is known.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{Folder, Job, command, preload_so, python, report, root, shell_status};

#[test]
fn fifty_kills_at_random_moments() {
    kills("50", None);
}

#[test]
fn kills_at_random_moments_of_a_job_whose_tails_run_keeps() {
    kills("25", Some("run"));
}

/// Kills so many processes; `how`: as `kill.py` takes it. All of it again and again, on a machine of its own:
/// `python tests/python/kill.py $(strandline doctor --library) strandline DIR 500 run`.
#[track_caller]
fn kills(count: &str, how: Option<&str>) {
    let folder = Folder::new("kills");
    let ran = Job::program(&folder, python())
        .arg("-u")
        .arg(root().join("tests/python/kill.py"))
        .arg(preload_so())
        .arg(command())
        .arg(folder.path())
        .arg(count)
        .args(how)
        // It sets this itself, for its children.
        .env("LD_PRELOAD", "")
        .env("XDG_CACHE_HOME", support::cache())
        .run();
    let said = ran.stdout();
    println!("{said}");
    assert!(ran.output.status.success(), "{said}\n{}", ran.stderr());
    assert!(said.contains(&format!("{count} passed, 0 failed")), "{said}");
    assert_eq!(ran.ours(), Vec::<String>::new());
}

/// `end.py HOW` under `strandline run`, whose tail is a file: exit status, our text, and what a report says afterwards.
#[track_caller]
fn run(how: &str) -> (i32, String, String) {
    let folder = Folder::new("run");
    let (status, text, process) = run_in(&folder, how, Some(folder.path()));
    (status, text, process["ended"].as_str().expect("a word").to_string())
}

/// The same with a folder for tails, or with a tail that `run` keeps; the process as JSON has it.
#[track_caller]
fn run_in(folder: &Folder, how: &str, tail: Option<&Path>) -> (i32, String, Value) {
    let mut run = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    run.args(["run", "-o", "rec", "--"]).arg(python()).arg(root().join("tests/programs/end.py")).arg(how);
    run.current_dir(folder.path()).env("XDG_CACHE_HOME", support::cache());
    // Whoever reads the recording of a dead process first keeps its tail beside it.
    run.envs(tail.map(|tail| ("STRANDLINE_TAIL", tail)));
    run.stdin(Stdio::null());
    let Output { status, stdout, stderr } = run.output().expect("the command starts");
    assert_eq!(String::from_utf8_lossy(&stdout), "allocated 20\n", "{how}: the job's output is its own");
    let report = report(&folder.join("rec")).whole();
    let p = &report.process;
    // 20 blocks: allocated, asked back and free again. Nothing of it is missing, whoever reads it.
    assert!(p["events"].as_u64().is_some_and(|n| n >= 60), "{how}: {p}");
    assert_eq!(p["devices"][0]["end_allocated_bytes"], 0, "{how}: up to the last event");
    let entries = std::fs::read_dir(folder.path()).expect("the folder").flatten();
    let tails: Vec<_> =
        entries.filter(|e| e.file_name().to_string_lossy().starts_with("strandline-")).collect();
    assert!(tails.is_empty(), "{how}: the tail's memory was not given back: {tails:?}");
    let text = String::from_utf8_lossy(&stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    (shell_status(status), text, p.clone())
}

/// Python's own end is left out, and with it who tells of the status.
#[test]
fn run_keeps_the_status_of_a_job_that_exits_without_handlers() {
    for tries in 0..3 {
        let folder = Folder::new("exit");
        let (status, text, process) = run_in(&folder, "_exit", None);
        assert_eq!(status, 3, "{text}");
        assert_eq!((&process["ended"], &process["exit_status"]), (&"exit".into(), &3.into()), "try {tries}");
    }
}

#[test]
fn a_kill_is_told_by_who_saw_it() {
    let (status, text, ended) = run("kill");
    assert_eq!((status, ended.as_str()), (137, "unknown"), "a recording does not know of its process's end");
    assert!(text.contains("ended by signal 9") && text.contains("exit 137, the job's own"), "{text}");
}

#[test]
fn an_abort_is_told_by_who_saw_it() {
    let (status, text, ended) = run("abort");
    assert_eq!((status, ended.as_str()), (134, "unknown"));
    assert!(text.contains("ended by signal 6") && text.contains("exit 134, the job's own"), "{text}");
}

#[test]
fn an_exit_without_handlers_is_an_exit() {
    let (status, text, ended) = run("_exit");
    assert_eq!((status, ended.as_str()), (3, "unknown"));
    assert!(!text.contains("ended by") && text.contains("exit 3, the job's own"), "{text}");
}

#[test]
fn an_orderly_end_is_recorded() {
    let (status, text, ended) = run("sysexit");
    assert_eq!((status, ended.as_str()), (7, "exit"));
    assert!(!text.contains("ended by"), "{text}");
}
