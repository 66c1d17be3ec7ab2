//! However a process ends, its status is its own and its recording is readable up to the last event.

use crate::support::{Folder, Recording};
use crate::{assert_has_in_order, job, same_as_a_bare_child, same_from_the_beginning};
use std::os::unix::process::ExitStatusExt;
use strandline::event::Body;

/// Runs `end.py HOW`; all its allocations must be there.
#[track_caller]
fn ends(how: &str, clean: bool) {
    let folder = Folder::new("end");
    // A traceback has the lines that called the script.
    let same = if how == "raise" { same_from_the_beginning } else { same_as_a_bare_child };
    let ran = same(&folder, "end.py", &[how]);
    let recording = Recording::read(&ran.recording()).whole();
    assert_has_in_order(&recording, (1..=20).map(|i| 1000 * i));
    assert_eq!(recording.reader.summary().complete, clean);
    assert_eq!(folder.tails().len(), usize::from(!clean), "a clean end leaves no tail, any other one does");
    let last = recording.events.iter().rev().find(|e| e.body.allocator_device().is_some());
    assert!(matches!(last.map(|e| &e.body), Some(Body::FreeCompleted(b)) if b.size.0 == 20_000));
}

#[test]
fn exit() {
    ends("exit", true);
}

/// PyTorch's allocator is asked for its limit by a thread of ours: not any more once PyTorch destroys it.
#[test]
fn exit_of_a_job_that_called_cuda_before_it_loaded_pytorch() {
    let folder = Folder::new("cuda-first");
    let ran = same_from_the_beginning(&folder, "cuda_first.py", &[]);
    assert!(Recording::read(&ran.recording()).whole().reader.summary().complete);
}

#[test]
fn an_exception() {
    ends("raise", true);
}

#[test]
fn sys_exit_with_a_status() {
    ends("sysexit", true);
}

#[test]
fn exit_without_handlers() {
    ends("_exit", false);
}

#[test]
fn abort() {
    ends("abort", false);
}

#[test]
fn kill() {
    ends("kill", false);
}

#[test]
fn kill_loses_no_event_of_two_busy_threads() {
    let folder = Folder::new("killed");
    let counts = folder.join("counts");
    std::fs::write(&counts, [0; 16]).unwrap();
    let ran = job(&folder, "killed.py", &[counts.to_str().unwrap()]).run_imported();
    assert_eq!(ran.output.status.signal(), Some(9), "{}", ran.stderr());
    let counts = std::fs::read(&counts).unwrap();
    let made: u64 = counts.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).sum();
    let recording = Recording::read(&ran.recording()).whole();
    let blocks: Vec<_> = recording
        .events
        .iter()
        .filter_map(|e| match &e.body {
            Body::Alloc(b) if b.size.0 == 512 => Some(b),
            _ => None,
        })
        .collect();
    // Each thread may have been killed between an allocation and its counting; the first one was made by main.
    let recorded = blocks.len() as u64;
    assert!(made > 1000 && recorded >= made && recorded <= made + 3, "{made} made, {recorded} recorded");
    let unnamed = blocks.iter().filter(|b| recording.frames(b.stack).is_empty()).count();
    assert_eq!(unnamed, 0, "every stack is defined");
}
