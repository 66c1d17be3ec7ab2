//! The world's jobs: trainers and scripts of libraries that we did not write run recorded as they run bare (docs/world.md).

mod support;

use serde_json::Value;
use std::process::{Command, Stdio};
use support::{Folder, cache, command, python, python_with_transformers, root};

/// What the runner calls a difference, on runs that are made up.
#[test]
fn the_runner_sees_every_kind_of_difference() {
    let selftest = root().join("tests/world/selftest.py");
    let status = Command::new(python()).arg(selftest).stdin(Stdio::null()).status().expect("python starts");
    assert!(status.success());
}

/// Those tagged `quick` need no more than the simulated device's own Python: torch, transformers, accelerate, and TRL's wheel.
#[test]
fn quick_jobs_run_recorded_as_they_run_bare() {
    let folder = Folder::new("world");
    let python = python_with_transformers();
    let mut world = Command::new(python);
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        world.env_remove(name);
    }
    world.arg("-u").arg(root().join("tests/world/world.py"));
    world.arg("--out").arg(folder.path()).arg("--strandline").arg(command()).arg("--python").arg(python);
    world.arg("--wheels").arg(cache().join("wheels")).args([
        "--simulated",
        "--tags",
        "quick",
        "--jobs",
        "2",
        "--patience",
        "4",
    ]);
    let status = world.env_remove("LD_PRELOAD").stdin(Stdio::null()).status().expect("python starts");
    assert!(status.success(), "see above: the lines that begin with DIFFERS or BROKEN");

    let text = std::fs::read_to_string(folder.join("results.jsonl")).expect("results");
    let results: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let manifest = std::fs::read_to_string(root().join("tests/world/manifest.toml")).expect("the manifest");
    let quick = manifest.lines().filter(|l| l.contains("\"quick\"")).count();
    assert_eq!(results.len(), quick, "a quick job was left out: it needs a package that CI does not have");
    for result in &results {
        let recorded = &result["modes"]["python"];
        assert!(recorded["processes"].as_u64() >= Some(1), "nothing was recorded of {result}");
    }
}
