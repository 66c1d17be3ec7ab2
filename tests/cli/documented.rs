//! Commands of the README and of docs/ that only read recordings are run as they are written, on a frozen recording under the names that the
//! pages use, and those that start a job, with a small one. Every other one has a test that runs it, listed here. That the command line takes
//! them all is tested in tools/src/cli/tests/documented.rs.

#[path = "../../tools/src/cli/tests/code.rs"]
mod code;

use crate::support::{Folder, root, strandline};
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const READING: [&str; 10] =
    ["report", "snapshot", "export", "diff", "dump", "left", "advise", "man", "completions", "env"];

/// Folders and files that pages speak of.
const NAMES: [&str; 16] = [
    "strandline/run-1",
    "demo",
    "gpu",
    "REC",
    "DIR",
    "BASE",
    "NEW",
    "BEFORE",
    "AFTER",
    "SNAPSHOT",
    "runs/base",
    "runs/patch-1",
    "runs/patch-2",
    "out/a",
    "out/b",
    "out/c",
];

/// A word as it is in the folder: the recording has 20 steps, and nothing of the machine's root is touched.
fn here(folder: &Folder, word: &str) -> String {
    let word = ["step:40", "step:200"].iter().fold(word.to_owned(), |w, step| w.replace(step, "step:12"));
    match word.split_once("/shared/") {
        Some(("", _)) => folder.path().join("gpu").display().to_string(),
        _ => word
            .replace("$(git rev-parse HEAD)", "0123abc")
            .replace("$RUNNER_TEMP/before", "BEFORE")
            .replace("$RUNNER_TEMP/after", "AFTER"),
    }
}

#[test]
fn commands_of_the_docs_that_read_recordings_are_run() {
    let folder = Folder::new("documented");
    for name in NAMES {
        let place = folder.path().join(name);
        std::fs::create_dir_all(&place).expect("a folder");
        std::fs::copy(root().join("tests/recordings/v2-plain.strand"), place.join("job.strand"))
            .expect("a copy");
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let all = code::code(&text);
        let commands = all.iter().flat_map(|c| code::ours(c, &|word| READING.contains(&word)));
        for words in commands.filter(|w| is_command(w) && elsewhere(w).is_none()) {
            let words: Vec<String> = words[1..].iter().map(|w| here(&folder, w)).collect();
            let (status, _, stderr) =
                super::run(&folder, &words.iter().map(String::as_str).collect::<Vec<_>>());
            // The recording has neither marks nor a failed allocation: that is said of it, and is no misuse.
            let told = ["mark", "region", "memory did not run out"].iter().any(|w| stderr.contains(w));
            let absent = words.iter().any(|w| ["mark:", "oom", "epoch 2"].iter().any(|m| w.contains(m)));
            if status != 0 && !(status == 2 && absent && told && !stderr.contains("Usage:")) {
                wrong.push(format!("{}: {}: {status}: {stderr}", name(&page), words.join(" ")));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 30, "{count} commands");
}

/// What stands after `strandline run` or `strandline doctor`, as far as it is at hand wherever this runs.
const AT_HAND: [&str; 7] = ["train.py", "-m", "python", "nohup", "timeout", "env", "--library"];

/// Pages' jobs stand for any: here they are one without PyTorch, which ends at once. What is recorded of one with it is tested elsewhere.
#[test]
fn commands_of_the_docs_that_start_a_job_are_run() {
    let folder = Folder::new("documented-jobs");
    std::fs::create_dir(folder.path().join("pkg")).expect("a folder");
    for script in ["train.py", "pkg/train.py"] {
        folder.file(script, "print('trained')\n");
    }
    let (mut all, mut wrong) = (BTreeSet::new(), Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let parts = code::code(&text);
        let commands = parts.iter().flat_map(|c| code::ours(c, &|word| ["run", "doctor"].contains(&word)));
        all.extend(commands.filter(|words| {
            let is_size = |w: &String| w.ends_with("GiB");
            let mut all = words.iter().skip(2).filter(|w| !is_size(w));
            let job = all.find(|w| AT_HAND.contains(&w.as_str()) || !w.starts_with('-'));
            job.is_some_and(|w| AT_HAND.contains(&w.as_str())) && elsewhere(words).is_none()
        }));
    }
    // Not every machine has Python under that name.
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    folder.file("bin/python", "#!/bin/sh\nexec python3 \"$@\"\n");
    std::fs::set_permissions(bin.join("python"), Permissions::from_mode(0o755)).expect("an own file");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    for words in &all {
        let run = Command::new(strandline())
            .args(&words[1..])
            .env("PATH", &path)
            .env("STRANDLINE_CACHE", cache())
            .current_dir(folder.path())
            .output();
        let output = run.expect("the command starts");
        let (status, said) = (output.status.code(), String::from_utf8_lossy(&output.stdout));
        let is_job = words[1] == "run";
        // `doctor` says with status 1 what is missing, such as a GPU; a gate that nothing was judged for is 83.
        let may = match (is_job, words.iter().any(|w| w == "--fail-on-leak")) {
            (true, true) => [83, 83],
            (true, false) => [0, 0],
            (false, _) => [0, 1],
        };
        if !may.map(Some).contains(&status) || is_job && !said.contains("trained\n") {
            let stderr = String::from_utf8_lossy(&output.stderr);
            wrong.push(format!("{}: {status:?}: {said}{stderr}", words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all.len() > 7 && all.iter().flatten().any(|w| w == "--simulate"), "{all:?}");
}

/// What is not at hand here: words of a command, in their order, and the file and the function that run it with words of their own.
const ELSEWHERE: [(&str, &str, &str); 24] = [
    ("demo", "tests/readme.rs", "fn the_demo_ends_as_the_readme_shows"),
    ("doctor --context", "tests/launchers.rs", "fn a_context_is_measured_once_and_told_apart_in_reports"),
    (
        "run --ship",
        "tests/fleet/ship.rs",
        "fn a_run_sends_its_recording_to_the_end_also_of_a_job_that_is_killed",
    ),
    ("watch --ship", "tests/fleet/ship.rs", "fn a_watcher_that_was_killed_goes_on"),
    ("s3://", "tests/fleet/store.rs", "fn tables_and_recordings_lie_in_an_object_store_and_nothing_is_lost"),
    ("watch", "tests/snapshot_live.rs", "fn watch_fulfils_what_a_running_job_asks_for"),
    ("snapshot 4711 --at now", "tests/snapshot_live.rs", "fn a_running_job_is_shown_from_outside"),
    ("fit", "tests/fit.rs", "fn the_largest_value_fits_and_the_next_one_does_not"),
    ("predict", "tests/predict.rs", "fn changes_are_tried_and_what_they_save_is_told"),
    ("simulate --python", "tests/support/mod.rs", "\"simulate\", \"--python\""),
    ("simulate --with-transformers", "tests/support/mod.rs", "\"--with-transformers\""),
    ("run --metrics", "tests/alert.rs", "fn a_job_that_is_asked_to_end_leaves_a_bundle_while_it_still_runs"),
    ("run pytest", "tests/pytest.rs", "fn six_leaks_of_a_suite_of_forty_are_named_and_no_other"),
    ("run accelerate", "tests/launchers.rs", "fn accelerate_launch"),
    ("run torchrun", "tests/launchers.rs", "fn torchrun_has_a_recording_for_each_rank"),
    ("run uv", "tests/launchers.rs", "fn notebooks_uv_and_hydra"),
    ("run train.py --multirun", "tests/launchers.rs", "fn notebooks_uv_and_hydra"),
    ("run jupyter execute", "tests/launchers.rs", "fn notebooks_uv_and_hydra"),
    ("run jupyter lab", "tests/launchers/by_hand.sh", "try lab"),
    ("run apptainer", "tests/launchers/by_hand.sh", "try apptainer"),
    ("run conda", "tests/launchers/by_hand.sh", "try conda"),
    ("run deepspeed", "tests/launchers/by_hand.sh", "try deepspeed"),
    ("run mpirun", "tests/launchers/by_hand.sh", "try mpirun"),
    ("run srun", "tests/launchers/by_hand.sh", "try srun"),
];

/// A name alone is no command, and no more is one whose job or folder is left open.
fn is_command(words: &[String]) -> bool {
    words.len() > 2
        && !["CMD", "1GiB", "/shared/run-17", "--fail-on-leak"]
            .iter()
            .any(|open| words[words.len() - 1] == *open)
}

/// The entry of the list that has a command.
fn elsewhere(words: &[String]) -> Option<usize> {
    let has = |(of, ..): &(&str, _, _)| {
        let mut left = words.iter().skip(1);
        let mut wanted = of.split(' ').enumerate();
        wanted.all(|(i, w)| left.by_ref().any(|l| l == w || i == 0 && w.ends_with("://") && l.starts_with(w)))
    };
    ELSEWHERE.iter().position(has)
}

/// Nothing stands in a page that no test runs, and nothing in the list that is in no page or whose test is gone.
#[test]
fn every_other_command_of_the_docs_is_run_by_a_test_of_its_subject() {
    let (mut used, mut nowhere) = (BTreeSet::new(), Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let parts = code::code(&text);
        let subcommands = ["demo", "watch", "fit", "predict", "simulate", "run", "doctor", "top"];
        let is_any = |word: &str| subcommands.contains(&word) || READING.contains(&word);
        for words in parts.iter().flat_map(|c| code::ours(c, &is_any)).filter(|w| is_command(w)) {
            let Some(i) = elsewhere(&words) else {
                let job = || words.iter().skip(2).any(|w| AT_HAND.contains(&w.as_str()));
                let is_here = READING.contains(&words[1].as_str())
                    || ["run", "doctor"].contains(&words[1].as_str()) && job();
                nowhere.extend((!is_here).then(|| format!("{}: {}", name(&page), words.join(" "))));
                continue;
            };
            used.insert(i);
        }
    }
    assert!(nowhere.is_empty(), "no test runs these:\n{}", nowhere.join("\n"));
    for (i, (words, file, what)) in ELSEWHERE.iter().enumerate() {
        assert!(used.contains(&i), "no page has `{words}`");
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        assert!(text.contains(what), "{file} has no {what:?}, which runs `{words}`");
    }
}

/// Where the simulated device's Python is kept: that of all tests.
fn cache() -> PathBuf {
    std::env::var_os("STRANDLINE_CACHE").map_or_else(|| root().join("target/strandline-cache"), PathBuf::from)
}

fn pages() -> impl Iterator<Item = PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).expect("docs").map(|e| e.expect("an entry").path());
    docs.filter(|p| p.extension().is_some_and(|e| e == "md")).chain([root().join("README.md")])
}

fn name(page: &Path) -> String {
    page.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
