//! A process dies: of strandline's own code, of the real function behind a hook, of a fault of its own, of a signal that was sent. Only the
//! first is said to be ours.

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use strandline::event::AtWork;
use strandline::reader::Reader;
use support::{Folder, Job, command, libraries, report, root, shell_status};

/// What every report of a failure of ours begins with.
const FAILED: &str = "STRANDLINE MAY HAVE FAILED";

/// The program, made in this folder.
fn program(folder: &Folder) -> PathBuf {
    let cuda = libraries().join("../../nvidia/cu13/lib");
    let out = folder.join("job");
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O1", "-w", "-o"]).arg(&out).arg(root().join("tests/black_box/job.c"));
    cc.arg("-L").arg(&cuda).arg("-l:libcudart.so.13").arg(format!("-Wl,-rpath,{}", cuda.display()));
    cc.arg("-Wl,--allow-shlib-undefined").arg("-ldl");
    assert!(cc.status().expect("cc starts").success());
    out
}

/// The command in this folder, with a cache of the folder's own.
fn strandline(folder: &Folder, words: &[&str]) -> Command {
    let mut run = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    run.args(words).current_dir(folder.path()).env("XDG_CACHE_HOME", folder.join("cache"));
    run.env("LD_LIBRARY_PATH", libraries().join("../../nvidia/cu13/lib")).env("STRANDLINE_SIM_TOTAL", "4GiB");
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    run
}

/// `run -o NAME -- WORDS`, which is to end with this status; our text, on one line.
#[track_caller]
fn run(folder: &Folder, name: &str, words: &[&str], status: i32) -> String {
    let made = strandline(folder, &[&["run", "-o", name, "--"], words].concat()).output();
    let Output { status: got, stderr, .. } = made.expect("the command starts");
    let text = one_line(&stderr);
    assert_eq!(shell_status(got), status, "{text}");
    text
}

fn one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `report --format json` says of the only process of a recording.
#[track_caller]
fn told(recording: &Path) -> Value {
    report(recording).process
}

#[test]
fn a_death_in_our_own_code_is_said_to_be_ours_and_again_at_the_next_run() {
    let folder = Folder::new("box-hook");
    program(&folder);
    let text = run(&folder, "first", &["./job", "hook"], 139);
    let said = format!("strandline: {FAILED} in cudaMemGetInfo: a thread of ");
    assert!(text.contains(&said), "{text}");
    assert!(text.contains("died of SIGSEGV. Please report it; `--stacks none` may avoid it."), "{text}");
    assert!(!text.contains("NO LEAK"), "{text}");
    // Whoever reads it later is told the same.
    let p = told(&folder.join("first"));
    assert_eq!((&p["failed_in"], &p["verdict"]), (&"cudaMemGetInfo".into(), &"unknown".into()), "{p}");
    assert_eq!(p["ended"], "signal 11", "{p}");
    assert!(p["reason"].as_str().is_some_and(|r| r.contains("may have failed in cudaMemGetInfo")), "{p}");
    let page = strandline(&folder, &["report", "first", "--format", "html", "-o", "page.html"]).output();
    assert!(page.expect("it starts").status.success());
    assert!(std::fs::read_to_string(folder.join("page.html")).expect("a page").contains(FAILED));

    let words = "the last run died of SIGSEGV while strandline";
    let second = run(&folder, "second", &["./job", "clean"], 0);
    assert!(second.contains(words) && second.contains("was running in cudaMemGetInfo"), "{second}");
    assert!(second.contains("strandline: NO LEAK"), "the next one is judged: {second}");
    let third = run(&folder, "third", &["./job", "clean"], 0);
    assert!(!third.contains(words), "one run without it: {third}");
}

#[test]
fn a_rank_that_dies_in_our_own_code_is_known_though_its_parent_is_another() {
    let folder = Folder::new("box-rank");
    program(&folder);
    // A launcher's own end says nothing of its ranks'. This one never asks for its child's.
    let text = run(&folder, "rec", &["sh", "-c", "./job hook & exec sleep 2"], 0);
    assert!(text.contains(FAILED), "{text}");
}

/// No thread notes that the writer works, since it always does: the kernel's log names the thread.
#[test]
fn a_death_of_the_writer_thread_is_said_to_be_ours_where_the_kernel_logs_it() {
    let log = std::fs::File::options().read(true).open("/dev/kmsg");
    let logs = std::fs::read_to_string("/proc/sys/debug/exception-trace").unwrap_or_default();
    if log.is_err() || logs.trim() != "1" {
        return println!("skipped: the kernel's log cannot be read, or does not tell of faults");
    }
    let folder = Folder::new("box-writer");
    program(&folder);
    // The kernel logs ten faults in five seconds, of all processes together: other tests' jobs die, too.
    let named = (0..6).find_map(|i| {
        let name = format!("rec{i}");
        let text = run(&folder, &name, &["./job", "writer"], 139);
        if text.contains(&format!("{FAILED} in its writer thread: ")) {
            return Some(name);
        }
        std::thread::sleep(Duration::from_secs(6));
        None
    });
    let p = told(&folder.join(&named.expect("the log names it in one of six times")));
    assert_eq!((&p["failed_in"], &p["verdict"]), (&"its writer thread".into(), &"unknown".into()), "{p}");
}

#[test]
fn what_is_not_our_code_is_never_blamed_on_us() {
    let folder = Folder::new("box-not");
    program(&folder);
    for (how, status) in [("real", 139), ("null", 139), ("aborts", 134), ("clean", 0)] {
        let text = run(&folder, how, &["./job", how], status);
        assert!(!text.contains(FAILED), "{how}: {text}");
        assert!(text.contains("strandline: NO LEAK"), "{how}: {text}");
        let p = told(&folder.join(how));
        assert_eq!((&p["failed_in"], &p["verdict"]), (&Value::Null, &"clean".into()), "{how}: {p}");
    }
    assert!(!folder.join("cache/strandline/failed.json").exists());
}

/// Wherever its threads are just then: in the middle of a hook of ours, or in a loop of allocations.
#[test]
fn a_signal_that_was_sent_is_never_blamed_on_us() {
    let folder = Folder::new("box-sent");
    program(&folder);
    for i in 0..18 {
        let (name, signal) = (format!("rec{i}"), [9, 15, 6][i % 3]);
        let (how, last) = if i < 3 { ("held", "held") } else { ("loop", "begun") };
        let mut run = strandline(&folder, &["run", "-o", &name, "--", "./job", how]);
        let mut child = run.spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        assert!(out.lines().map_while(Result::ok).any(|line| line == last), "the job has come so far");
        std::thread::sleep(Duration::from_millis(i as u64));
        let recording = only(&folder.join(&name));
        let job = Reader::open(&recording).expect("a recording").summary().who.pid.to_string();
        let sent = Command::new("kill").args([format!("-{signal}"), job]).status();
        assert!(sent.expect("kill starts").success());
        let ended = child.wait_with_output().expect("it ends");
        let text = one_line(&ended.stderr);
        assert_eq!(shell_status(ended.status), 128 + signal, "{text}");
        assert!(!text.contains(FAILED) && !text.contains("strandline's code"), "{text}");
        let p = told(&folder.join(&name));
        assert_eq!(p["failed_in"], Value::Null, "{p}");
        assert_eq!(p["ended"], format!("signal {signal}"), "{p}");
        if how == "held" {
            assert_eq!(at_work(&recording), [AtWork::Hook("cudaMemGetInfo")], "it did die in a hook");
            assert_eq!(p["verdict"], "clean", "{p}");
        }
    }
    assert!(!folder.join("cache/strandline/failed.json").exists());
}

/// What of us its threads were in at the end.
fn at_work(recording: &Path) -> Vec<AtWork> {
    let mut reader = Reader::open(recording).expect("a recording");
    while reader.next().is_some() {}
    reader.summary().at_work.clone()
}

#[track_caller]
fn only(folder: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(folder).expect("the folder").flatten().map(|e| e.path());
    entries.find(|p| p.extension().is_some_and(|e| e == "strand")).expect("a recording")
}

/// Without `run` nobody knows of which signal a process died: nobody is blamed, and nothing is called clean.
#[test]
fn without_run_a_death_in_our_code_is_not_judged() {
    let folder = Folder::new("box-alone");
    let made = program(&folder);
    let cuda = libraries().join("../../nvidia/cu13/lib");
    for (how, verdict) in [("hook", "unknown"), ("null", "clean")] {
        let ran = Job::program(&folder, &made).arg(how).env("LD_LIBRARY_PATH", &cuda).run();
        let p = told(&ran.recording());
        assert_eq!((&p["verdict"], &p["failed_in"]), (&verdict.into(), &Value::Null), "{how}: {p}");
        let is_said = p["reason"].as_str().is_some_and(|r| {
            r.contains("in the middle of strandline's code in cudaMemGetInfo")
                && r.contains("if it was not killed, please report it")
        });
        assert_eq!(is_said, how == "hook", "{p}");
        std::fs::remove_file(ran.recording()).expect("one recording at a time");
    }
}
