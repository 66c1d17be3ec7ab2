//! Containers as they come: a root that can only be read, nothing that may be executed, another user, few processes, no `/proc`. The job
//! comes first: it ends as it ends alone, and it is recorded, or it is said why not. `docs/reliability.md` has the table.

mod support;

use support::surrounded::{is_recorded, is_said, surrounded};
use support::{Folder, command};

/// Everything can only be read, but for the folder `here`, and nobody has a cache.
const READ_ONLY: &str = "\
    unset XDG_CACHE_HOME; export HOME=/ TMPDIR=$PWD/tmp; mkdir -p here tmp && mount --bind here here || exit 99
    for m in $(awk '{print $5}' /proc/self/mountinfo); do
        case $m in $PWD/here) ;; *) mount -o remount,bind,ro $m 2>/dev/null ;; esac
    done
    touch there 2>/dev/null && exit 98";
/// And the temporary folder is mounted so that nothing in it may be executed.
const NOEXEC: &str = "mount -t tmpfs -o noexec none tmp || exit 99";
/// Somebody else, who has no home; he may read what root may.
const ANOTHER: &str = "\
    unset XDG_CACHE_HOME HOME; mkdir -p -m 1777 tmp && chmod 1777 tmp && mkdir -p tmp/strandline
    export TMPDIR=$PWD/tmp
    user=$((200000 + $$)); read=dac_read_search
    as=\"setpriv --reuid $user --regid $user --clear-groups --inh-caps +$read --ambient-caps +$read\"
    $as true || exit 99";

#[test]
fn a_root_that_can_only_be_read_and_a_folder_that_can_be_written() {
    let setup = format!("{READ_ONLY}\n{NOEXEC}\ncd here");
    if let Some(folder) = is_recorded(&setup, "", "alloc fails") {
        assert!(folder.files("libstrandline.so").is_empty(), "the run's own library is gone");
    }
}

#[test]
fn a_cache_that_is_named() {
    let setup = format!("{READ_ONLY}\n{NOEXEC}\nexport STRANDLINE_CACHE=$PWD/here");
    if let Some(folder) = is_recorded(&setup, "-o here/rec", "alloc fails") {
        let [library] = &folder.files("libstrandline.so")[..] else { panic!("{:?}", folder.files("so")) };
        assert!(!library.starts_with(folder.join("here/rec")), "{}", library.display());
    }
}

/// As an `emptyDir` of Kubernetes is: others could rename what lies there, but not what lies in the run's own folder.
#[test]
fn a_temporary_folder_that_everybody_may_write_to() {
    let setup = format!("{READ_ONLY}\nchmod 777 here; export TMPDIR=$PWD/here");
    if let Some(folder) = is_recorded(&setup, "", "alloc fails") {
        assert!(folder.files("libstrandline.so").is_empty(), "the run's own library is gone");
    }
}

#[test]
fn a_temporary_folder_that_nothing_may_be_executed_from() {
    let why = ["NOTHING RECORDED: no folder can hold libstrandline.so", "(noexec)", "-o DIR"];
    is_said(&format!("{READ_ONLY}\n{NOEXEC}"), "", "alloc fails", &why);
}

#[test]
fn nothing_that_can_be_written() {
    let why = ["NOTHING RECORDED: cannot create the folder of the recording: /", "Read-only", "-o DIR"];
    is_said(READ_ONLY, "", "alloc fails", &why);
    is_said(READ_ONLY, "-q -o rec", "alloc", &why);
}

#[test]
fn a_disk_without_room_for_the_library() {
    let setup = "mkdir -p full && mount -t tmpfs -o size=64k none full && cd full || exit 99
        export HOME=$PWD TMPDIR=$PWD XDG_CACHE_HOME=$PWD/cache";
    is_said(setup, "", "alloc fails", &["NOTHING RECORDED: no folder can hold", "No space left", "-o DIR"]);
}

#[test]
fn a_job_that_runs_alone_has_nothing_of_ours() {
    let (folder, command) = (Folder::new("alone"), command().to_string_lossy());
    let Some(alone) = surrounded(&folder, READ_ONLY, &["env"]) else { return };
    let Some(run) = surrounded(&folder, READ_ONLY, &[&command, "run", "--", "env"]) else { return };
    assert_eq!((run.status, run.stdout), (0, alone.stdout), "{}", run.ours);
}

/// Only who asks for a gate gets a status that is not the job's.
#[test]
fn a_gate_fails_where_nothing_can_be_recorded() {
    let folder = Folder::new("gated");
    let command = command().to_string_lossy();
    for (options, job, status) in [
        (&["--fail-on-leak"][..], "exit 0", 83),
        (&["--fail-on-leak"], "exit 3", 3),
        (&["--fail-on-leak", "--allow-inconclusive"], "exit 0", 0),
        (&["-o", "/dev/null"], "exit 0", 2),
    ] {
        let run = [&[&*command, "run"], options, &["--", "sh", "-c", job]].concat();
        let Some(did) = surrounded(&folder, READ_ONLY, &run) else { return };
        assert_eq!(did.status, status, "{options:?} {job}: {}", did.ours);
        assert_eq!(did.ours.contains("NOTHING RECORDED"), status != 2, "{options:?} {job}: {}", did.ours);
    }
}

#[test]
fn another_user_without_a_home() {
    is_recorded(&format!("{ANOTHER}\nset -- $as \"$@\""), "", "alloc fails");
}

/// As many processes as `run` and the job are: nobody watches, and the job starts all the same.
#[test]
fn as_few_processes_as_will_do() {
    let setup = format!("{ANOTHER}\nset -- $as prlimit --nproc=2:2 \"$@\"");
    let why = ["no process watches this job", "NOTHING RECORDED: cannot start the writing thread"];
    is_said(&setup, "", "alloc fails", &why);
}

#[test]
fn no_processes_to_be_seen() {
    is_recorded("mount -t tmpfs none /proc || exit 99", "-o rec", "alloc fails");
}
