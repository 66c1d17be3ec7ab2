//! A job that means harm to whoever records it: what it calls things, where it wants files to be written, what it has put there, and
//! where it sends us. One real job with all of it, and every door that its names go through.

mod support;

use serde_json::Value;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use strandline::event::is_hidden;
use support::{Folder, command, python, root};

/// What a terminal, a page or a log may be given: nothing that acts without being seen, but line ends and tabs.
#[track_caller]
fn is_inert(door: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|e| panic!("{door}: {e}"));
    if let Some(at) = text.find(|c: char| is_hidden(c) && c != '\n' && c != '\t') {
        let around: String =
            text[..at].chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
        panic!("{door}: {:?} after {around:?}", text[at..].chars().next());
    }
    assert!(!text.lines().any(|l| l.trim_start().starts_with("LEAK 9  forged")), "{door}: a line was forged");
}

/// The same of every text that a program finds in JSON, which may hand it to a terminal.
#[track_caller]
fn is_inert_inside(door: &str, value: &Value) {
    match value {
        Value::String(s) if door.ends_with("block") => is_inert(door, s.as_bytes()),
        Value::String(s) => assert!(!s.contains(is_hidden), "{door}: {s:?}"),
        Value::Array(items) => items.iter().for_each(|v| is_inert_inside(door, v)),
        Value::Object(fields) => fields.iter().for_each(|(k, v)| {
            assert!(!k.contains(is_hidden), "{door}: {k:?}");
            is_inert_inside(door, v);
        }),
        _ => {}
    }
}

/// Answers every request with a redirect; what comes to where it leads is counted.
fn redirects() -> (u16, Arc<AtomicU32>) {
    let [listener, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [port, to] = [&listener, &other].map(|l| l.local_addr().expect("bound").port());
    let followed = Arc::new(AtomicU32::new(0));
    let count = followed.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            drop(support::request_body(&stream));
            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{to}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    std::thread::spawn(move || {
        for mut stream in other.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, followed)
}

fn output(folder: &Folder, words: &[&str]) -> Output {
    let mut run = Command::new(command());
    run.args(words).current_dir(folder.path()).env("XDG_CACHE_HOME", support::cache()).stdin(Stdio::null());
    run.output().expect("the command starts")
}

#[test]
fn a_hostile_job_gets_nothing_out_of_being_recorded() {
    let folder = Folder::new("hostile");
    std::fs::create_dir(folder.join("elsewhere")).expect("a folder");
    let victim = folder.join("elsewhere/victim");
    std::fs::write(&victim, "precious\n").expect("a file");
    let script = root().join("tests/python/hostile.py");
    let (port, followed) = redirects();
    let webhook = format!("webhook:http://127.0.0.1:{port}/hidden");
    let mut run = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    run.args([
        "run",
        "-o",
        "rec",
        "--alert-growth",
        "100KiB/step",
        "--on-alert",
        "log",
        "--on-alert",
        &webhook,
    ]);
    run.args(["--on-alert", "exec:cat >> fired; touch told", "--metrics", "file:figures.prom", "--"]);
    run.arg(python()).arg(&script).arg(&victim).args(["told", "rec/asked.pickle", "--"]);
    run.args([
        "--token=tiger1",
        "--api-key",
        "tiger2",
        "--password",
        "tiger3",
        "WANDB_API_KEY=tiger4",
        "hf_Tiger5Tiger5Tiger5",
    ]);
    run.arg("https://me:tiger6@example.invalid/x").current_dir(folder.path());
    run.env("XDG_CACHE_HOME", support::cache()).env("STRANDLINE_TAIL", folder.path()).stdin(Stdio::null());
    run.env("STRANDLINE_SIM_TOTAL", (2u64 << 30).to_string());
    let ran = run.output().expect("it starts");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "done\n");

    // What it wanted to be overwritten is as it was, and it was said why.
    assert_eq!(std::fs::read_to_string(&victim).expect("it is there"), "precious\n");
    let refused = said.lines().filter(|l| l.contains("the snapshot that the job asked for was not written"));
    assert_eq!(refused.count(), 3, "{said}");
    assert!(folder.join("rec/asked.pickle").is_file(), "one below the folder is made: {said}");
    assert!(said.contains("log failed"), "an account is not kept through a link: {said}");
    assert!(std::fs::symlink_metadata(folder.join("rec/alerts.jsonl")).expect("the link").is_symlink());

    // A redirect is no delivery, and is not followed.
    assert!(said.contains("webhook to 127.0.0.1:") && said.contains("redirect (status 302)"), "{said}");
    assert_eq!(followed.load(Ordering::SeqCst), 0);

    // Every door.
    is_inert("run", &ran.stderr);
    let fired = std::fs::read(folder.join("fired")).expect("fired");
    assert!(fired.ends_with(b"}\n"), "a line: {:?}", String::from_utf8_lossy(&fired));
    is_inert("exec", &fired);
    for line in String::from_utf8(fired).expect("UTF-8").lines() {
        is_inert_inside("exec", &serde_json::from_str(line).expect("a line is a verdict"));
    }
    is_inert("metrics", &std::fs::read(folder.join("figures.prom")).expect("figures"));
    let recordings = folder.files(".strand");
    let [recording] = recordings.as_slice() else { panic!("one recording: {recordings:?}") };
    let recording = recording.to_str().expect("UTF-8");
    let doors: [&[&str]; 15] = [
        &["report", recording],
        &["report", recording, "--share"],
        &["report", recording, "--format", "json"],
        &["report", recording, "--format", "html"],
        &["report", recording, "--format", "html", "--share"],
        &["diff", recording, recording, "--format", "json"],
        &["report", recording, "--format", "github"],
        &["report", recording, "--format", "sarif"],
        &["report", recording, "--format", "junit"],
        &["export", recording, "--format", "folded"],
        &["export", recording, "--format", "speedscope"],
        &["export", recording, "--format", "perfetto"],
        &["dump", recording],
        &["dump", recording, "--format", "json"],
        &["report", "rec", "--format", "json", "--share"],
    ];
    for words in doors {
        let door = words.join(" ");
        let out = output(&folder, words);
        assert!(out.status.success(), "{door}: {}", String::from_utf8_lossy(&out.stderr));
        is_inert(&door, &out.stdout);
        is_inert(&door, &out.stderr);
        if door.ends_with("json") {
            for line in String::from_utf8_lossy(&out.stdout).lines().filter(|_| door.starts_with("dump")) {
                is_inert_inside(&door, &serde_json::from_str(line).expect("JSON"));
            }
        }
        if door.contains("html") {
            is_inert_page(&door, &String::from_utf8_lossy(&out.stdout));
        }
    }
    // Names that a template or a script would evaluate are texts like any other.
    let folded = output(&folder, &["export", recording, "--format", "folded"]).stdout;
    let page = output(&folder, &["report", recording, "--format", "html"]).stdout;
    for (door, bytes) in [("folded", folded), ("page", page)] {
        let text = String::from_utf8(bytes).expect("UTF-8");
        for name in ["alert(2)//", "{{7*7}}"] {
            assert!(text.contains(name), "{door}: {name} is there");
        }
    }
    let other = root().join("tests/golden/snapshots/ref_plain.pickle");
    let diff = output(&folder, &["diff", other.to_str().expect("UTF-8"), recording]);
    assert!(String::from_utf8_lossy(&diff.stdout).contains("PWNED"), "its lines are in it: {diff:?}");
    is_inert("diff", &[diff.stdout, diff.stderr].concat());
    for entry in folder.files("") {
        if entry.to_string_lossy().contains("/bundle-") && !entry.ends_with("snapshot.pickle") {
            is_inert(&entry.display().to_string(), &std::fs::read(&entry).expect("a file"));
        }
    }
    let snapshot = output(&folder, &["snapshot", recording, "--format", "json", "-o", "s.json"]);
    assert!(snapshot.status.success(), "{}", String::from_utf8_lossy(&snapshot.stderr));
    let snapshot: Value =
        serde_json::from_slice(&std::fs::read(folder.join("s.json")).expect("made")).expect("JSON");
    is_inert_inside("snapshot", &snapshot);

    // What is secret in its command is neither in the recording nor in what is made of it.
    let header = std::fs::read(recording).expect("the recording");
    let page = output(&folder, &["report", recording, "--format", "html"]).stdout;
    for (what, bytes) in [("the recording", header.as_slice()), ("the page", &page), ("the run", &ran.stderr)]
    {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.to_lowercase().contains("tiger"), "{what} tells a secret");
    }
    assert!(String::from_utf8_lossy(&page).contains("--token=***"), "that there was one stays");
}

/// A page whose data is inert, and which may run its own script alone.
#[track_caller]
fn is_inert_page(door: &str, page: &str) {
    let policy = page.find(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-",
    );
    let first = page.find("<script").expect("a script");
    assert!(policy.is_some_and(|at| at < first), "{door}: the policy comes before what it is about");
    assert!(!page.contains("unsafe-inline"), "{door}");
    assert_eq!(page.matches("<script").count(), 2, "{door}: its data and its script");
    for planted in ["<script>alert", "<img", "<b>phase", "</script><script>"] {
        assert!(!page.contains(planted), "{door}: {planted}");
    }
}

#[test]
fn a_page_replaces_a_link_and_never_writes_through_it() {
    let folder = Folder::new("hostile-link");
    let victim = folder.join("victim");
    std::fs::write(&victim, "precious\n").expect("a file");
    let recording = root().join("tests/recordings/v1-plain.strand");
    let recording = recording.to_str().expect("UTF-8");
    for (name, words) in [
        ("page.html", &["report", recording, "--html=page.html"][..]),
        ("report.txt", &["report", recording, "-o", "report.txt"]),
        ("s.pickle", &["snapshot", recording, "-o", "s.pickle"]),
    ] {
        let words: Vec<&str> = match name {
            "page.html" => vec!["report", "--html=page.html", recording],
            _ => words.to_vec(),
        };
        symlink(&victim, folder.join(name)).expect("a link");
        let out = output(&folder, &words);
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(std::fs::read_to_string(&victim).expect("it is there"), "precious\n", "{name}");
        let made = std::fs::symlink_metadata(folder.join(name)).expect("it was made");
        assert!(made.is_file() && made.mode() & 0o777 == 0o600, "{name}: {made:?}");
    }
    let out = output(&folder, &["report", recording, "-o", "/dev/stdout"]);
    assert!(out.status.success() && out.stdout.starts_with(b"strandline: "), "{:?}", out);
}

/// Without HOME the libraries go to the temporary folder, where another user may have been before.
#[test]
fn a_cache_that_somebody_else_may_have_made_is_not_used() {
    let folder = Folder::new("hostile-cache");
    let user = std::fs::metadata(folder.path()).expect("ours").uid();
    let base = folder.join(&format!("strandline-{user}"));
    let library = || {
        let mut doctor = Command::new(command());
        doctor
            .args(["doctor", "--library"])
            .env_remove("HOME")
            // Relative, so that it is no place; but whoever names one does not get root's folder for all users.
            .env("XDG_CACHE_HOME", "nowhere")
            .env_remove("STRANDLINE_CACHE")
            .env("TMPDIR", folder.path());
        doctor.stdin(Stdio::null()).output().expect("the command starts")
    };
    let planted = folder.join("planted");
    std::fs::create_dir(&planted).expect("a folder");
    symlink(&planted, &base).expect("a link");
    let out = library();
    assert_eq!(
        (out.status.code(), out.stdout.len()),
        (Some(1), 0),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(std::fs::read_dir(&planted).expect("the folder").count(), 0, "nothing was put there");
    std::fs::remove_file(&base).expect("the link");
    // Ours, and open to others: what lies in it may be theirs.
    std::fs::create_dir(&base).expect("a folder");
    make_world_readable(&base);
    assert_eq!(library().status.code(), Some(1));
    std::fs::remove_dir(&base).expect("it is empty");
    let out = library();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let library = String::from_utf8(out.stdout).expect("UTF-8");
    assert!(Path::new(library.trim_end()).starts_with(&base), "{library}");
    assert_eq!(std::fs::metadata(&base).expect("made").mode() & 0o777, 0o700);
}

fn make_world_readable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("ours");
}

#[test]
fn whatever_the_umask_folders_and_files_are_the_owners_alone() {
    let folder = Folder::new("hostile-umask");
    let line = format!(
        "umask 0; {0} run -o a/b/rec -- true && exec {0} env -o a/c/d --format docker",
        command().display()
    );
    let mut run = Command::new("sh");
    run.args(["-c", &line])
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .stdin(Stdio::null());
    let out = run.output().expect("sh starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut folders = vec![folder.join("a"), folder.join("cache")];
    let mut seen = 0;
    while let Some(path) = folders.pop() {
        let meta = std::fs::symlink_metadata(&path).expect("it is there");
        assert_eq!(meta.mode() & 0o022, 0, "{}", path.display());
        if meta.is_dir() {
            seen += 1;
            assert_eq!(meta.mode() & 0o777, 0o700, "{}", path.display());
            folders.extend(std::fs::read_dir(&path).expect("a folder").flatten().map(|e| e.path()));
        }
    }
    assert!(seen >= 5, "{seen}");
}
