//! What fails inside us is one line, and nothing to the job.

use crate::support::{Folder, Job, Recording, python};
use crate::{assert_has_in_order, job, same_as_a_bare_child, same_with_and_without};
use strandline::event::Body;
use strandline::format::tail::Place;

#[test]
fn a_signal_while_cuda_is_initialized() {
    let folder = Folder::new("signalled");
    let ran = same_with_and_without(&folder, "signalled.py", &[]).succeeded();
    assert_eq!(ran.stdout(), "handled 1\n");
}

#[test]
fn exceptions_cross_every_hook_unchanged_and_the_next_event_is_recorded() {
    let folder = Folder::new("exceptions");
    let ran = same_with_and_without(&folder, "exceptions.py", &[]).succeeded();
    assert_eq!(ran.stdout().lines().count(), 6);
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.allocated().iter().filter(|&&s| s == 1000).count(), 5, "one after each exception");
    assert_eq!(recording.count(|b| matches!(b, Body::Oom { .. })), 1);
    let begun = recording.count(|b| matches!(b, Body::BackwardBegin { .. }));
    let ended = recording.count(|b| matches!(b, Body::BackwardEnd { .. }));
    assert_eq!((begun, ended), (4, 4), "a backward that raises ends too");
    let captures = |b: &Body| matches!(b, Body::CaptureBegin(_) | Body::CaptureEnd(_));
    assert_eq!(recording.count(captures), 2, "so does a capture");
    let last = recording.events.iter().rev().find_map(|e| match &e.body {
        Body::Alloc(b) => Some(b.phase.capture),
        _ => None,
    });
    assert_eq!(last, Some(false));
}

/// Python of ours runs as CUDA starts; what comes meanwhile is the job's, of whatever class, and stacks are taken all the same.
#[test]
fn exceptions_from_outside_while_cuda_starts_are_not_lost() {
    // Since CPython 3.14 nothing comes to the first call, bare as well.
    for (how, said) in
        [("sent", "\nTimeoutError\nRuntimeError\nKeyboardInterrupt\nend\n"), ("timer", "400 400\nend\n")]
    {
        let folder = Folder::new("interrupted");
        let ran = same_as_a_bare_child(&folder, "interrupted.py", &[how]).succeeded();
        assert!(ran.stdout().ends_with(said), "{how}: {}", ran.stdout());
        assert!(!ran.stderr().contains("no stacks"), "{how}: {}", ran.stderr());
    }
}

/// Python of ours needs some frames, also to be compiled: where there is no room for them, it waits until there is.
#[test]
fn cuda_starts_where_a_recursion_leaves_hardly_a_frame() {
    for frames in ["5", "8"] {
        let folder = Folder::new("deep");
        let ran = same_as_a_bare_child(&folder, "deep.py", &[frames]).succeeded();
        assert_eq!(ran.stdout(), "10\nend\n", "{frames}");
        let refused =
            ["no stacks", "could not be installed"].iter().any(|words| ran.stderr().contains(words));
        assert!(!refused, "{frames}: {}", ran.stderr());
        let recording = Recording::read(&ran.recording()).whole();
        let names = recording.reader.names();
        let last = recording.events.iter().rev().find_map(|e| match &e.body {
            Body::Alloc(b) => Some(names.frames(b.stack).map(|f| f.line).collect::<Vec<_>>()),
            _ => None,
        });
        assert_eq!(last, Some(vec![27]), "{frames}: the line that allocates last");
        assert_eq!(recording.count(|b| matches!(b, Body::OptimizerEnd(_))), 5, "{frames}");
    }
}

/// PyTorch goes through its tables of hooks in Python: it fails where one is added meanwhile.
#[test]
fn hooks_are_not_added_while_the_jobs_own_are_called() {
    let folder = Folder::new("hooks");
    let ran = same_with_and_without(&folder, "hooks_of_the_job.py", &[]).succeeded();
    assert_eq!(ran.stdout(), "80 1\n");
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.count(|b| matches!(b, Body::OptimizerEnd(_))), 36, "of all steps after that one");
    // One that removes itself as it is called is the last one, as without us.
    let folder = Folder::new("once");
    let ran = same_with_and_without(&folder, "hooks_of_the_job.py", &["once"]).succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.count(|b| matches!(b, Body::OptimizerEnd(_))), 40, "{}", ran.stdout());
    // One before ours that makes a list of the arguments.
    let folder = Folder::new("list");
    let ran = same_with_and_without(&folder, "hooks_of_the_job.py", &["list"]).succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.count(|b| matches!(b, Body::OptimizerEnd(_))), 40, "{}", ran.stdout());
}

/// What an audit hook refuses us, or a function that the job has put in the place of one of Python's own, is never the script's.
#[test]
fn what_a_job_refuses_or_replaces_is_done_without() {
    let steps = |how: &str, name: &str| {
        let folder = Folder::new("refuses");
        let ran = same_as_a_bare_child(&folder, "refuses.py", &[how, name]).succeeded();
        assert_eq!(ran.stdout(), "trained 300\n", "{how} {name}");
        let recording = Recording::read(&ran.recording()).whole();
        let stacks = !ran.ours().iter().any(|l| l.contains("no stacks"));
        (recording.count(|b| matches!(b, Body::OptimizerEnd(_))), stacks)
    };
    assert_eq!(steps("event", "compile"), (0, false), "neither hooks nor stacks");
    assert_eq!(steps("event", "sys._current_frames"), (0, true), "no hooks");
    for name in ["hasattr", "map", "partial"] {
        assert_eq!(steps("function", name), (150, true), "{name}");
    }
}

/// Rust ends a process where an allocation fails: ours have a reserve.
#[test]
fn a_job_that_is_out_of_memory_for_a_moment_goes_on_and_is_recorded() {
    for what in ["AS", "DATA"] {
        let folder = Folder::new("full");
        let ran = job(&folder, "full.py", &[what]).env("MALLOC_ARENA_MAX", "1").run().succeeded();
        assert_eq!(ran.stdout(), "survived True\n", "{what}: {}", ran.stderr());
        let recording = Recording::read(&ran.recording()).whole();
        assert!(recording.count(|b| matches!(b, Body::OptimizerEnd(_))) > 30, "{what}");
    }
}

#[test]
fn a_file_size_limit_ends_the_recording_and_not_the_job() {
    let folder = Folder::new("limited");
    let ran = job(&folder, "limited.py", &["20000"]).run().succeeded();
    assert_eq!(ran.stdout(), "survived True\n");
    let ours = ran.ours();
    let said = |what: &str| ours.iter().filter(|l| l.contains(what)).count();
    assert_eq!(said("no room for the file of the latest events"), 1, "{ours:?}");
    assert_eq!(said("file size limit reached"), 1, "{ours:?}");
    assert_eq!(said("recorded "), 0, "{ours:?}");
    assert!(!Recording::read(&ran.recording()).events.is_empty(), "what was written can be read");
}

#[test]
fn a_directory_that_cannot_be_written_is_named_once() {
    let folder = Folder::new("unwritable");
    let ran = job(&folder, "plain.py", &[]).env("STRANDLINE_OUT", "/proc/no/such").run().succeeded();
    assert!(ran.stdout().starts_with("peak "));
    let ours = ran.ours();
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert!(ours[0].contains("cannot write /proc/no") && ours[0].contains("the job goes on"), "{ours:?}");
    assert!(folder.tails().is_empty());
}

#[test]
fn no_room_for_the_tail_is_said_and_everything_is_recorded() {
    let folder = Folder::new("no-tail");
    let ran = job(&folder, "end.py", &["exit"]).env("STRANDLINE_TAIL", "/proc").run().succeeded();
    assert!(ran.ours().iter().any(|l| l.contains("kill -9 may lose the last second")), "{:?}", ran.ours());
    let recording = Recording::read(&ran.recording()).whole();
    assert_has_in_order(&recording, (1..=20).map(|i| 1000 * i));
    let own = std::process::id();
    let kept_by = recording.reader.tail_place();
    assert!(matches!(kept_by, Some(Place::Memory { keeper, .. }) if keeper != own), "{kept_by:?}");
}

#[test]
fn the_asynchronous_allocator_is_attached_to() {
    let folder = Folder::new("async");
    let ran =
        job(&folder, "plain.py", &[]).env("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync").run().succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.fact("coverage")["level"], "blocks");
    assert_eq!(recording.fact("allocator"), "cudaMallocAsync");
    assert!(recording.count(|b| matches!(b, Body::Alloc(_))) > 10);
    assert_eq!(recording.count(|b| matches!(b, Body::Runtime { .. })), 0);
}

#[test]
fn without_a_device_nothing_is_made() {
    let folder = Folder::new("no-device");
    let ran = job(&folder, "plain.py", &[]).env("CUDA_VISIBLE_DEVICES", "").run();
    assert_eq!(ran.output.status.code(), Some(1));
    assert!(ran.stderr().contains("No CUDA GPUs are available"));
    assert_eq!(ran.ours(), Vec::<String>::new());
    assert!(folder.files(".strand").is_empty() && folder.tails().is_empty());
}

#[test]
fn a_second_tracker_sees_the_same() {
    // The second one is a copy of ourselves: it hooks the same functions behind us and attaches to the same allocator.
    let folder = Folder::new("second");
    let copy = folder.join("libsecond.so");
    std::fs::copy(crate::support::preload_so(), &copy).unwrap();
    let both = format!("{}:{}", crate::support::preload_so().display(), copy.display());
    let script = crate::support::root().join("tests/programs/plain.py");
    // The loader takes two libraries of one soname for one, so the copy gets a name of its own.
    let bytes = std::fs::read(&copy).unwrap();
    let name = b"libstrandline.so\0";
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap();
    let mut renamed = bytes;
    renamed[at..at + name.len()].copy_from_slice(b"libstrandlinf.so\0");
    std::fs::write(&copy, renamed).unwrap();
    let ran = Job::program(&folder, python()).arg(script).env("LD_PRELOAD", both).run().succeeded();
    let files = folder.files(".strand");
    assert_eq!(files.len(), 2, "{}", ran.stderr());
    let [a, b] = [&files[0], &files[1]].map(|f| Recording::read(f).whole().allocated());
    assert!(a.len() > 20);
    assert_eq!(a, b);
}
