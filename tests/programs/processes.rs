//! Which processes record, and which stay silent.

use crate::support::{Folder, Job, Recording};
use crate::{job, same_as_a_bare_child, same_from_the_beginning};
use strandline::event::Body;

/// No line, no file, no tail.
#[track_caller]
fn silent(folder: &Folder, job: Job) {
    let ran = job.run().succeeded();
    assert_eq!(ran.ours(), Vec::<String>::new());
    assert!(folder.files(".strand").is_empty() && folder.tails().is_empty());
}

#[test]
fn shells_and_tools_are_silent() {
    let folder = Folder::new("shell");
    silent(&folder, Job::program(&folder, "/bin/sh").arg("-c").arg("true; (exit 0); git --version || true"));
}

#[test]
fn python_without_torch_is_silent() {
    let folder = Folder::new("python");
    silent(&folder, job(&folder, "silent.py", &[]));
}

#[test]
fn torch_without_a_cuda_call_is_silent() {
    let folder = Folder::new("torch");
    silent(&folder, job(&folder, "silent.py", &["torch"]));
}

#[test]
fn switched_off_it_is_silent() {
    let folder = Folder::new("off");
    silent(&folder, job(&folder, "plain.py", &[]).env("STRANDLINE_DISABLE", "1"));
}

#[test]
fn the_child_of_a_recording_process_leaves_no_trace() {
    let folder = Folder::new("fork-after");
    let ran = same_as_a_bare_child(&folder, "fork.py", &["after"]).succeeded();
    assert!(ran.stdout().starts_with("child 0\n"), "{}", ran.stdout());
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(folder.files(".strand"), [ran.recording()]);
    assert_eq!(recording.allocated(), [4 << 20; 10], "the parent's, all of them");
    let child = |b: &Body| matches!(b, Body::Runtime { size, .. } if size.0 == 12345);
    assert_eq!(recording.count(child), 0);
    assert!(folder.tails().is_empty(), "the child did not keep the tail");
}

#[test]
fn the_first_cuda_call_of_a_process_is_recorded() {
    let folder = Folder::new("first");
    let ran = same_from_the_beginning(&folder, "first.py", &[]).succeeded();
    assert_eq!(ran.stdout(), "0\n");
    assert_eq!(
        Recording::read(&ran.recording()).whole().allocated(),
        [12345],
        "a block, since there is no torch"
    );
}

#[test]
fn the_child_of_a_process_that_has_not_called_cuda_records_for_itself() {
    let folder = Folder::new("fork-before");
    let ran = job(&folder, "fork.py", &["before"]).run().succeeded();
    assert!(ran.stdout().starts_with("child 0\n"), "{}", ran.stdout());
    let files = folder.files(".strand");
    assert_eq!(files.len(), 2, "{files:?}");
    let all: Vec<Recording> = files.iter().map(|f| Recording::read(f).whole()).collect();
    assert!(all.iter().all(|r| r.allocated() == [4 << 20; 10]));
    let pids: Vec<u32> = all.iter().map(|r| r.reader.summary().who.pid).collect();
    assert_ne!(pids[0], pids[1]);
}

#[test]
fn workers_of_a_data_loader_are_silent() {
    let folder = Folder::new("workers");
    let ran = same_as_a_bare_child(&folder, "workers.py", &[]).succeeded();
    assert_eq!(ran.stdout(), "seen 128\n");
    assert_eq!(folder.files(".strand"), [ran.recording()]);
    let recording = Recording::read(&ran.recording()).whole();
    let pinned = |b: &Body| matches!(b, Body::Runtime { op: strandline::event::RuntimeOp::HostAlloc, .. });
    assert!(recording.count(pinned) > 0, "pinned memory goes through the runtime");
}

#[test]
fn a_process_that_becomes_another_program_records_twice() {
    let folder = Folder::new("exec");
    let ran = job(&folder, "exec.py", &[]).run().succeeded();
    assert_eq!(ran.stdout(), "ran again\n");
    let files = folder.files(".strand");
    assert_eq!(files.len(), 2, "{files:?}");
    for f in files {
        assert_eq!(Recording::read(&f).whole().allocated(), [4000]);
    }
}

#[test]
fn ranks_and_restarts_name_the_file() {
    let folder = Folder::new("ranks");
    let out = folder.join("runs/a");
    let ran = job(&folder, "end.py", &["exit"])
        .env("STRANDLINE_OUT", &out)
        .env("RANK", "3")
        .env("WORLD_SIZE", "8")
        .env("TORCHELASTIC_RESTART_COUNT", "1")
        .run_imported()
        .succeeded();
    let files = folder.files(".strand");
    assert_eq!(files.len(), 1, "{}", ran.stderr());
    assert!(
        files[0].starts_with(&out) && files[0].to_string_lossy().ends_with("-r3-restart1.strand"),
        "{files:?}"
    );
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    let recording = Recording::read(&files[0]).whole();
    assert_eq!((recording.fact("rank"), recording.fact("world_size")), (&3.into(), &8.into()));
}

#[test]
fn by_default_the_recording_is_named_after_the_script() {
    let folder = Folder::new("default");
    job(&folder, "end.py", &["exit"]).env("STRANDLINE_OUT", "").run().succeeded();
    let files = folder.files(".strand");
    assert_eq!(files.len(), 1);
    let name = files[0].strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned();
    assert!(name.starts_with("strandline/end-") && name.ends_with("-r0.strand"), "{name}");
}

/// The loader's locks are as they were at the fork: a child hangs where one of us held them.
#[test]
fn children_of_a_recorded_process_load_libraries() {
    let folder = Folder::new("forks");
    let ran = same_as_a_bare_child(&folder, "forks.py", &["300"]).succeeded();
    assert_eq!(ran.stdout(), "children that hung: 0\n");
}
