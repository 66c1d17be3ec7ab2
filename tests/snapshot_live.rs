//! Snapshots of a job that runs: what it asks for with `strandline_snapshot`, from whatever watches it, and
//! `strandline snapshot PID --at now`. Both are
//! made outside of it.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strandline::report::snapshot::unpickle::{Limits, Tree, Value, read};
use support::Folder;
use support::snapshot_rules::validate;

/// Requested sizes in MiB of what is in use.
#[track_caller]
fn in_use(path: &Path) -> Vec<i128> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let t = read(&bytes, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
    let wrong = validate(&t);
    assert!(wrong.is_empty(), "{}:\n{}", path.display(), wrong.join("\n"));
    let list = |v: Value, key: &str| t.get(v, key).and_then(|l| t.list(l)).expect("a list").to_vec();
    let mut sizes = Vec::new();
    for b in list(t.root(), "segments").into_iter().flat_map(|s| list(s, "blocks")) {
        if text(&t, b, "state") == "active_allocated"
            && let Some(Value::Int(size)) = t.get(b, "requested_size")
        {
            sizes.push(size >> 20);
        }
    }
    sizes.sort_unstable();
    sizes
}

fn text<'a>(t: &'a Tree, v: Value, key: &str) -> &'a str {
    t.get(v, key).and_then(|s| t.text(s)).unwrap_or_default()
}

/// Waits for a file of the job's; the job's end is not waited for in vain. `said`: what it writes to stderr.
#[track_caller]
fn wait_for(path: &Path, job: &mut std::process::Child, said: &Path) -> String {
    let until = Instant::now() + Duration::from_secs(300);
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        let ended = job.try_wait().expect("the job can be asked");
        if ended.is_some() || Instant::now() > until {
            let said = std::fs::read_to_string(said).unwrap_or_default();
            panic!("{} never came: {ended:?}\n{said}", path.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_running_job_is_shown_from_outside() {
    let folder = Folder::new("live");
    let said = folder.join("said");
    let mut command = Command::new(support::command());
    command
        .args(["run", "-o"])
        .arg(folder.join("run"))
        .arg("--")
        .arg(support::python())
        .arg(support::root().join("tests/python/snapshot_live.py"))
        .arg(folder.path())
        .arg(folder.join("run"))
        .env("STRANDLINE_CACHE", support::cache())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&said).expect("a file"));
    let mut job = command.spawn().expect("the command starts");
    let pid = wait_for(&folder.join("pid"), &mut job, &said);
    // What it asked for, of the moment when it asked.
    assert_eq!(in_use(&folder.join("run/asked.pickle")), [3, 3, 3, 3, 5]);
    let now = folder.join("now.pickle");
    let words: [&std::ffi::OsStr; 6] =
        ["snapshot".as_ref(), pid.as_ref(), "--at".as_ref(), "now".as_ref(), "-o".as_ref(), now.as_ref()];
    support::strandline(&words);
    assert_eq!(in_use(&now), [3, 3, 3, 3, 7, 7]);
    std::fs::write(folder.join("go"), "").expect("a file");
    let ended = job.wait_with_output().expect("the command ends");
    let said = std::fs::read_to_string(&said).expect("what it said");
    assert!(ended.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "done\n", "the job's own output, and nothing else");
    assert!(said.contains("asked.pickle, ") && said.contains("requested by the job"), "{said}");
    // The job was gone before anybody could look.
    assert_eq!(in_use(&folder.join("run/late.pickle")), [3, 3, 3, 3, 7, 7]);
}

/// A job without `strandline run` around it, which ends as soon as somebody has fulfilled its first wish.
fn alone(folder: &Folder) -> Command {
    std::fs::write(folder.join("go"), "").expect("a file");
    let mut job = Command::new(support::python());
    job.arg(support::root().join("tests/python/snapshot_live.py")).arg(folder.path()).arg(folder.join("rec"));
    job.env("LD_PRELOAD", support::preload_so()).env("STRANDLINE_OUT", folder.join("rec"));
    job.env("STRANDLINE_TAIL", folder.path()).env("STRANDLINE_BIN", support::command());
    job.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    job
}

#[test]
fn the_watcher_that_a_job_starts_for_itself_fulfils_what_it_asks_for() {
    let folder = Folder::new("live-alone");
    let mut job = alone(&folder).env("STRANDLINE_ALERT_GROWTH", "1GiB/step").spawn().expect("it starts");
    assert!(job.wait().expect("it ends").success());
    assert_eq!(in_use(&folder.join("rec/asked.pickle")), [3, 3, 3, 3, 5]);
    // The watcher is no child of ours: it is not known when it has ended.
    let until = Instant::now() + Duration::from_secs(300);
    while !folder.join("rec/late.pickle").exists() {
        assert!(Instant::now() < until, "late.pickle never came");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(in_use(&folder.join("rec/late.pickle")), [3, 3, 3, 3, 7, 7]);
}

#[test]
fn watch_fulfils_what_a_running_job_asks_for() {
    let folder = Folder::new("live-watch");
    let mut job = alone(&folder).spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(300);
    // Until the job's recording is there, there is nothing to watch; then the watch lasts as long as the job.
    let mut watch = Command::new(support::command());
    watch.arg("watch").arg(folder.join("rec")).stdin(Stdio::null()).stderr(Stdio::null());
    while !watch.status().expect("the command starts").success() {
        let ended = job.try_wait().expect("the job can be asked");
        assert!(ended.is_none() && Instant::now() < until, "nothing to watch: {ended:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(job.wait().expect("it ends").success());
    assert_eq!(in_use(&folder.join("rec/asked.pickle")), [3, 3, 3, 3, 5]);
    assert_eq!(in_use(&folder.join("rec/late.pickle")), [3, 3, 3, 3, 7, 7]);
}

/// Keeps 4 MiB a step, then asks for a snapshot and waits for it.
const LEAKS: &str = r#"
import ctypes, os, sys, time, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for step in range(30):
    model(torch.randn(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(torch.zeros(1 << 20, device="cuda"))
assert ctypes.CDLL(None).strandline_snapshot(b"asked.pickle") == 0
until = time.monotonic() + 240
while not os.path.exists(os.path.join(sys.argv[1], "asked.pickle")):
    assert time.monotonic() < until, "nobody wrote it"
    time.sleep(0.05)
"#;

/// What is suppressed in the report is not marked in a snapshot that the same run makes for the job.
#[test]
fn what_the_run_suppresses_does_not_stand_out_in_what_its_job_asks_for() {
    let folder = Folder::new("live-suppressed");
    std::fs::write(folder.join("job.py"), LEAKS).expect("written");
    std::fs::write(folder.join("known.supp"), "growing:job.py\nleak:job.py\n").expect("written");
    for (name, suppressions, marked) in [("open", None, true), ("known", Some("known.supp"), false)] {
        let mut run = Command::new(support::command());
        run.current_dir(folder.path()).args(["run", "-o", name]);
        run.args(suppressions.iter().flat_map(|file| ["--suppressions", file]));
        run.arg("--").arg(support::python()).arg("job.py").arg(folder.join(name));
        run.env("STRANDLINE_CACHE", support::cache()).env_remove("STRANDLINE_SUPPRESSIONS");
        let output = run.stdin(Stdio::null()).output().expect("the command starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bytes = std::fs::read(folder.join(name).join("asked.pickle")).expect("a snapshot");
        let stands_out = bytes.windows(b"left behind".len()).any(|w| w == b"left behind");
        assert_eq!(stands_out, marked, "{name}");
    }
}
