//! Surroundings that a recorder must bear: the job computes what it computes without us, and every event is recorded.

use crate::support::{Folder, Ran, Recording};
use crate::{same_as_a_bare_child, same_from_the_beginning};

/// Runs `hostile.py HOW` with and without the preload; all of it must be recorded.
#[track_caller]
fn bears(how: &str) -> Ran {
    let folder = Folder::new("hostile");
    let same = match how {
        "reused" | "absent" => same_from_the_beginning,
        _ => same_as_a_bare_child,
    };
    let ran = same(&folder, "hostile.py", &[how]).succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    // One at the beginning, 4 threads of 300, 10 steps of 20.
    let torchs: Vec<usize> = ran.stdout().split_whitespace().filter_map(|w| w.parse().ok()).collect();
    assert_eq!(torchs.first(), Some(&1401), "{}", ran.stdout());
    assert_eq!(recording.allocated().len(), 1401, "{how}");
    assert!(recording.reader.summary().complete, "{how}: it ended in an orderly way");
    // Recording goes on, so there is nothing to say.
    assert!(ran.ours().iter().filter(|l| l.contains("recording stops")).count() == 0, "{:?}", ran.ours());
    ran
}

#[test]
fn a_storm_of_signals() {
    bears("signals");
}

#[test]
fn a_tracer_a_profiler_and_a_collector_at_every_turn() {
    bears("traced");
}

#[test]
fn children_forked_while_threads_allocate() {
    bears("forks");
}

#[test]
fn a_job_that_closes_what_it_does_not_know() {
    bears("closed");
}

#[test]
fn a_job_whose_own_files_have_the_numbers_of_ours_and_of_stderr() {
    let ran = bears("daemon");
    assert!(ran.stdout().ends_with(" 0\n"), "none of our bytes is in its files: {}", ran.stdout());
}

#[test]
fn a_job_whose_own_file_has_the_number_of_stderr_before_cuda_starts() {
    for how in ["reused", "absent"] {
        let ran = bears(how);
        assert!(ran.stdout().ends_with(" 0\n"), "{how}: none of our bytes is in its file: {}", ran.stdout());
    }
}

#[test]
fn no_descriptors_to_spare() {
    bears("descriptors");
}

#[test]
fn no_addresses_for_the_rings() {
    let folder = Folder::new("addresses");
    let ran = same_as_a_bare_child(&folder, "hostile.py", &["memory"]).succeeded();
    let ours = ran.ours();
    assert_eq!(
        ours.iter().filter(|l| l.contains("nothing is recorded, the job goes on")).count(),
        1,
        "{ours:?}"
    );
    assert!(folder.files(".strand").is_empty() && folder.tails().is_empty(), "{ours:?}");
}
