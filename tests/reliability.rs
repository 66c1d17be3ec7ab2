//! Surroundings that are short of something, as containers and limits are: a job ends recorded as it ends bare, and what cannot be
//! recorded is said. `docs/reliability.md` has the table.

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::surrounded::{
    SMALL_SHM, compiled, ends_as_bare, has_everything, is_recorded, is_said, surrounded,
};
use support::{Folder, Job, Recording, command, preload_so, python, report, root};

#[test]
fn the_shared_memory_of_a_container_is_the_jobs() {
    is_recorded(SMALL_SHM, "-o rec", "loader descriptors");
}

#[test]
fn no_shared_memory_at_all() {
    let setup = "mkdir -p dev && mount -t tmpfs none dev && cd dev && touch null zero random urandom && \
        for d in *; do mount --bind /dev/$d $d || exit 99; done; cd .. && mount --rbind dev /dev || exit 99";
    is_recorded(setup, "-o rec", "alloc descriptors");
}

#[test]
fn no_settings_of_the_kernel() {
    is_recorded("mount -t tmpfs -o ro none /proc/sys || exit 99", "-o rec", "alloc");
}

#[test]
fn twenty_descriptors() {
    is_recorded("ulimit -n 20", "-o rec", "closes alloc");
}

#[test]
fn a_bound_on_addresses() {
    is_recorded("ulimit -v 12000000", "-o rec", "alloc");
}

#[test]
fn a_home_and_a_folder_that_cannot_be_written() {
    let setup =
        "mkdir -p ro tmp && export TMPDIR=$PWD/tmp HOME=$PWD/ro && mount -t tmpfs -o ro none ro || exit 99
        unset XDG_CACHE_HOME; cd ro";
    is_recorded(setup, "", "alloc");
}

#[test]
fn no_file_may_have_a_byte() {
    is_said("ulimit -f 0", "-o rec", "alloc", &["NOTHING RECORDED: cannot write", "File too large"]);
}

#[test]
fn a_disk_that_is_full_at_once_and_one_that_fills() {
    let disk = |size: &str| format!("mkdir -p disk && mount -t tmpfs -o size={size} none disk || exit 99");
    is_said(&disk("4k"), "-o disk/rec", "alloc", &["NOTHING RECORDED: cannot write", "No space left"]);
    is_said(&disk("8k"), "-o disk/rec", "alloc", &["disk full while writing"]);
}

/// The C library's answers for the recording alone (`tests/surroundings/disk.c`): a quota needs a kernel that has them.
fn disk(settings: &str) -> (Folder, String) {
    let folder = Folder::new("disk");
    let library = compiled(&folder, "disk.c", "disk.so", &["-shared", "-fPIC"]);
    let setup = format!("rm -f stalled; export LD_PRELOAD={} {settings}", library.display());
    (folder, setup)
}

const EDQUOT: i32 = 122;

#[test]
fn a_quota_that_is_used_up_at_once_and_later() {
    let (_folder, setup) = disk(&format!("DISK_ERROR={EDQUOT}"));
    is_said(&setup, "-o rec", "alloc fails", &["NOTHING RECORDED: cannot write", "quota exceeded"]);
    let (_folder, setup) = disk(&format!("DISK_ERROR={EDQUOT} DISK_ROOM=8192"));
    is_said(&setup, "-o rec", "alloc fails", &["disk quota exceeded while writing", "the job goes on"]);
}

const STALLS: &str = "DISK_STALLS=$PWD/stalled";

#[test]
fn a_disk_that_stalls_and_goes_on() {
    let (_folder, setup) = disk(STALLS);
    is_recorded(&setup, "-o rec", "alloc stalls goes fails");
}

/// The job waits for no disk: what finds no room in memory is lost, and counted.
#[test]
fn a_disk_that_stalls_for_longer_than_memory_lasts() {
    let (_folder, setup) = disk(STALLS);
    let Some((folder, ours)) = ends_as_bare(&setup, "-o rec", "alloc stalls floods goes fails") else {
        return;
    };
    let p = report(&folder.join("rec")).process;
    let (events, lost) = (p["events"].as_u64().unwrap_or(0), p["events_lost"].as_u64().unwrap_or(0));
    assert!(events >= 65_536 && lost > 0 && events + lost >= 200_000, "{events} {lost} {ours}");
    assert_eq!(p["damage"].as_array().map(Vec::len), Some(0), "{p}");
}

/// The end of the job waits ten seconds for the disk; then the rest is beside the recording, or in memory.
#[test]
fn a_disk_that_stalls_to_the_end() {
    let (_folder, setup) = disk(STALLS);
    let Some((folder, ours)) = ends_as_bare(&setup, "-o rec", "alloc stalls fails") else { return };
    has_everything(&report(&folder.join("rec")));
    assert!(!ours.contains("NOTHING RECORDED"), "{ours}");
}

#[test]
fn not_one_thread_more() {
    // Root may have as many as it likes, so the job becomes somebody else first.
    let folder = "mkdir -p -m 777 rec; chmod 777 rec";
    is_said(
        folder,
        "-o rec",
        "threads another alloc",
        &["cannot start the writing thread", "the job goes on"],
    );
}

#[test]
fn a_job_that_becomes_another_user() {
    is_said("true", "-o rec", "another alloc descriptors", &["cannot write", "the job goes on"]);
}

#[test]
fn a_recording_that_is_deleted_while_it_is_written() {
    is_said(
        "true",
        "-o rec",
        "alloc delete",
        &["NOTHING RECORDED:", "rec was deleted or renamed while the job ran"],
    );
}

#[test]
fn a_kill_leaves_everything_and_nothing_in_shared_memory() {
    let Some((folder, ours)) = ends_as_bare(SMALL_SHM, "-o rec", "alloc kill") else { return };
    assert!(ours.contains("ended by signal 9"), "{ours}");
    has_everything(&report(&folder.join("rec")));
    assert!(!folder.files(".strand.tail").is_empty(), "what was in no page is beside the recording");
}

/// Without `strandline run` nobody keeps a tail where `/dev/shm` is small: one process of the job says what that means.
#[test]
fn what_a_kill_could_cost_is_said_once_by_a_job() {
    let folder = Folder::new("ranks");
    let script = root().join("tests/python/surrounded.py");
    let ranks = format!(
        "{SMALL_SHM}\nexport LD_PRELOAD={} STRANDLINE_OUT=$PWD/rec STRANDLINE_QUIET=1\n\
         for r in 0 1; do RANK=$r LOCAL_RANK=$r {} {} alloc || exit; done; LD_PRELOAD= ",
        preload_so().display(),
        python().display(),
        script.display()
    );
    let Some(did) = surrounded(&folder, &ranks, &["true"]) else { return };
    assert_eq!((did.status, did.ours.matches("kill -9 may lose the last second").count()), (0, 1), "{did:?}");
    for rank in folder.files(".strand") {
        assert!(Recording::read(&rank).whole().reader.summary().complete);
    }
    assert_eq!(folder.files(".strand").len(), 2);
}

/// A FIFO that nobody writes to, as a recording and as the tail of one: said at once, never waited for.
#[test]
fn pipes_are_no_recordings() {
    let folder = Folder::new("pipes");
    let pipe = folder.join("pipe.strand");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let read = |words: &[&str], what: &Path| {
        let mut timeout = Command::new("timeout");
        timeout.arg("60").arg(command()).args(words).arg(what).stdin(Stdio::null());
        let Output { status, stderr, .. } = timeout.output().expect("timeout (coreutils) is there");
        (status.code(), String::from_utf8_lossy(&stderr).into_owned())
    };
    for words in [&["report"][..], &["dump"], &["snapshot"]] {
        let (status, said) = read(words, &pipe);
        assert_eq!(status, Some(2), "{words:?}: {said}");
        assert!(said.contains("a pipe, not a file"), "{words:?}: {said}");
    }
    let ran = Job::python(&folder, "tests/programs/end.py", &["kill"]).run();
    assert_eq!(ran.output.status.code(), None, "it was killed");
    let [tail] = &folder.tails()[..] else { panic!("{:?}", folder.tails()) };
    std::fs::remove_file(tail).expect("an own file");
    assert!(Command::new("mkfifo").arg(tail).status().expect("mkfifo").success());
    let (status, said) = read(&["report"], &ran.recording());
    assert_eq!(status, Some(0), "{said}");
    assert!(tail.exists(), "what is no tail is left alone");
}

/// The header of a recording may say anything: what it names is removed only where it is the tail of its process.
#[test]
fn a_recording_cannot_have_a_file_removed() {
    use strandline::format::header::Header;
    let folder = Folder::new("named");
    let ran = Job::python(&folder, "tests/programs/end.py", &["kill"]).run();
    let [tail] = &folder.tails()[..] else { panic!("{:?}", folder.tails()) };
    let victim = folder.join("victim");
    std::fs::rename(tail, &victim).or_else(|_| std::fs::copy(tail, &victim).map(drop)).expect("own files");
    let mut bytes = std::fs::read(ran.recording()).expect("a recording");
    let length = Header::length(&bytes).expect("a header");
    let named = Header {
        tail: Some(victim.to_string_lossy().into_owned()),
        ..Header::decode(&bytes).expect("a header")
    };
    let head = named.encode();
    assert_eq!(head.len(), length);
    bytes[..length].copy_from_slice(&head);
    std::fs::write(ran.recording(), bytes).expect("an own file");
    let _ = std::fs::remove_file(tail);
    let report = report(&ran.recording()).whole();
    assert!(
        report.process["events"].as_u64().is_some_and(|n| n >= 60),
        "its region was read: {}",
        report.process
    );
    assert!(victim.exists(), "a file of another name is not removed");
}
