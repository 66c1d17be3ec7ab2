//! What Python and its packages let a program do, beside CUDA allocations: the same without us, in every way of taking stacks.

use crate::support::{Folder, Job, Ran, Recording, packages, python, python_3_13};
use std::path::Path;

/// A script under the preload with these stacks, or without the preload.
fn run(
    python: &Path,
    script: &str,
    arguments: &[&str],
    stacks: Option<&str>,
    packages: Option<&Path>,
) -> (Folder, Ran) {
    let folder = Folder::new("unusual");
    let job = Job::python_at(&folder, python, &format!("tests/programs/{script}"), arguments);
    // Kineto's lines have times in them; what an import leaves in sets of names depends on their order.
    let job = job
        .env("KINETO_LOG_LEVEL", "9")
        .env("PYTHONHASHSEED", "0")
        .env("PYTHONPATH", packages.unwrap_or(Path::new("")));
    let ran = match stacks {
        Some(stacks) => job.env("STRANDLINE_STACKS", stacks).run(),
        None => job.env("LD_PRELOAD", "").run(),
    };
    (folder, ran)
}

/// A script with and without us, with these stacks: status, stdout and its own stderr are the same, and every allocation is recorded.
#[track_caller]
fn same(
    python: &Path,
    script: &str,
    arguments: &[&str],
    stacks: &[&str],
    packages: Option<&Path>,
) -> Vec<Ran> {
    let (_, bare) = run(python, script, arguments, None, packages);
    let each = stacks.iter().map(|stacks| {
        let (_folder, ran) = run(python, script, arguments, Some(stacks), packages);
        assert_eq!(ran.output.status, bare.output.status, "{stacks}: {}", ran.stderr());
        assert_eq!(ran.stdout(), bare.stdout(), "{stacks}");
        assert_eq!(ran.theirs(), bare.theirs(), "{stacks}");
        let recording = Recording::read(&ran.recording()).whole();
        assert!(recording.allocated().len() > 100, "{stacks}: {}", recording.allocated().len());
        ran
    });
    each.collect()
}

#[test]
fn what_python_lets_a_program_do() {
    let ran = same(python(), "unusual.py", &[], &["both"], None);
    assert!(ran[0].stdout().ends_with("alive\n"), "{}", ran[0].stdout());
}

/// `cargo test --test programs unusual -- --ignored`: a minute, where nothing else is at work.
#[test]
#[ignore = "a minute; what runs always is above"]
fn what_python_lets_a_program_do_with_other_stacks_and_on_python_3_13() {
    same(python(), "unusual.py", &[], &["none", "python"], None);
    if let Some(python) = python_3_13() {
        same(&python, "unusual.py", &[], &["none", "python", "both"], None);
    }
}

/// What we make in a job does not bring its next collection forward, nor put it off: a peak can depend on it.
#[test]
fn pythons_collector_begins_when_it_would() {
    for python in [Some(python().to_path_buf()), python_3_13()].into_iter().flatten() {
        for words in [&[][..], &["thread"]] {
            let ran = same(&python, "collector.py", words, &["none", "python"], None);
            for part in ["in the first CUDA call", "gone [True, True, True]"] {
                assert!(ran[0].stdout().contains(part), "{}", ran[0].stdout());
            }
        }
    }
}

/// What only later versions have: `sys.monitoring`, interpreters with locks of their own.
#[test]
fn monitoring_and_interpreters_on_python_3_13() {
    let Some(python) = python_3_13() else { return };
    let parts = ["monitoring", "interpreters_in_one_process", "threads_take_turns", "a_second_tracker"];
    let ran = same(&python, "unusual.py", &parts, &["both"], None);
    assert!(
        ran[0].stdout().contains("'PY_START'") && ran[0].stdout().contains("], [])"),
        "none of it is ours"
    );
}

#[test]
fn greenlets() {
    let Some(packages) = packages::if_they_can_be_had("greenlet-3.5.6", &["greenlet==3.5.6"]) else { return };
    let ran = same(python(), "greenlets.py", &[], &["both"], Some(&packages));
    assert!(ran[0].stdout().starts_with("ended True\n"), "{}", ran[0].stdout());
}

/// What this library does in the loader and on the heap is not the profiler's: it hung, each waiting for the other's lock.
#[test]
fn a_profiler_that_patches_every_library() {
    let Some(packages) = packages::if_they_can_be_had("memray-1.20.0", &["memray==1.20.0"]) else { return };
    let ran = same(python(), "profiled.py", &[], &["both"], Some(&packages));
    assert!(ran[0].stdout().starts_with("ended 200 "), "{}", ran[0].stdout());
}

/// Endings, each in a child of one process that has imported torch: `python tests/programs/endings.py` says how each ended.
#[test]
fn the_end_of_a_process_finds_threads_and_finalizers_at_work() {
    let folder = Folder::new("endings");
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(folder.path(), own).expect("an own folder");
    let run = |job: Job| job.env("RECORDINGS", folder.path()).run().succeeded();
    let job = || Job::python(&folder, "tests/programs/endings.py", &[] as &[&str]);
    let (with, without) = (run(job()), run(job().env("LD_PRELOAD", "")));
    assert_eq!(with.stdout(), without.stdout());
    // Python names functions by their addresses.
    let theirs = |ran: &Ran| {
        let text = ran.theirs();
        text.split(" at 0x")
            .map(|t| t.trim_start_matches(|c: char| c.is_ascii_hexdigit()).to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(theirs(&with), theirs(&without));
    assert!(with.ours().iter().all(|l| !l.contains("deleted")), "{:?}", with.ours());
    let recordings = folder.files(".strand");
    assert_eq!(recordings.len(), with.stdout().matches("ended with").count(), "{}", with.stdout());
    recordings.iter().for_each(|r| drop(Recording::read(r).whole()));
}
