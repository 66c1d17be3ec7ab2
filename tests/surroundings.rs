//! What else is in a process or around it: other preloaded libraries, another clock, a filter of system calls, another C library, many
//! ranks with little shared memory. A job ends recorded as it ends alone. `docs/reliability.md` has the table.

#[path = "surroundings/packages.rs"]
mod packages;
mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strandline::reader::{FactsFollower, Reader};
use support::surrounded::compiled;
use support::{Folder, Job, Ran, Recording, cache, command, preload_so, python, report, root};

const JOB: &str = "tests/surroundings/job.py";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// How a job ended and what it said, without our lines.
fn ended(ran: &Ran) -> (Option<i32>, String, String) {
    (ran.output.status.code(), ran.stdout(), ran.theirs())
}

/// A job that trains, with this library preloaded alone, before ours, and behind ours: it is the same three times, and all of it is
/// recorded. Returns its recordings in their folders.
#[track_caller]
fn is_recorded_beside(
    other: &Path,
    words: &[&str],
    each: impl Fn(Job, &Folder) -> Job,
) -> Vec<(Folder, Ran)> {
    let (other, ours) = (other.to_string_lossy(), preload_so().to_string_lossy());
    let run = |preload: &str| {
        let folder = Folder::new("beside");
        let job = each(Job::python(&folder, JOB, words), &folder).env("LD_PRELOAD", preload);
        let ran = job.run();
        (folder, ran)
    };
    let (_, alone) = run(&other);
    assert_eq!(alone.output.status.code(), Some(0), "{}", alone.stderr());
    let orders = [format!("{other}:{ours}"), format!("{ours}:{other}")];
    let both = orders.map(|preload| {
        let (folder, ran) = run(&preload);
        assert_eq!(ended(&ran), ended(&alone), "{preload}");
        (folder, ran)
    });
    let blocks = both.each_ref().map(|(_, ran)| {
        let judged = report(&ran.recording()).whole();
        assert_eq!((&judged.process["ended"], &judged.process["steps"]), (&"exit".into(), &40.into()));
        let recording = Recording::read(&ran.recording()).whole();
        recording.blocks().iter().filter(|b| !b.pool.is_direct()).map(|b| b.size.0).collect::<Vec<_>>()
    });
    assert!(blocks[0].len() > 500 && blocks[0] == blocks[1], "{} {}", blocks[0].len(), blocks[1].len());
    both.into()
}

#[test]
fn another_library_before_the_allocator_of_the_host() {
    let folder = Folder::new("hooks");
    let other = compiled(&folder, "hooks.c", "hooks.so", &["-shared", "-fPIC", "-DALLOCATOR"]);
    is_recorded_beside(&other, &["driver"], |job, _| job);
}

/// The job reaches it as often as without us: it counts, whichever comes first.
#[test]
fn another_library_before_dlsym_and_cuda() {
    for options in [&["-DLOOKUP"][..], &["-DLOOKUP", "-DCALLS"]] {
        let folder = Folder::new("hooks");
        let options = [&["-shared", "-fPIC"], options].concat();
        let other = compiled(&folder, "hooks.c", "hooks.so", &options);
        for (_, ran) in is_recorded_beside(&other, &["driver"], |job, _| job) {
            assert!(ran.stdout().contains("driver 20\n"), "{}", ran.stdout());
            assert!(ran.theirs().contains("hooks: cudaMalloc "), "it was there: {}", ran.theirs());
        }
    }
}

/// Such as an older version in an image: each records for itself.
#[test]
fn another_copy_of_our_own_library() {
    let folder = Folder::new("copy");
    let other = folder.join("libstrandline.so");
    std::fs::copy(preload_so(), &other).expect("an own file");
    for (folder, _) in is_recorded_beside(&other, &["driver"], |job, _| job) {
        assert_eq!(folder.files(".strand").len(), 2);
    }
}

#[test]
fn jemalloc() {
    let Some(other) = packages::file("libjemalloc2", &format!("{LIBRARIES}/libjemalloc.so.2")) else {
        return;
    };
    is_recorded_beside(&other, &["driver"], |job, _| job);
}

#[test]
fn tcmalloc() {
    let path = format!("{LIBRARIES}/libtcmalloc_minimal.so.4");
    let Some(other) = packages::file("libtcmalloc-minimal4", &path) else { return };
    is_recorded_beside(&other, &["driver"], |job, _| job);
}

/// The times of a recording are the machine's: they rise, and are those of a job that took less than an hour.
#[test]
fn a_clock_that_is_a_day_ahead_and_goes_back() {
    let path = format!("{LIBRARIES}/faketime/libfaketimeMT.so.1");
    let Some(other) = packages::file("libfaketime", &path) else { return };
    let ran = is_recorded_beside(&other, &["day", "back"], |job, folder| {
        let now = folder.join("now");
        std::fs::write(&now, "+1d").expect("an own file");
        job.env("FAKETIME_TIMESTAMP_FILE", now).env("FAKETIME_NO_CACHE", "1")
    });
    for (_, ran) in &ran {
        assert!(ran.stdout().contains("goes back True\n") && ran.stdout().contains("tomorrow True\n"));
        let recording = Recording::read(&ran.recording());
        let times = || recording.events.iter().map(|e| e.time.0);
        let (first, last) = (times().min().expect("events"), times().max().expect("events"));
        assert!((1..3_600_000_000_000).contains(&(last - first)), "from {first} to {last} ns");
    }
}

/// Words run in a folder, in the tests' cache and without variables of ours: how they ended, and our lines as words.
fn words(
    folder: &Folder,
    all: &[&str],
    variables: &[(&str, &str)],
) -> ((Option<i32>, String, String), String) {
    let mut words = Command::new(all[0]);
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        words.env_remove(name);
    }
    words.args(&all[1..]).env("XDG_CACHE_HOME", cache()).envs(variables.iter().copied());
    words.current_dir(folder.path()).stdin(Stdio::null());
    let Output { status, stdout, stderr } = words.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    let is_ours = |line: &&str| line.starts_with("strandline: ") || line.starts_with("  ");
    let (ours, theirs): (Vec<&str>, Vec<&str>) = stderr.lines().partition(is_ours);
    let ours = ours.iter().flat_map(|l| l.split_whitespace()).collect::<Vec<_>>().join(" ");
    ((status.code(), stdout, theirs.join("\n")), ours)
}

/// Lets the job end once the question who holds its leak has been answered.
fn tell_when_answered(recordings: &Path, answered: &Path, over: &AtomicBool) {
    let mut follower = None;
    while !over.load(Relaxed) {
        let files = std::fs::read_dir(recordings).into_iter().flatten().flatten().map(|e| e.path());
        let recording = || files.into_iter().find(|p| p.extension().is_some_and(|e| e == "strand"));
        follower = follower.or_else(|| Reader::open(recording()?).ok().map(FactsFollower::from_reader));
        let facts = follower.as_mut().map(FactsFollower::poll).unwrap_or_default();
        if facts.iter().any(|f| f.get("holders").is_some()) {
            let _ = std::fs::write(answered, "");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// The command and the job under a filter of the calls by which we look into memory most quickly: there are slower ways.
#[test]
fn a_filter_of_system_calls() {
    let tools = Folder::new("forbid");
    let forbid = compiled(&tools, "forbid.c", "forbid", &[]);
    let (forbid, job) = (forbid.to_string_lossy(), root().join(JOB));
    let (python, job, command) =
        (python().to_string_lossy(), job.to_string_lossy(), command().to_string_lossy());
    const ERRORS: [&str; 2] = ["1", "38"]; // EPERM and ENOSYS
    for error in ERRORS {
        let folder = Folder::new("filtered");
        let answered = folder.join("answered");
        std::fs::write(&answered, "").expect("an own file");
        let alone = words(&folder, &[&forbid, error, &python, &job, "leak", "wait"], &[]).0;
        assert_eq!(alone.0, Some(0), "{alone:?}");
        std::fs::remove_file(&answered).expect("an own file");
        let (over, rec) = (AtomicBool::new(false), folder.join("rec"));
        let run = [&*forbid, error, &command, "run", "-o", "rec", "--", &python, &job, "leak", "wait"];
        let (recorded, ours) = std::thread::scope(|s| {
            s.spawn(|| tell_when_answered(&rec, &answered, &over));
            let did = words(&folder, &run, &[]);
            over.store(true, Relaxed);
            did
        });
        assert_eq!(recorded, alone, "{ours}");
        let judged = report(&rec).whole();
        let found = judged.process["findings"].as_array().expect("findings");
        let named = |f: &serde_json::Value| {
            f["held_by"]["holders"][0].as_str().unwrap_or("").contains("__main__.KEPT")
        };
        assert!(found.iter().any(named), "{error}: {found:#?}");
    }
}

/// As a profiler writes its profile: the job's is the only one.
#[test]
fn another_library_that_writes_at_the_end() {
    let folder = Folder::new("ending");
    let other = compiled(&folder, "ending.c", "ending.so", &["-shared", "-fPIC"]);
    let (python, job, command) = (python().to_string_lossy(), root().join(JOB), command().to_string_lossy());
    let (other, job) = (other.to_string_lossy(), job.to_string_lossy());
    let preloaded = [("LD_PRELOAD", &*other)];
    let alone = words(&folder, &[&python, &job, "driver"], &preloaded).0;
    assert!(["atexit", "destructor"].iter().all(|w| alone.2.contains(w)), "{alone:?}");
    let run = [&*command, "run", "-o", "rec", "--", &python, &job, "driver"];
    assert_eq!(words(&folder, &run, &preloaded).0, alone);
    let nothing = words(&folder, &[&command, "run", "-o", "rec", "--", "./none"], &preloaded).0;
    assert_eq!((nothing.0, &*nothing.2), (Some(2), ""), "{nothing:?}");
}

/// `strandline run`, into which it is loaded as well, reaches its `main`.
#[test]
fn another_library_that_begins_at_the_first_malloc() {
    let folder = Folder::new("begins");
    let other = compiled(&folder, "begins.c", "begins.so", &["-shared", "-fPIC"]);
    let (python, job, command) = (python().to_string_lossy(), root().join(JOB), command().to_string_lossy());
    let (other, job) = (other.to_string_lossy(), job.to_string_lossy());
    let preloaded = [("LD_PRELOAD", &*other)];
    let alone = words(&folder, &[&python, &job, "driver"], &preloaded).0;
    assert_eq!(alone.0, Some(0), "{alone:?}");
    let run = [&*command, "run", "-o", "rec", "--", &python, &job, "driver"];
    assert_eq!(words(&folder, &run, &preloaded).0, alone);
}

/// The inner one records; the outer one says so before the job and after it.
#[test]
fn a_run_within_a_run() {
    let (folder, job) = (Folder::new("nested"), root().join(JOB));
    let (python, job, command) =
        (python().to_string_lossy(), job.to_string_lossy(), command().to_string_lossy());
    let alone = words(&folder, &[&python, &job, "driver"], &[]).0;
    let inner = [&*command, "run", "-o", "inner", "--", &python, &job, "driver"];
    let outer = [&[&*command, "run", "-o", "outer", "--"], &inner[..]].concat();
    let (nested, ours) = words(&folder, &outer, &[]);
    assert_eq!(nested, alone, "{ours}");
    report(&folder.join("inner")).whole();
    assert_eq!(ours.matches("strandline run records into its own folder").count(), 2, "{ours}");
    assert!(!folder.join("outer").exists() && !ours.contains("no CUDA call"), "{ours}");
}

/// Programs of musl: ours is no library for its loader, which would start nothing with it.
#[test]
fn programs_of_another_c_library_and_without_one() {
    let (base, made) = ("usr/lib/x86_64-linux-musl", Folder::new("musl"));
    let Some(loader) = packages::file("musl", "lib/ld-musl-x86_64.so.1") else { return };
    let Some(start) = packages::file("musl-dev", &format!("{base}/Scrt1.o")) else { return };
    let headers = packages::file("musl-dev", "usr/include/x86_64-linux-musl").expect("the same package");
    let (library, folder) = (loader.with_file_name("x86_64-linux-musl/libc.so"), start.with_file_name(""));
    let object = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let headers = ["-nostdinc".to_string(), "-isystem".to_string(), headers.to_string_lossy().into_owned()];
    let program = |out: &str, options: &[String]| {
        let all: Vec<&str> = headers.iter().chain(options).map(String::as_str).collect();
        compiled(&made, "plain.c", out, &all)
    };
    let linked = [
        "-fPIE".into(),
        "-pie".into(),
        "-nostdlib".into(),
        object("Scrt1.o"),
        object("crti.o"),
        library.to_string_lossy().into_owned(),
        object("crtn.o"),
        format!("-Wl,-dynamic-linker,{}", loader.display()),
    ];
    let whole = ["-static", "-nostdlib"].map(String::from).into_iter();
    let whole: Vec<String> = whole.chain(["crt1.o", "crti.o", "libc.a", "crtn.o"].map(object)).collect();
    let (linked, whole) = (program("linked", &linked), program("whole", &whole));
    let script = made.join("script");
    std::fs::write(&script, format!("#!{}\n", linked.display())).expect("an own file");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("an own file");
    for (job, why) in [
        (&linked, "not linked with glibc"),
        (&script, "not linked with glibc"),
        (&whole, "statically linked"),
    ] {
        let folder = Folder::new("foreign");
        let (job, command) = (job.to_string_lossy(), command().to_string_lossy());
        let (alone, _) = words(&folder, &[&job, "word"], &[]);
        assert_eq!((alone.0, &*alone.2), (Some(7), "said"), "{alone:?}");
        let (under, ours) = words(&folder, &[&command, "run", "-o", "rec", "--", &job, "word"], &[]);
        assert_eq!(under, alone, "{ours}");
        assert!(ours.contains("NOTHING RECORDED") && ours.contains(why), "{ours}");
    }
}

/// Ours needs none: it would have loaded the machine's before the job's.
#[test]
fn a_library_that_brings_a_newer_libgcc_along() {
    let folder = Folder::new("newer");
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    std::fs::write(at("versions"), "GCC_99.0 { newer_than_the_machine; };").expect("an own file");
    let versions = format!("-Wl,--version-script={}", at("versions"));
    let shared = ["-shared", "-fPIC"];
    let libgcc = [&shared[..], &["-DLIBGCC", "-Wl,-soname,libgcc_s.so.1", &versions]].concat();
    let libgcc = compiled(&folder, "newer.c", "libgcc_s.so.1", &libgcc).to_string_lossy().into_owned();
    let user = [&shared[..], &["-DUSER", &libgcc, "-Wl,-rpath,$ORIGIN"]].concat();
    compiled(&folder, "newer.c", "libuser.so", &user);
    let job = compiled(&folder, "newer.c", "newer", &["-ldl"]).to_string_lossy().into_owned();
    let (alone, _) = words(&folder, &[&job, &at("libuser.so")], &[]);
    assert_eq!((alone.0, &*alone.1), (Some(0), "7\n"), "{alone:?}");
    let command = command().to_string_lossy().into_owned();
    let (under, ours) = words(&folder, &[&command, "run", "-o", "rec", "--", &job, &at("libuser.so")], &[]);
    assert_eq!(under, alone, "{ours}");
}

/// 72 processes with 64 MB between them, as eight ranks with their DataLoaders in a container have.
#[test]
fn eight_ranks_with_workers_and_little_shared_memory() {
    let folder = Folder::new("eight");
    let (python, ranks) = (python().to_string_lossy(), root().join("tests/surroundings/ranks.py"));
    let job = [&*python, &ranks.to_string_lossy()];
    let command = command().to_string_lossy();
    let within = "mount -t tmpfs -o size=64m none /dev/shm || exit 99\nexec \"$@\"";
    for flags in ["-m", "-Urm"] {
        let start = ["unshare", flags, "sh", "-c", within, "sh"];
        let alone = words(&folder, &[&start[..], &job].concat(), &[]).0;
        if alone.2.contains("unshare: ") || alone.2.contains("mount: ") {
            eprintln!("unshare {flags}: {}", alone.2);
            continue;
        }
        assert_eq!((alone.0, alone.1.matches("kept 0\n").count()), (Some(0), 8), "{alone:?}");
        let run = [&start[..], &[&command, "run", "-o", "rec", "--"], &job].concat();
        let (under, ours) = words(&folder, &run, &[]);
        assert_eq!(under, alone, "{ours}");
        let recordings = folder.files(".strand");
        assert_eq!(recordings.len(), 8, "{ours}");
        recordings.iter().for_each(|r| drop(report(r).whole()));
        return;
    }
    eprintln!("SKIPPED: no mount namespace can be made here");
}
