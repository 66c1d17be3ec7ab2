//! The watch when things go wrong, over recordings of jobs that were never run: each is that of a real process, which sleeps.

#![allow(dead_code, reason = "of what makes recordings only a part is used")]

#[path = "recordings/job.rs"]
mod job;
mod support;

use job::{Job as Made, SMALL};
use serde_json::{Deserializer, Value, json};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strandline::format::raw::{Kind, Record, flag};
use strandline::format::region::Identity;
use strandline::writer::{Memory, Options};
use support::{Folder, Job, command, python, request_body, root};

/// Longer than anything takes on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(300);
const BLOCK: u64 = 8 << 20;

/// Ends its process with the test.
struct Process(Child);

impl Process {
    fn that_sleeps() -> Process {
        let sleep = Command::new("sleep").arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        Process(sleep.expect("it starts"))
    }

    /// The same of another user, which root may start.
    fn of_user(user: u32) -> Process {
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").uid(user).stdin(Stdio::null()).stdout(Stdio::null());
        Process(sleep.spawn().expect("it starts"))
    }

    /// The same in a PID namespace of its own, as in a container: there it is number 1, here it has another, which is told. `None` where the
    /// system makes no such namespace.
    fn that_sleeps_in_a_container() -> Option<(Process, u32)> {
        let mut unshare = Command::new("unshare");
        if std::fs::metadata("/proc/self").ok()?.uid() != 0 {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--pid", "--fork", "--kill-child", "sleep", "1000"]).stdin(Stdio::null());
        let mut process = Process(unshare.stdout(Stdio::null()).spawn().ok()?);
        let id = process.0.id();
        let child =
            || std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?.trim().parse().ok();
        let sleeps =
            |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| c.starts_with(b"sleep"));
        until("it sleeps, or cannot", || {
            child().is_some_and(sleeps) || process.0.try_wait().expect("a child").is_some()
        });
        let pid = child()?;
        Some((process, pid))
    }

    /// When it was started, as `/proc` says: with its number it is told from any other one.
    fn identity(&self, rank: u64) -> Identity {
        identity(self.0.id(), self.0.id(), rank)
    }
}

/// Of a process that has the number `pid` here and `own` in its own namespace.
fn identity(pid: u32, own: u32, rank: u64) -> Identity {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    Identity { pid: own, start: start.expect("a number"), id: [rank, 0x5678] }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a process has recorded that leaks a block a step by each of these stacks: the first on the main stream, others on one of
/// their own, which is a finding of its own.
fn leaky(who: Identity, rank: u64, stacks: &[u32]) -> Vec<u8> {
    leaking(who, rank, stacks, json!([])).die()
}

/// The same of a process that still runs, with what it knows of its devices.
fn leaking(who: Identity, rank: u64, stacks: &[u32], devices: Value) -> Made {
    let facts = json!({"framework": "torch", "host": "node", "rank": rank, "pid": who.pid,
        "devices": devices,
        "coverage": {"level": "blocks", "reason": null}});
    let mut job = Made::of(who, facts, SMALL, 1, Options::default(), Memory::default());
    job.define(4);
    let (mut allocated, mut top) = (0, 0x7f00_0000_0000);
    for step in 1..=60 {
        for &stack in stacks {
            (allocated, top) = (allocated + BLOCK, top + BLOCK);
            let mut r = Record { a: top, b: BLOCK, kind: Kind::Alloc as u8, stack, ..Record::default() };
            r.c = if stack == 1 { 0 } else { 0x5500 + u64::from(stack) * 64 };
            let mut segment = Record { kind: Kind::SegmentAlloc as u8, stack: 0, ..r };
            (segment.allocated, segment.reserved) = (allocated - BLOCK, allocated);
            let segment = job.stamp(segment, 1_000);
            assert!(job.lanes[0].push(segment));
            r.set_rounded(BLOCK);
            (r.flags, r.allocated, r.reserved) = (flag::REPORTED, allocated, allocated);
            let r = job.stamp(r, 1_000_000);
            assert!(job.lanes[0].push(r));
        }
        let r = job.stamp(Record { a: step, kind: Kind::ManualStep as u8, ..Record::default() }, 100_000_000);
        assert!(job.lanes[0].push(r));
    }
    job.seal();
    job
}

/// `strandline watch rec` with these actions.
fn watch(folder: &Folder, options: &[&str]) -> Command {
    let mut watch = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        watch.env_remove(name);
    }
    watch.args(["watch", "--alert-growth", "1MiB/step"]).args(options).arg("rec").current_dir(folder.path());
    watch.env_remove("LD_PRELOAD").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    watch
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Verdicts in a file, one after the other.
fn verdicts(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    Deserializer::from_str(&text).into_iter::<Value>().map_while(Result::ok).collect()
}

/// Waits for its end; what it said.
fn said(watch: Child) -> String {
    let done = watch.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{text}");
    text
}

#[test]
fn sixty_four_ranks_are_one_alert_and_a_leak_on_one_of_them_is_another() {
    let folder = Folder::new("ranks");
    std::fs::create_dir(folder.join("rec")).expect("a folder");
    let all: Vec<Process> = (0..64).map(|_| Process::that_sleeps()).collect();
    for (rank, process) in (0..).zip(&all) {
        let stacks: &[u32] = if rank == 17 { &[1, 2] } else { &[1] };
        let bytes = leaky(process.identity(rank), rank, stacks);
        std::fs::write(folder.join(&format!("rec/node-r{rank}.strand")), bytes).expect("written");
    }
    let options = ["--on-alert", "exec:cat >> fired", "--on-alert", "log", "--metrics", "file:figures.prom"];
    let watch = watch(&folder, &options).spawn().expect("it starts");
    until("both are told", || verdicts(&folder.join("fired")).len() >= 2);
    until("both are logged", || verdicts(&folder.join("rec/alerts.jsonl")).len() >= 2);
    // While all of them live: who has ended has no figures any more.
    let counted = |text: String| text.matches("strandline_steps_total{").count() == 64;
    until("figures of all", || std::fs::read_to_string(folder.join("figures.prom")).is_ok_and(counted));
    drop(all);
    let text = said(watch);
    assert_eq!(text.matches("strandline: ALERT").count(), 2, "{text}");
    assert!(text.contains("watching 64 processes"), "{text}");
    let ranks = |v: &Value| v["text"].as_str().and_then(|t| t.split_once('(')).map(|t| t.1.to_string());
    let mut spread: Vec<String> =
        verdicts(&folder.join("fired")).iter().map(|v| ranks(v).expect("a line")).collect();
    spread.sort();
    assert_eq!(spread, ["1 of 64 processes; worst rank 17)", "64 of 64 processes; worst rank 0)"], "{text}");
}

/// One process and its recording.
fn one(folder: &Folder) -> Process {
    std::fs::create_dir(folder.join("rec")).expect("a folder");
    let process = Process::that_sleeps();
    let bytes = leaky(process.identity(0), 0, &[1]);
    std::fs::write(folder.join("rec/node-r0.strand"), bytes).expect("written");
    process
}

/// The recording of a container's process names it by the number that it has there: who watches a node finds it all the same.
#[test]
fn a_process_of_another_pid_namespace_is_watched() {
    let Some((process, pid)) = Process::that_sleeps_in_a_container() else {
        return println!("SKIPPED: unshare makes no PID namespace here");
    };
    let folder = Folder::new("container");
    std::fs::create_dir(folder.join("rec")).expect("a folder");
    std::fs::write(folder.join("rec/node-r0.strand"), leaky(identity(pid, 1, 0), 0, &[1])).expect("written");
    let watch = watch(&folder, &["--on-alert", "exec:cat >> fired"]).spawn().expect("it starts");
    until("the alert", || !verdicts(&folder.join("fired")).is_empty());
    drop(process);
    let text = said(watch);
    assert!(text.contains("watching 1 process"), "{text}");
}

/// Takes whatever is sent to a port; what came.
fn receiver() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, sent) = (listener.local_addr().expect("bound"), Arc::<Mutex<Vec<Value>>>::default());
    let came = sent.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let body = serde_json::from_slice(&request_body(&stream)).expect("JSON");
            came.lock().expect("whole").push(body);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (format!("webhook:http://{address}/"), sent)
}

/// Root watches a leaking job of its own beside one of another user, both of which request a snapshot: in its own folder, and in one of that
/// user's. Nothing is written, run or sent for the other user's, and one line says so.
#[test]
fn a_watcher_acts_for_its_own_users_jobs_alone() {
    const NOBODY: u32 = 65_534;
    if std::fs::metadata("/proc/self").expect("a process").uid() != 0 {
        return println!("SKIPPED: only root can start another user's job");
    }
    for owner in [0, NOBODY] {
        let folder = Folder::new("another-user");
        let rec = folder.join("rec");
        std::fs::create_dir(&rec).expect("a folder");
        let [theirs, own] = [NOBODY, 0].map(Process::of_user);
        for (rank, process, user) in [(0, &theirs, NOBODY), (1, &own, 0)] {
            let mut job = leaking(process.identity(rank), rank, &[1], json!([]));
            let r = job.stamp(Record { a: 1, kind: Kind::Mark as u8, ..Record::default() }, 1_000);
            assert!(job.lanes[0].push(r));
            let path = format!("asked-{rank}.pickle");
            let request = json!({ "number": 1, "path": path, "mark": "warm up", "cwd": "/", "unix_ms": 1 });
            let request = json!({ "snapshot_request": request });
            job.writer.as_mut().expect("a writer").meta(&job.drain, &request).expect("written");
            job.seal();
            let path = rec.join(format!("node-r{rank}.strand"));
            std::fs::write(&path, job.die()).expect("written");
            chown(&path, Some(user), None).expect("root may");
        }
        chown(&rec, Some(owner), None).expect("root may");
        let (webhook, sent) = receiver();
        let actions = ["exec:cat >> fired", "log", "snapshot", &webhook];
        let options = actions.iter().flat_map(|action| ["--on-alert", action]);
        let options: Vec<&str> = options.chain(["--metrics", "file:figures.prom"]).collect();
        let watch = watch(&folder, &options).spawn().expect("it starts");
        let sent = || sent.lock().expect("whole").clone();
        until("the own job's alert", || !verdicts(&folder.join("fired")).is_empty() && !sent().is_empty());
        let figures = || std::fs::read_to_string(folder.join("figures.prom")).unwrap_or_default();
        until("the own job's figures", || figures().contains("strandline_steps_total{"));
        if owner == 0 {
            until("the own job's snapshots", || folder.files(".pickle").len() == 3);
        }
        assert_eq!(figures().matches("strandline_steps_total{").count(), 1, "{}", figures());
        drop(own);
        let text = said(watch);
        drop(theirs);
        let told = [verdicts(&folder.join("fired")), sent()].concat();
        assert!(told.iter().all(|v| v["rank"] == 1), "{told:?}");
        let made = folder.files("");
        let names = || made.iter().filter_map(|f| f.file_name()).map(|n| n.to_string_lossy());
        let of_theirs: Vec<_> = names().filter(|n| n.contains("node-r0") || n.contains("asked-0")).collect();
        assert_eq!(of_theirs, ["node-r0.strand"], "{text}");
        let bundles = made.iter().filter(|f| f.ends_with("report.json"));
        assert_eq!(bundles.count(), usize::from(owner == 0), "{made:?}");
        if owner == NOBODY {
            assert_eq!(std::fs::read_dir(&rec).expect("a folder").count(), 2, "nothing is written there");
        }
        let line = "rec/node-r0.strand belongs to another user, so it is not watched";
        assert_eq!((text.matches(line).count(), text.matches("node-r0").count()), (1, 1), "{text}");
    }
}

/// What the job answers after the alert is an event of its own, and stands in every form of the report; folded in one to share.
#[test]
fn who_holds_a_leak_is_told_after_the_alert_and_in_every_form_of_the_report() {
    let folder = Folder::new("held");
    std::fs::create_dir(folder.join("rec")).expect("a folder");
    let (process, path) = (Process::that_sleeps(), folder.join("rec/node-r0.strand"));
    let card = json!([{"index": 0, "name": "card", "capacity_bytes": 1u64 << 30}]);
    let mut job = leaking(process.identity(0), 0, &[1], card);
    let written = |job: &Made| job.writer.as_ref().expect("a writer").sink().bytes.clone();
    let before = written(&job);
    std::fs::write(&path, &before).expect("written");
    let watch = watch(&folder, &["--on-alert", "exec:cat >> fired"]).spawn().expect("it starts");
    until("the alert", || !verdicts(&folder.join("fired")).is_empty());
    let alert = verdicts(&folder.join("fired")).remove(0);
    let finding = &alert["finding"];
    assert_eq!((&alert["event"], &finding["held_by"]["status"]), (&"alert".into(), &"not_run".into()));

    let frame = &finding["sites"][0]["frames"][0];
    let site = format!("{}:{}", frame["file"].as_str().expect("a file"), frame["line"]);
    let handle = finding["stream"]["handle"].as_str().map(|h| u64::from_str_radix(&h[2..], 16).expect("hex"));
    let about = json!({ "kind": finding["kind"], "device": 0, "stream": handle, "sites": [site] });
    let holder = |name: &str, graph: bool, through: Value, blocks: u64| json!({ "name": name, "type": "dict", "entries": 1116, "graph": graph, "through": through, "blocks": blocks });
    let holders = [
        holder("Zebra.stash", false, Value::Null, 30),
        holder("__main__.zebras", true, "ZebraBackward.context".into(), 2),
    ];
    let found =
        json!({ "about": about, "status": "found", "holders": holders, "reason": null, "blocks": 32 });
    let answer = json!({ "holders": [{ "number": 1, "findings": [found], "cost": { "slices": 3, "pause_ns": 20_000_000, "longest_ns": 9_000_000 } }] });
    job.writer.as_mut().expect("a writer").meta(&job.drain, &answer).expect("written");
    job.seal();
    let more = written(&job).split_off(before.len());
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("a file");
    file.write_all(&more).expect("written");
    until("who holds it", || verdicts(&folder.join("fired")).len() > 1);
    file.write_all(&job.end().split_off(before.len() + more.len())).expect("written");
    drop(process);
    let text = said(watch);
    let told = verdicts(&folder.join("fired"));
    assert_eq!((told.len(), &told[1]["event"]), (2, &"held".into()), "{told:?}");
    assert_eq!(told[1]["finding"]["held_by"]["status"], "found");
    let first = "Zebra.stash, a dict with 1,116 entries; it holds 94 % of these blocks";
    let second =
        "the autograd graphs of __main__.zebras, a dict with 1,116 entries, through ZebraBackward.context";
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("strandline: HOLDER FOUND: the memory that train.py:"), "{text}");
    assert!(plain(&text).contains(first) && plain(&text).contains(second), "{text}");

    let report = |words: &[&str]| {
        let mut report = Command::new(command());
        report.arg("report").arg(&path).args(words).env("COLUMNS", "300");
        let output = report.output().expect("the command starts");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let (text, page) = (report(&[]), report(&["--format", "html"]));
    assert!(plain(&text).contains(&format!("held by {first}")) && plain(&text).contains(second), "{text}");
    assert!(text.contains("20 ms to find the objects that hold memory, in pauses of at most 9 ms"), "{text}");
    assert!(page.contains("Zebra.stash") && page.contains("ZebraBackward.context"));
    let json: Value = serde_json::from_str(&report(&["--format", "json"])).expect("JSON");
    let held = &json["processes"][0]["findings"][0]["held_by"];
    assert_eq!((&held["status"], &held["reason"]), (&"found".into(), &Value::Null));
    assert_eq!(held["holders"][0], "Zebra.stash (dict, 1116 entries)");
    for form in [&["--share"][..], &["--share", "--format", "json"], &["--share", "--format", "html"]] {
        let shared = report(form);
        assert!(!shared.to_lowercase().contains("zebra"), "{shared}");
        assert!(form.contains(&"html") || shared.contains("1,116") || shared.contains("1116"), "{shared}");
    }
}

/// A chat that answers only once the other actions have been done, which they could not if one waited for another.
#[test]
fn a_slow_webhook_holds_up_nobody() {
    let folder = Folder::new("slow-webhook");
    let process = one(&folder);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let webhook = format!("webhook:http://{}/", listener.local_addr().expect("bound"));
    let options = ["--on-alert", &webhook, "--on-alert", "exec:cat >> fired", "--on-alert", "log"];
    let watch = watch(&folder, &options).spawn().expect("it starts");
    let (mut stream, _) = listener.accept().expect("it is asked");
    let body = request_body(&stream);
    until("the others are done", || {
        verdicts(&folder.join("fired")).len() == 1 && verdicts(&folder.join("rec/alerts.jsonl")).len() == 1
    });
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    drop(process);
    let text = said(watch);
    assert_eq!(text.matches("strandline: ALERT").count(), 1, "{text}");
    let sent: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(sent["event"], "alert");
}

/// A disk with no room left: each loss is a line, nothing is left half done, and what needs no disk is done.
#[test]
fn a_full_disk_is_told_and_stops_nothing() {
    let folder = Folder::new("full-disk");
    let process = one(&folder);
    let may_mount = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"])
        .stderr(Stdio::null())
        .status();
    if !may_mount.is_ok_and(|s| s.success()) {
        return println!("not tried: no file system can be mounted here");
    }
    std::fs::create_dir(folder.join("full")).expect("a folder");
    // The recording first, then anything, until there is no room.
    let script = "mount -t tmpfs -o size=256k none full && mv rec/*.strand full/ || exit 9
        head -c 1M /dev/zero > full/filler 2>/dev/null
        \"$@\"; echo status $?; ls -A full";
    let mut full = Command::new("unshare");
    full.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(command());
    full.args([
        "watch",
        "--alert-growth",
        "1MiB/step",
        "--on-alert",
        "log",
        "--on-alert",
        "exec:cat >> fired",
    ]);
    full.args(["--on-alert", "snapshot", "--metrics", "file:full/figures.prom", "full"]);
    full.current_dir(folder.path()).env_remove("LD_PRELOAD").stdin(Stdio::null());
    let mut full = full.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut process = Some(process);
    until("what needs no disk is done", || {
        if verdicts(&folder.join("fired")).len() == 1 {
            // The job ends, and with it the watch.
            process.take();
        }
        full.try_wait().expect("a child").is_some()
    });
    let done = full.wait_with_output().expect("it ends");
    let (left, text) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let mut lines = left.lines();
    assert_eq!(lines.next(), Some("status 0"), "{left}{text}");
    let mut rest: Vec<&str> = lines.filter(|l| *l != "alerts.jsonl").collect();
    rest.sort_unstable();
    assert_eq!(rest, ["filler", "node-r0.strand"], "nothing is left half done: {left}{text}");
    assert_eq!(text.matches("strandline: ALERT").count(), 1, "{text}");
    for told in [
        "log failed",
        "snapshot failed",
        "report and snapshot could not be saved",
        "metrics cannot be written",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(text.contains("No space left on device"), "{text}");
}

/// The watcher is killed: the job does not notice. The next rank that comes has one again, which says what it found; and a rank
/// that the elastic launcher starts again has a recording of its own.
#[test]
fn a_watcher_that_is_killed_and_a_rank_that_is_restarted() {
    let folder = Folder::new("killed");
    let run = |restart: &str, kills: &str| {
        let job = Job::program(&folder, python()).arg(root().join("tests/programs/watched.py")).arg(kills);
        let job = job.env("STRANDLINE_OUT", folder.join("rec")).env("STRANDLINE_BIN", command());
        let job = job.env("STRANDLINE_ALERT_GROWTH", "1MiB/step").env("RANK", "3");
        job.env("TORCHELASTIC_RESTART_COUNT", restart).run().succeeded()
    };
    let ran = run("0", "kill");
    assert_eq!(ran.stdout(), "0\nkilled\n0\n", "{}", ran.stderr());
    let first = folder.files("-r3.strand");
    let [first] = first.as_slice() else { panic!("one recording: {first:?}") };
    let before = std::fs::read(first).expect("the recording");
    for restart in ["1", "1"] {
        assert_eq!(run(restart, "watched").stdout(), "0\nwatched\n0\n");
    }
    assert_eq!(std::fs::read(first).expect("the recording"), before, "nothing is overwritten");
    assert_eq!(folder.files(".strand").len(), 3, "{:?}", folder.files(".strand"));
    assert_eq!(folder.files("-r3-restart1.strand").len(), 1);
    let logs = folder.files(".log");
    let [log] = logs.as_slice() else { panic!("one log: {logs:?}") };
    let text = || std::fs::read_to_string(log).expect("the log");
    until("the last watch ends", || text().ends_with("so watching has ended\n"));
    let text = text();
    assert_eq!(text.matches("ended unexpectedly").count(), 1, "{text}");
    assert!(text.matches(": watching ").count() >= 2, "{text}");
}
