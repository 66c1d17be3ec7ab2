//! Who holds what: the answers of the probe in a job, and that the job cannot see that it was asked.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strandline::reader::FactsFollower;
use support::{Folder, Job, Recording, python, python_3_13, root};

const SCRIPT: &str = "tests/python/holder.py";

/// Waits for the answer in a recording that is being written, then tells the job.
fn tell_when_answered(recording: PathBuf, answered: PathBuf) {
    let until = Instant::now() + Duration::from_secs(110);
    let mut follower = None;
    while Instant::now() < until {
        follower = follower.or_else(|| FactsFollower::open(&recording).ok());
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

fn every_kind(python: &Path, packages: &str) {
    let (looked_into, answers) = run(python, packages, "on");
    let (left_alone, none) = run(python, packages, "off");
    assert_eq!(looked_into, left_alone, "a job that is looked into is the same job");
    assert!(none.is_null(), "{none}");
    let findings = answers[0]["findings"].as_array().expect("findings");
    let cost = &answers[0]["cost"];
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
    assert_eq!(holder("closure"), ("a closure of closing.<locals>.closed", "list", false), "{answers:#}");
    assert_eq!(holder("subclass"), ("__main__.subs", "list", false), "{answers:#}");
    assert_eq!(holder("local"), ("outs, a local of wait", "list", false), "{answers:#}");
    let nothing = findings.iter().find(|f| f["about"] == "nothing").expect("nothing");
    assert_eq!(nothing["status"], "not_found", "{nothing}");
    assert!(
        cost["slices"].as_u64().is_some_and(|n| n > 2) && cost["objects"].as_u64() > Some(1000),
        "{cost}"
    );
}
