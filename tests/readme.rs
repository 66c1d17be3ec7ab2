//! The README: its demo ends as it says, and its transcript is a run's, not a hand's.

mod support;

use std::path::Path;
use std::process::Command;
use support::snapshot_rules::must_be_valid;
use support::{Folder, command, root};

const OPEN: &str = "<!-- transcript: made by tests/readme.rs from a run of the demo; STRANDLINE_UPDATE=1 cargo test --test readme rewrites it -->\n```text\n";
const CLOSE: &str = "```\n<!-- end of transcript -->";

/// Labels a report's lines begin with: the order and presence of these is what the README promises, while figures
/// differ from run to run.
const LABELS: [&str; 14] = [
    "strandline: LEAK",
    "GPU 0",
    "normal use",
    "left behind",
    "the rest",
    "LEAK 1",
    "allocated",
    "in the backward pass started at your",
    "because",
    "fix",
    "steps",
    "run",
    "next",
    "exit",
];

/// The labels of a text, each where it comes first.
fn labels(text: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for line in text.lines() {
        // A label ends where its word does: a wrapped line may begin with "runs".
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric());
        let is = |label: &&str| line.trim_start().strip_prefix(label).is_some_and(ends);
        let label = LABELS.into_iter().find(is);
        found.extend(label.filter(|l| !found.contains(l)));
    }
    found
}

#[test]
fn the_demo_ends_as_the_readme_shows() {
    let folder = Folder::new("readme");
    let out = Command::new(command())
        .args(["demo", "--simulated", "-o", "demo"])
        .current_dir(folder.path())
        .env("STRANDLINE_CACHE", support::cache())
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&out.stderr).replace('\r', "");
    assert!(out.status.success(), "{said}");
    // Lines are broken where they are full.
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for must in [
        "strandline: LEAK",
        "trl/models/activation_offloading.py:430",
        "side stream 1",
        "0 lost; sizes add up to PyTorch's own counters",
    ] {
        assert!(words.contains(must), "no {must:?} in\n{said}");
    }
    // An alert while it ran has left a bundle with a snapshot of its own.
    let mut snapshots = folder.files(".pickle");
    snapshots.retain(|path| !path.to_string_lossy().contains("/bundle-"));
    let [snapshot] = snapshots.as_slice() else { panic!("snapshots: {snapshots:?}") };
    must_be_valid(&std::fs::read(snapshot).expect("the snapshot"));

    let begin = said.find("strandline: LEAK").unwrap_or(0);
    let report: String = said[begin..]
        .lines()
        .take_while(|l| !l.starts_with("strandline: snapshot"))
        .map(|l| format!("{l}\n"))
        .collect();
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path).expect("README.md");
    let (before, rest) = readme.split_once(OPEN).expect("the transcript's beginning");
    let (shown, after) = rest.split_once(CLOSE).expect("the transcript's end");
    // A run beside much other work may end before its objects are searched: it is not what a reader should see.
    let names_holder = |text: &str| text.contains("held by    OffloadActivations.bwd_tensor_stash, a dict");
    if std::env::var_os("STRANDLINE_UPDATE").is_some() {
        assert!(names_holder(&report), "no holder: run it again, alone\n{report}");
        write(&path, &format!("{before}{OPEN}{report}{CLOSE}{after}"));
        return;
    }
    let unique = |t| {
        let mut l = labels(t);
        l.dedup();
        l.into_iter().filter(|l| LABELS.contains(l)).fold(Vec::new(), |mut v, l| {
            if !v.contains(&l) {
                v.push(l);
            }
            v
        })
    };
    assert_eq!(
        unique(shown),
        unique(&report),
        "STRANDLINE_UPDATE=1 rewrites the transcript; this run:\n{report}"
    );
    assert!(shown.contains("trl/models/activation_offloading.py:430") && names_holder(shown));
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("README.md is writable");
}
