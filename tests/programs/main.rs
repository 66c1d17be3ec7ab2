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

/// The same program with and without the preload: status, stdout and its own stderr must be equal.
#[track_caller]
fn same_with_and_without(folder: &Folder, script: &str, arguments: &[&str]) -> Ran {
    let with = job(folder, script, arguments).run();
    let without = job(folder, script, arguments).env("LD_PRELOAD", "").run();
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
