//! Tables in an object store, and recordings from one: a real S3 server on this machine (`tests/fleet/store.py`), which checks keys, and which
//! is slow, silent, or goes away when it is told to. And what is asked of Google's and Azure's stores.

use super::real;
use super::support::{Folder, command, packages, python, root};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The server, which ends with this.
pub(crate) struct Server {
    process: Child,
    port: u64,
    id: String,
    secret: String,
}

impl Server {
    /// Starts one whose bucket has a folder's files as `runs/run-17`.
    pub(crate) fn start(folder: &Path) -> Option<Server> {
        Server::of("store.py", folder, None)
    }

    fn of(script: &str, folder: &Path, argument: Option<&str>) -> Option<Server> {
        let moto = ["moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5"];
        let packages = packages::of_the_index("moto-5.2.5", &moto)?;
        let mut run = Command::new(python());
        run.arg(root().join("tests/fleet").join(script))
            .arg(folder)
            .args(argument)
            .env("PYTHONPATH", packages);
        let mut process = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let told: Value = serde_json::from_str(&line).expect("the server says its port");
        let text = |key: &str| told[key].as_str().expect("a text").to_owned();
        let port = told["port"].as_u64().expect("a port");
        Some(Server { process, port, id: text("id"), secret: text("secret") })
    }

    pub(crate) fn ask(&self, what: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port as u16)).expect("the server is there");
        write!(stream, "GET /-/{what} HTTP/1.0\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text.split_once("\r\n\r\n").expect("a body").1.to_owned()
    }

    /// Below `tables`: of each key its length and crc32.
    fn objects(&self) -> BTreeMap<String, (u64, u32)> {
        serde_json::from_str::<BTreeMap<String, (u64, u32)>>(&self.ask("objects"))
            .expect("JSON")
            .into_iter()
            .map(|(key, value)| (key.strip_prefix("tables/").expect("below it").to_owned(), value))
            .collect()
    }

    pub(crate) fn strandline(&self, words: &[&str]) -> Command {
        let mut run = Command::new(command());
        run.args(words).env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port));
        run.env("AWS_ACCESS_KEY_ID", &self.id).env("AWS_SECRET_ACCESS_KEY", &self.secret);
        run.env("AWS_READ_TIMEOUT", "2s").env("NO_PROXY", "127.0.0.1").stdin(Stdio::null());
        run
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.strandline(words).output().expect("the command starts")
    }

    /// What it says where it cannot go on: with status 2, and of the tables no job.
    fn refused(&self, mut run: Command) -> String {
        let output = run.output().expect("the command starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        let jobs: Vec<String> = self.objects().into_keys().filter(|key| key.starts_with("jobs/")).collect();
        assert!(jobs.is_empty(), "what is not whole is presented as a job: {jobs:?}");
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The files below a folder: of each its length and crc32.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, (u64, u32)> {
    let (mut all, mut folders) = (BTreeMap::new(), vec![folder.to_path_buf()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).expect("a file");
            let name = path.strip_prefix(folder).expect("below it").to_string_lossy().into_owned();
            all.insert(name, (bytes.len() as u64, crc32fast::hash(&bytes)));
        }
    }
    all
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn tables_and_recordings_lie_in_an_object_store_and_nothing_is_lost() {
    let Some(server) = Server::start(real()) else { return };
    let (run, tables) = ("s3://fleet/runs/run-17", "s3://fleet/tables");
    let export = ["export", "--format", "parquet", "--events", "--commit", "abc", "-o", tables, run];

    // A wrong key, and what is not there.
    let mut wrong = server.strandline(&export);
    wrong.env("AWS_SECRET_ACCESS_KEY", "wrong");
    let text = server.refused(wrong);
    assert!(text.contains(run) && text.contains("the key was refused (SignatureDoesNotMatch)"), "{text}");
    assert!(text.contains("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), "{text}");
    let mut unknown = server.strandline(&["report", run]);
    unknown.env("AWS_ACCESS_KEY_ID", "AKIANOBODY");
    let text = server.refused(unknown);
    assert!(text.contains("the key was refused (InvalidAccessKeyId)"), "{text}");
    let text = server.refused(server.strandline(&["report", "s3://nowhere/run-17"]));
    assert!(text.contains("s3://nowhere/run-17: there is no bucket nowhere"), "{text}");
    let local = real().to_str().expect("UTF-8");
    let to_nowhere = ["export", "--format", "parquet", "-o", "s3://nowhere/tables", local];
    let text = server.refused(server.strandline(&to_nowhere));
    assert!(text.contains("there is no bucket nowhere"), "{text}");
    let text = server.refused(server.strandline(&["report", "s3://fleet/runs/run-18"]));
    assert!(text.contains("s3://fleet/runs/run-18: there is no recording"), "{text}");

    // A report of it is that of the folder.
    let json = |output: Output| -> Value {
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let theirs = json(server.run(&["report", run, "--format", "json"]));
    assert_eq!(theirs, json(server.run(&["report", local, "--format", "json"])));
    let page = server.refused(server.strandline(&["report", run, "--html"]));
    assert!(page.contains("--html=FILE.html"), "{page}");

    // A server that goes away in the middle, and one that takes and does not answer.
    for mode in ["gone", "silent"] {
        server.ask(&format!("{mode}/9"));
        let text = server.refused(server.strandline(&export));
        assert!(text.contains("cannot write s3://fleet/tables/"), "{mode}: {text}");
        assert!(text.contains("the server gave an unexpected answer"), "{mode}: {text}");
        assert!(text.contains("run the same command again"), "{mode}: {text}");
        server.ask(&format!("{mode}/0"));
        let text = server.refused(server.strandline(&["report", run]));
        assert!(
            text.contains("cannot list s3://fleet/runs/run-17: the server gave an unexpected answer"),
            "{text}"
        );
        server.ask("well/0");
    }
    let before = server.objects();

    // Killed half-way.
    server.ask(&format!("silent/{}", before.len() + 12));
    let mut half = server.strandline(&export).stderr(Stdio::null()).spawn().expect("the command starts");
    let written = || server.ask("count").parse::<usize>().expect("a number");
    while written() < 12 && half.try_wait().expect("it can be asked").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    half.kill().expect("it is killed");
    half.wait().expect("it has ended");
    server.ask("well/0");
    let there = server.objects();
    assert!(there.len() >= before.len() && !there.keys().any(|key| key.starts_with("jobs/")), "{there:?}");

    // And gone on with, by a slow server: what is there is not sent again, and all is as in a folder.
    server.ask("slow/0");
    let output = server.run(&export);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains(&format!("({} were there already)", there.len())),
        "{}",
        stderr(&output)
    );
    server.ask("well/0");
    let folder = Folder::new("fleet-store");
    let place = folder.join("tables");
    let here = place.to_str().expect("UTF-8");
    let output = server.run(&[
        "export", "--format", "parquet", "--events", "--job", "run-17", "--commit", "abc", "-o", here, local,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.objects(), files(&place));
    // Rows that were not asked for again go.
    let output = server
        .run(&["export", "--format", "parquet", "--commit", "abc", "-o", tables, "--job", "run-17", local]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!server.objects().keys().any(|key| key.starts_with("events/")), "they were not asked for again");
}

/// A report, tables, and what is there is not sent again; `below` begins the address of the bucket, `settings` are those of a key.
fn round(server: &Server, below: &str, settings: &[(&str, &str)]) -> BTreeMap<String, (u64, u32)> {
    let folder = Folder::new("fleet-round");
    let ask = |words: &[&str]| -> Output {
        let output = server.strandline(words).envs(settings.iter().copied()).output();
        let output = output.expect("the command starts");
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    let report = |place: &str| ask(&["report", place, "--format", "json"]).stdout;
    let local = real().to_str().expect("UTF-8");
    assert!(report(&format!("{below}/runs/run-17")) == report(local));
    let export = |to: &str| {
        let words = ["export", "--format", "parquet", "--events", "--job", "run-17", "-o"];
        stderr(&ask(&[&words[..], &[to, local]].concat()))
    };
    let (place, tables) = (folder.join("tables"), format!("{below}/tables"));
    export(place.to_str().expect("UTF-8"));
    export(&tables);
    let there = files(&place);
    // The job's own row comes last, whatever is there.
    let said = export(&tables);
    assert!(said.contains(&format!("({} were there already)", there.len() - 1)), "{said}");
    there
}

#[test]
fn googles_store_is_asked_in_its_own_words() {
    let Some(server) = Server::of("store.py", real(), Some("google")) else { return };
    let folder = Folder::new("fleet-google");
    let address = format!("http://127.0.0.1:{}", server.port);
    let key = json!({
        "gcs_base_url": address, "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": "",
    });
    let path = folder.join("key.json");
    std::fs::write(&path, key.to_string()).expect("a file");
    let tables = round(&server, "gs://fleet", &[("GOOGLE_SERVICE_ACCOUNT", path.to_str().expect("UTF-8"))]);
    assert_eq!(server.objects(), tables);
}

#[test]
#[ignore = "needs STRANDLINE_AZURITE, the path of azurite-blob (npm install azurite)"]
fn azures_store_takes_the_same() {
    let azurite = std::env::var("STRANDLINE_AZURITE").expect("STRANDLINE_AZURITE");
    let Some(server) = Server::of("azure.py", real(), Some(&azurite)) else { return };
    let address = format!("http://127.0.0.1:{}/{}", server.port, server.id);
    let settings = [
        ("AZURE_STORAGE_ACCOUNT_NAME", server.id.as_str()),
        ("AZURE_STORAGE_ACCOUNT_KEY", &server.secret),
        ("AZURE_STORAGE_ENDPOINT", &address),
    ];
    round(&server, "az://fleet", &settings);
    let mut wrong = server.strandline(&["report", "az://fleet/runs/run-17"]);
    let output = wrong.envs(settings).env("AZURE_STORAGE_ACCOUNT_KEY", "AAAA").output();
    let text = stderr(&output.expect("the command starts"));
    assert!(text.contains("the key was refused"), "{text}");
}
