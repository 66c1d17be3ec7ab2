//! Recordings that are sent to an object store while their job runs: by a watcher that is killed, to a server that goes away, of a job that is killed.

use super::real;
use super::store::Server;
use super::support::{Folder, cache, python, root};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(240);

/// A job that runs until it is told to end.
struct Live {
    folder: Folder,
    child: Child,
}

impl Live {
    fn start(name: &str, server: &Server, options: &[&str], killed: bool) -> Live {
        let folder = Folder::new(name);
        let mut run = server.strandline(&["run", "-o", "rec"]);
        run.args(options).arg("--").arg(python()).arg(root().join("tests/fleet/ship.py")).arg("stop");
        run.args(killed.then_some("killed")).current_dir(folder.path());
        run.env("XDG_CACHE_HOME", cache()).env("STRANDLINE_SIM_TOTAL", "24GiB").stderr(Stdio::piped());
        let child = run.stdout(Stdio::null()).spawn().expect("the command starts");
        Live { folder, child }
    }

    fn recording(&self) -> String {
        self.folder.join("rec").to_str().expect("UTF-8").to_owned()
    }

    /// Bytes that are recorded now.
    fn bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.folder.join("rec")).into_iter().flatten().flatten();
        let own = files.filter(|f| f.path().extension().is_some_and(|e| e == "strand"));
        own.filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
    }

    fn grows(&self) {
        let before = self.bytes();
        until("the job records more", || self.bytes() > before);
    }

    /// Ends it; what it said.
    fn end(self) -> (Folder, Output) {
        std::fs::write(self.folder.join("stop"), "").expect("a file");
        (self.folder, self.child.wait_with_output().expect("it ends"))
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(server: &Server, place: &str) -> Value {
    let output = server.run(&["report", place, "--format", "json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What a report of the place says, once there is one.
fn said(server: &Server, place: &str) -> String {
    let mut text = String::new();
    until("there is a recording in the store", || {
        let output = server.run(&["report", place]);
        text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        output.status.success()
    });
    text
}

/// A watcher whose lines go to a file.
fn watch(server: &Server, place: &str, recording: &str, log: &Path) -> Child {
    let mut watch = server.strandline(&["watch", "--ship", place, "--ship-every", "1", recording]);
    let log = std::fs::File::create(log).expect("a file");
    watch.stdout(Stdio::null()).stderr(log).spawn().expect("the command starts")
}

fn lines(log: &Path) -> String {
    let mut text = String::new();
    let _ = std::fs::File::open(log).and_then(|mut f| f.read_to_string(&mut text));
    text
}

#[test]
fn a_watcher_that_was_killed_goes_on_and_a_server_that_was_away_misses_nothing() {
    let Some(server) = Server::start(real()) else { return };
    let place = "s3://fleet/live";
    let job = Live::start("ship-live", &server, &[], false);
    until("the job records", || job.bytes() > 0);
    let log = job.folder.join("log");
    let mut first = watch(&server, place, &job.recording(), &log);
    let text = said(&server, place);
    let missing = "the recording was sent every 1 s while the job ran, but its end was not sent: its last 2 s may be missing";
    assert!(text.contains(missing), "{text}");
    first.kill().expect("it is killed");
    first.wait().expect("it has ended");
    job.grows();

    server.ask("gone/0");
    let mut second = watch(&server, place, &job.recording(), &log);
    until("it says that the server is away", || lines(&log).contains("tried again every 1 s"));
    job.grows();
    job.grows();
    job.grows();
    server.ask("well/0");
    until("it says that the server is back", || lines(&log).contains("are sent to s3://fleet/live again"));
    assert_eq!(lines(&log).matches("tried again").count(), 1, "it is said once: {}", lines(&log));
    let rec = job.recording();
    let (_folder, output) = job.end();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(second.wait().expect("it ends").success(), "{}", lines(&log));
    assert_eq!(json(&server, place), json(&server, &rec));
    let text = said(&server, place);
    assert!(!text.contains("may be missing"), "{text}");
}

#[test]
fn a_run_sends_its_recording_to_the_end_also_of_a_job_that_is_killed() {
    let Some(server) = Server::start(real()) else { return };
    let place = "s3://fleet/killed";
    let job = Live::start("ship-killed", &server, &["--ship", place, "--ship-every", "1"], true);
    said(&server, place);
    job.grows();
    let rec = job.recording();
    let (folder, output) = job.end();
    let text = stderr(&output);
    assert_eq!(super::support::shell_status(output.status), 137, "{text}");
    assert!(text.contains("nothing is sent but recordings to s3://fleet/killed"), "{text}");
    let files = std::fs::read_dir(folder.join("rec")).expect("a folder").flatten();
    let tails = files.filter(|f| f.path().extension().is_some_and(|e| e == "tail")).count();
    assert_eq!(tails, 1, "what it had not written is there as well: {text}");
    let (there, own) = (json(&server, place), json(&server, &rec));
    assert_eq!(there, own);
    assert!(!said(&server, place).contains("may be missing"));
}

/// Its processes end at once, and its disk is gone.
#[test]
fn of_a_machine_that_dies_the_store_has_all_but_the_last_seconds() {
    let Some(server) = Server::start(real()) else { return };
    let place = "s3://fleet/died";
    let mut job = Live::start("ship-died", &server, &["--ship", place, "--ship-every", "1"], false);
    said(&server, place);
    let own = |report: &Value, what: &str| report["processes"][0][what].as_u64().unwrap_or(0);
    let sent = || own(&json(&server, place), "events");
    until("events are in the store", || sent() > 0);
    let before = sent();
    until("more of them are", || sent() > before);
    let run = job.child.id().to_string();
    let pid = own(&json(&server, &job.recording()), "pid").to_string();
    // `strandline run` must not see its job die.
    for (signal, pid) in [("-STOP", &run), ("-KILL", &pid), ("-KILL", &run)] {
        assert!(Command::new("kill").arg(signal).arg(pid).status().expect("kill starts").success());
    }
    job.child.wait().expect("it has ended");
    let whole = json(&server, &job.recording());
    std::fs::remove_dir_all(job.folder.join("rec")).expect("the disk is gone");
    let text = said(&server, place);
    assert!(text.contains("but its end was not sent: its last 2 s may be missing"), "{text}");
    let (there, all) = (sent(), own(&whole, "events"));
    assert!(before < there && there <= all, "{there} of {all}");
    println!(
        "sent: {there} of {all} events, {} of {} steps (20 a second)",
        own(&json(&server, place), "steps"),
        own(&whole, "steps")
    );
}

#[test]
fn what_a_run_could_not_send_is_said_and_sent_later_and_its_status_is_the_jobs() {
    let Some(server) = Server::start(real()) else { return };
    let place = "s3://fleet/late";
    server.ask("gone/0");
    let job = Live::start("ship-late", &server, &["--ship", place, "--ship-every", "1"], false);
    until("the job records", || job.bytes() > 0);
    job.grows();
    let rec = job.recording();
    let began = Instant::now();
    let (_folder, output) = job.end();
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    println!("the job's end took {:.1} s with a server that is away", began.elapsed().as_secs_f64());
    let again = "to send the rest: strandline watch --ship s3://fleet/late rec/";
    assert!(text.contains(again), "{text}");
    server.ask("well/0");
    let output = server.run(&["watch", "--ship", place, &rec]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&server, place), json(&server, &rec));

    let wrong = Command::new(super::command()).args(["run", "--ship", "hdfs://x/y", "true"]).output();
    let wrong = wrong.expect("the command starts");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("no store of this kind can be used"), "{}", stderr(&wrong));
}
