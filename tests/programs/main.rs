//! Small nasty programs under the preload. Each must do what it does without it; what of it was recorded is whole.

mod endings;
mod failures;
mod hostile;
mod processes;
mod strange;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod unusual;
mod words;

use support::{Folder, Job, Ran, Recording};

/// A program of this folder, under the preload.
fn job(folder: &Folder, script: &str, arguments: &[&str]) -> Job {
    Job::python(folder, &format!("tests/programs/{script}"), arguments)
}

/// The same program with and without the preload: status, stdout and its own stderr must be equal. Each is a process of its own, where the
/// import of PyTorch, the beginning or the end of a process is what counts.
#[track_caller]
fn same_from_the_beginning(folder: &Folder, script: &str, arguments: &[&str]) -> Ran {
    let with = job(folder, script, arguments).run();
    same(with, job(folder, script, arguments).env("LD_PRELOAD", "").run())
}

/// The same where the bare one is a child of a process that has imported PyTorch, and the recorded one is a process of its own.
#[track_caller]
fn same_as_a_bare_child(folder: &Folder, script: &str, arguments: &[&str]) -> Ran {
    let with = job(folder, script, arguments).run();
    same(with, job(folder, script, arguments).env("LD_PRELOAD", "").run_imported())
}

/// The same where both are children of such processes: of programs that are about what comes after the import, and have none of our own lines (`run_imported`).
#[track_caller]
fn same_with_and_without(folder: &Folder, script: &str, arguments: &[&str]) -> Ran {
    let with = job(folder, script, arguments).run_imported();
    same(with, job(folder, script, arguments).env("LD_PRELOAD", "").run_imported())
}

/// They have done the same.
#[track_caller]
fn same(with: Ran, without: Ran) -> Ran {
    assert_eq!(with.output.status, without.output.status, "{}", with.stderr());
    assert_eq!(with.stdout(), without.stdout());
    assert_eq!(with.theirs(), without.theirs());
    assert!(without.ours().is_empty());
    with
}

/// Sizes of `torch.empty` calls that a program makes, as they must appear among what was recorded, in order.
#[track_caller]
fn assert_has_in_order(recording: &Recording, sizes: impl IntoIterator<Item = u64>) {
    let all = recording.allocated();
    let mut rest = all.iter();
    for size in sizes {
        assert!(rest.any(|&s| s == size), "{size} is missing in {all:?}");
    }
}
