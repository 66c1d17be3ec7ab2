//! Alerts while a job runs: told once, acted upon, and never in the job's way. The jobs wait for what the actions do, so that
//! nothing here depends on how fast the machine is.

#[path = "alert/exposition.rs"]
mod exposition;
mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use support::{Folder, Job, command, is_whole, preload_so, python, request_body, root};

/// Longer than anything takes on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// `strandline run` with these options and this job, in a folder.
fn run(folder: &Folder, options: &[&str], job: &[&str]) -> Command {
    let mut run = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    run.args(["run", "-o", "rec"]).args(options).arg("--").args(job).current_dir(folder.path());
    run.env_remove("LD_PRELOAD")
        .env("XDG_CACHE_HOME", support::cache())
        .env("STRANDLINE_TAIL", folder.path())
        // Who holds it would be a second event.
        .env("STRANDLINE_PROBE", "off");
    run.env("STRANDLINE_SIM_TOTAL", (4u64 << 30).to_string()).stdin(Stdio::null());
    run
}

/// The job that leaks and waits for these files.
fn job<'a>(python: &'a str, script: &'a str, waits: &[&'a str]) -> Vec<&'a str> {
    [python, script].into_iter().chain(waits.iter().copied()).collect()
}

fn words() -> (String, String) {
    let text = |p: &Path| p.to_str().expect("UTF-8").to_string();
    (text(python()), text(&root().join("tests/python/alert.py")))
}

struct Did {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn did(output: Output) -> Did {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Did { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A chat that is down at first: the bodies that it was sent.
fn chat() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (send, received) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.expect("a connection");
            let body = request_body(&stream);
            let status = if number == 0 { "503 Down" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("an answer");
            if number > 0 && send.send(String::from_utf8(body).expect("UTF-8")).is_err() {
                return;
            }
        }
    });
    (port, received)
}

#[test]
fn an_alert_is_told_once_and_every_action_gets_the_verdict() {
    let folder = Folder::new("alert");
    let (python, script) = words();
    let (port, chat) = chat();
    let webhook = format!("webhook:http://127.0.0.1:{port}/secret");
    let options = [
        "--alert-growth",
        "1MiB/step",
        "--on-alert",
        "exec:cat > part.json && mv part.json fired.json",
        "--on-alert",
        "exec:exit 3",
        "--on-alert",
        &webhook,
        "--on-alert",
        "log",
        "--on-alert",
        "signal:USR1",
        "--on-alert",
        "snapshot",
        "--metrics",
        "file:figures.prom",
    ];
    let waits =
        ["fired.json", "got-SIGUSR1", "rec/alerts.jsonl", "rec/bundle-1-alert", "rec/*.alert-1.pickle"];
    let did = did(run(&folder, &options, &job(&python, &script, &waits)).output().expect("it starts"));
    assert_eq!(did.status, Some(0), "{}", did.stderr);
    assert_eq!(did.stdout, "waiting\ndone ['SIGUSR1']\n", "the job's own");

    // One block, at the step at which it was found, with line, rate and forecast.
    let alerts: Vec<&str> = did.stderr.lines().filter(|l| l.starts_with("strandline: ALERT")).collect();
    let [alert] = alerts.as_slice() else { panic!("one alert: {}", did.stderr) };
    assert!(alert.starts_with("strandline: ALERT GPU 0 full at step "), "{alert}");
    assert!(alert.contains("growth at alert.py:"), "{alert}");
    let now = did.stderr.lines().find_map(|l| l.strip_prefix("  as of  step ")).expect("where it stands");
    let step: u32 = now.split(' ').next().and_then(|n| n.parse().ok()).expect("a step");
    assert!((5..60).contains(&step), "{now}");
    let said = did.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("8 MiB a step since step "), "{said}");

    // All actions got the same verdict, whose text a chat shows as it is.
    let fired: Value =
        serde_json::from_slice(&std::fs::read(folder.join("fired.json")).expect("fired")).expect("JSON");
    let text = fired["text"].as_str().expect("text");
    assert_eq!(text, alert.replacen("ALERT ", "", 1));
    assert_eq!(
        (&fired["schema"], &fired["event"], &fired["steps"]),
        (&1.into(), &"alert".into(), &step.into())
    );
    let finding = &fired["finding"];
    assert_eq!((&finding["kind"], &finding["severity"].is_string()), (&"step-growth".into(), &true));
    let posted = chat.recv_timeout(DEADLINE).expect("the chat was tried again");
    assert_eq!(serde_json::from_str::<Value>(&posted).expect("JSON"), fired);
    let logged = std::fs::read_to_string(folder.join("rec/alerts.jsonl")).expect("logged");
    assert_eq!(logged.lines().count(), 1, "{logged}");
    assert_eq!(serde_json::from_str::<Value>(&logged).expect("JSON"), fired);

    // What fails is told, and that it was given up; an address that may be a secret is not.
    assert!(
        did.stderr.contains("exec:exit 3 failed: exit status: 3; strandline will try again"),
        "{}",
        did.stderr
    );
    assert!(did.stderr.contains("exec:exit 3 failed 3 times"), "{}", did.stderr);
    assert!(
        did.stderr.contains("webhook to 127.0.0.1:") && !did.stderr.contains("/secret"),
        "{}",
        did.stderr
    );
    is_whole(&folder.join("rec/bundle-1-alert"));

    // The figures of its end.
    let text = std::fs::read_to_string(folder.join("figures.prom")).expect("figures");
    let figures = exposition::read(&text);
    let sum = |name: &str| figures.iter().filter(|f| f.name == name).map(|f| f.value).sum::<f64>();
    assert_eq!(sum("strandline_alerts_total"), 1.0, "{text}");
    assert_eq!(sum("strandline_steps_total"), 60.0, "{text}");
    assert_eq!(sum("strandline_events_lost_total"), 0.0, "{text}");
    assert_eq!(sum("strandline_capacity_bytes"), (4u64 << 30) as f64, "{text}");
    assert!(sum("strandline_peak_allocated_bytes") >= f64::from(60 * (8 << 20)), "{text}");
    let line = |f: &&exposition::Figure| {
        f.name == "strandline_site_live_bytes" && f.label("site").contains("alert.py:")
    };
    assert!(figures.iter().any(|f| line(&f)), "{text}");
    let leak = figures.iter().find(|f| f.name == "strandline_leak_bytes").expect("the leak");
    assert_eq!((leak.label("kind"), leak.label("rank")), ("step-growth", "0"));
    let called = format!("pid {} (alert.py)", leak.label("pid"));
    assert_eq!(leak.label("process"), called, "no launcher gave it a rank");
}

#[test]
fn a_job_without_the_command_around_it_has_one_watcher_that_it_never_notices() {
    let folder = Folder::new("alert-plain");
    let (python, script) = words();
    let both = format!(
        "RANK=0 {python} {script} --both fired.json & RANK=1 {python} {script} --both fired.json & wait"
    );
    let actions = "exec:cat > part && mv part fired.json,log";
    let ran = Job::program(&folder, "sh").arg("-c").arg(&both);
    let ran = ran.env("STRANDLINE_OUT", folder.join("rec")).env("STRANDLINE_BIN", command());
    let ran = ran.env("STRANDLINE_ALERT_GROWTH", "1MiB/step").env("STRANDLINE_ALERT_ON", actions);
    let ran = ran.env("STRANDLINE_SIM_TOTAL", (4u64 << 30).to_string()).env("STRANDLINE_PROBE", "off");
    let ran = ran.run().succeeded();
    assert_eq!(ran.stdout().matches("done []").count(), 2, "{}", ran.stdout());
    assert!(!ran.stderr().contains("ALERT"), "what it says is in a file: {}", ran.stderr());
    let fired: Value =
        serde_json::from_slice(&std::fs::read(folder.join("fired.json")).expect("fired")).expect("JSON");
    assert_eq!(fired["event"], "alert");
    let logs = folder.files(".log");
    let [log] = logs.as_slice() else { panic!("one log: {logs:?}") };
    let said = std::fs::read_to_string(log).expect("the log");
    assert_eq!(said.matches("strandline: ALERT").count(), 1, "one watcher, one alert: {said}");
}

#[test]
fn a_job_can_be_watched_before_it_begins_and_while_it_runs() {
    let folder = Folder::new("alert-watch");
    let (python, script) = words();
    let watch = |options: &[&str]| {
        let mut watch = Command::new(command());
        watch.arg("watch").args(options).arg("rec").current_dir(folder.path()).stdin(Stdio::null());
        watch
    };
    std::fs::create_dir(folder.join("rec")).expect("a folder");
    let mut early = watch(&["--alert-growth", "1MiB/step", "--on-alert", "exec:touch early"]);
    let mut early = Ends(early.stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut said = BufReader::new(early.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let waits = said.find(|l| l.contains("nothing is recorded in rec/ yet; waiting for a recording"));
    assert!(waits.is_some(), "it does not wait");
    std::thread::spawn(move || said.for_each(drop));
    let mut job = Command::new(&python);
    job.args([&script, "fired", "early"]).current_dir(folder.path()).env("LD_PRELOAD", preload_so());
    job.env("STRANDLINE_OUT", folder.join("rec")).env("STRANDLINE_TAIL", folder.path());
    job.env("STRANDLINE_SIM_TOTAL", (4u64 << 30).to_string()).stdout(Stdio::null());
    let mut job = Ends(job.stderr(Stdio::null()).spawn().expect("it starts"));
    wait_until_it_has_leaked(&folder);
    // The job waits for both alerts, and both watches for the end of the job.
    let late = watch(&["--alert-growth", "1MiB/step", "--on-alert", "exec:touch fired"]).output();
    let said = did(late.expect("it starts"));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("watching 1 process in rec/"), "{}", said.stderr);
    assert_eq!(said.stderr.matches("strandline: ALERT GPU 0 full at step ").count(), 1, "{}", said.stderr);
    assert!(job.0.wait().expect("it ends").success());
    assert_eq!(early.0.wait().expect("it ends").code(), Some(0));
    let said = did(watch(&[]).output().expect("it starts"));
    assert_eq!(said.status, Some(2), "{}", said.stderr);
    assert!(said.stderr.contains("no running job on this machine records into rec/"), "{}", said.stderr);
}

#[test]
fn the_ranks_of_a_job_are_one_alert_and_the_variables_are_the_options() {
    let folder = Folder::new("alert-ranks");
    let (python, script) = words();
    let both =
        format!("RANK=0 {python} {script} --both fired & RANK=1 {python} {script} --both fired & wait");
    let mut run = run(&folder, &[], &["sh", "-c", &both]);
    run.env("STRANDLINE_ALERT_OOM_WITHIN", "100000").env("STRANDLINE_ALERT_AFTER", "20");
    run.env("STRANDLINE_ALERT_ON", "log,exec:touch fired");
    let did = did(run.output().expect("it starts"));
    assert_eq!(did.status, Some(0), "{}", did.stderr);
    assert_eq!(did.stderr.matches("strandline: ALERT").count(), 1, "{}", did.stderr);
    let logged = std::fs::read_to_string(folder.join("rec/alerts.jsonl")).expect("logged");
    assert_eq!(logged.lines().count(), 1, "{logged}");
    let verdict: Value = serde_json::from_str(&logged).expect("JSON");
    assert!(verdict["steps"].as_u64().is_some_and(|s| s >= 20), "{verdict}");
}

/// What the leak is a sign of changes while the job runs; the line is announced once, and found once.
#[test]
fn a_leak_that_turns_out_to_be_of_another_kind_is_the_same_leak() {
    let folder = Folder::new("alert-kind");
    let script = root().join("tests/python/trained_before.py");
    let words = [python().to_str().expect("UTF-8"), script.to_str().expect("UTF-8")];
    let mut run = run(&folder, &["--alert-growth", "1MiB/step"], &words);
    let ran = did(run.env_remove("STRANDLINE_PROBE").output().expect("it starts"));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("ALERT GPU 0").count(), 1, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("GROWING 1  memory allocated on a side stream grows every step"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("GROWING 2"), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_understood_is_refused_before_the_job_starts() {
    let folder = Folder::new("alert-usage");
    let mut bad = run(&folder, &[], &["touch", "ran"]);
    bad.env("STRANDLINE_ALERT_GROWTH", "fast");
    let bad = did(bad.output().expect("it starts"));
    assert_eq!(bad.status, Some(2), "{}", bad.stderr);
    assert!(bad.stderr.contains("STRANDLINE_ALERT_GROWTH: \"fast\" is not a rate"), "{}", bad.stderr);
    let bad = did(run(&folder, &["--on-alert", "mail:me"], &["touch", "ran"]).output().expect("it starts"));
    assert_eq!(bad.status, Some(2), "{}", bad.stderr);
    assert!(bad.stderr.contains("an action is log, snapshot, exec:CMD"), "{}", bad.stderr);
    assert!(!folder.join("ran").exists() && !folder.join("rec").exists());
}

#[test]
fn an_abort_ends_a_job_that_does_not_want_to_end() {
    let folder = Folder::new("alert-abort");
    let (python, script) = words();
    let options = ["--alert-growth", "1MiB/step", "--on-alert", "abort:1"];
    let waits = ["--term", "never"];
    let did = did(run(&folder, &options, &job(&python, &script, &waits)).output().expect("it starts"));
    assert_eq!(did.status, Some(82), "{}", did.stderr);
    assert!(folder.join("got-SIGTERM").exists(), "it was asked first");
    assert!(
        did.stderr.contains("ABORT: the grace period is over: strandline sends SIGKILL to the job"),
        "{}",
        did.stderr
    );
    assert!(did.stderr.contains("strandline: GROWING"), "the report is made: {}", did.stderr);
    assert!(
        did.stderr.ends_with("  exit   82: strandline ended the job (--on-alert abort)\n"),
        "{}",
        did.stderr
    );
    is_whole(&folder.join("rec/bundle-1-alert"));
}

/// Asks as Prometheus does, until a step is told.
fn scrape(address: &str) {
    let until = Instant::now() + DEADLINE;
    loop {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        // Figures are made once a second: those of the first steps may still stand there.
        let figures = exposition::read(body);
        if figures
            .iter()
            .any(|f| f.name == "strandline_steps_total" && f.value >= 1.0 && f.label("rank") == "0")
        {
            return;
        }
        assert!(Instant::now() < until, "no figures come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn wait_until_it_has_leaked(folder: &Folder) {
    let until = Instant::now() + DEADLINE;
    while folder.files("").iter().all(|f| !f.to_string_lossy().contains("/waiting-")) {
        assert!(Instant::now() < until, "the job never leaks");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends its process with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_job_that_is_asked_to_end_leaves_a_bundle_while_it_still_runs() {
    let folder = Folder::new("alert-term");
    let (python, script) = words();
    let options = ["--alert-after", "1000", "--metrics", "127.0.0.1:0"];
    let waits = ["--term", "got-SIGTERM", "rec/bundle-1-sigterm"];
    let mut run = run(&folder, &options, &job(&python, &script, &waits));
    let mut child = Ends(run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut said = BufReader::new(child.0.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let address =
        said.find_map(|l| Some(l.split_once("metrics at http://")?.1.split('/').next()?.to_string()));
    let address = address.expect("where the metrics are");
    // Nobody may be held up by what is not read.
    std::thread::spawn(move || said.for_each(drop));
    wait_until_it_has_leaked(&folder);
    scrape(&address);
    // Whoever asks thousands of times and never reads an answer holds up nobody.
    let mut never = TcpStream::connect(&address).expect("it listens");
    never.set_write_timeout(Some(Duration::from_secs(1))).expect("a time");
    let requests = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    (0..200).take_while(|_| never.write_all(&requests).is_ok()).for_each(drop);
    scrape(&address);
    let kill = Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().expect("kill");
    assert!(kill.success());
    // The job itself waits for the bundle, and fails where it does not come.
    assert_eq!(child.0.wait().expect("it ends").code(), Some(0));
    is_whole(&folder.join("rec/bundle-1-sigterm"));
}
