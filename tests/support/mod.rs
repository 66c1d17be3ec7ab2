//! For tests that run a job under the preload: the library, a Python with torch on a simulated device, the run itself.

#![allow(dead_code, reason = "every test binary uses its own part")]

pub(crate) mod imported;
pub(crate) mod packages;
pub(crate) mod snapshot_rules;
pub(crate) mod surrounded;

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{OnceLock, atomic};
use std::time::{Duration, Instant};
use strandline::event::{Block, Body, Event, Item, StackId, ThreadInfo};
use strandline::reader::{Batch, Reader};

/// What lies elsewhere when a test binary was built on another machine: empty is not set.
fn elsewhere(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// The repository: `STRANDLINE_TEST_ROOT`, or where this was built.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        elsewhere("STRANDLINE_TEST_ROOT").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into())
    })
}

/// Where tests keep what is made once: `STRANDLINE_CACHE`, or below `target/`.
pub(crate) fn cache() -> PathBuf {
    elsewhere("STRANDLINE_CACHE").unwrap_or_else(|| root().join("target/strandline-cache"))
}

/// The command `strandline`: `STRANDLINE_TEST_COMMAND`, or built as it is now. It belongs to another package than the
/// tests, so cargo has not built it for them; cargo itself tells where it lies.
pub(crate) fn command() -> &'static Path {
    static COMMAND: OnceLock<PathBuf> = OnceLock::new();
    COMMAND.get_or_init(|| elsewhere("STRANDLINE_TEST_COMMAND").unwrap_or_else(build_command))
}

/// How variables begin that are of this test's package, and not of a build: with them `ring` would be built anew, and all that needs it.
pub(crate) const OF_THIS_PACKAGE: &[&str] = &["CARGO_PKG_", "CARGO_MANIFEST_"];

/// Takes the variables from a command whose names begin like these.
pub(crate) fn without(command: &mut Command, begins: &[&str]) {
    for (name, _) in std::env::vars_os() {
        if begins.iter().any(|begin| name.to_string_lossy().starts_with(begin)) {
            command.env_remove(name);
        }
    }
}

fn build_command() -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["build", "-q", "-p", "strandline-tools", "--message-format=json"]);
    without(&mut cargo, OF_THIS_PACKAGE);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("cargo starts");
    assert!(output.status.success(), "the command: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let executable = text.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "strandline")
            .then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executable.expect("cargo names the executable")
}

/// An end as a shell says it: 128 and the number of a signal.
pub(crate) fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().expect("it has ended"))
}

/// Runs the command to its end, in the tests' cache; what it says goes to our stderr. Returns its standard output.
#[track_caller]
pub(crate) fn strandline<A: AsRef<OsStr>>(arguments: &[A]) -> String {
    let mut strandline = Command::new(command());
    strandline.args(arguments).env("STRANDLINE_CACHE", cache()).env("XDG_CACHE_HOME", cache());
    let output =
        strandline.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("the command starts");
    assert!(output.status.success(), "{strandline:?}: {:?}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// `libstrandline.so`: `STRANDLINE_TEST_SO`, or the very one that the command carries.
pub(crate) fn preload_so() -> &'static Path {
    static SO: OnceLock<PathBuf> = OnceLock::new();
    SO.get_or_init(|| {
        elsewhere("STRANDLINE_TEST_SO")
            .unwrap_or_else(|| strandline(&["doctor", "--library"]).trim_end().into())
    })
}

/// `STRANDLINE_TEST_PYTHON`, or the Python that the command provides.
fn provided(words: &[&str]) -> PathBuf {
    elsewhere("STRANDLINE_TEST_PYTHON").unwrap_or_else(|| strandline(words).trim_end().into())
}

/// A Python with torch on the simulated device.
pub(crate) fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| provided(&["simulate", "--python"]))
}

/// The same with transformers and accelerate, and TRL's wheels in [`cache`]`/wheels`.
pub(crate) fn python_with_transformers() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| provided(&["simulate", "--with-transformers", "--python"]))
}

/// The same torch in a Python 3.13, provided by the command as well; `None`, and a line that says so, where this machine has none,
/// or where `STRANDLINE_TEST_PYTHON` names the one to test with.
pub(crate) fn python_3_13() -> Option<PathBuf> {
    if elsewhere("STRANDLINE_TEST_PYTHON").is_some() {
        println!("skipped on Python 3.13: STRANDLINE_TEST_PYTHON names another one");
        return None;
    }
    let home = std::env::var_os("HOME").map(|h| Path::new(&h).join(".pyenv"));
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or(home).map(|p| p.join("versions"));
    let versions = pyenv.iter().flat_map(std::fs::read_dir).flatten().flatten().map(|v| v.path().join("bin"));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let is_3_13 = |folder: &PathBuf| {
        let source = "import ensurepip, venv, sys; sys.exit(sys.version_info[:2] != (3, 13))";
        let python = Command::new(folder.join("python3")).args(["-c", source]).stderr(Stdio::null()).status();
        python.is_ok_and(|s| s.success())
    };
    let Some(folder) = versions.chain(std::env::split_paths(&on_path)).find(is_3_13) else {
        println!(
            "skipped on Python 3.13: there is no python3 of that version on the PATH, and none of pyenv's"
        );
        return None;
    };
    let path = std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&on_path)));
    let cache = cache().join("python-3.13");
    let mut simulate = Command::new(command());
    simulate.args(["simulate", "--python"]).env("PATH", path.expect("a search path"));
    simulate.env("STRANDLINE_CACHE", &cache).env("XDG_CACHE_HOME", &cache);
    let output = simulate.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("the command starts");
    assert!(output.status.success(), "{simulate:?}: {:?}", output.status);
    Some(String::from_utf8(output.stdout).expect("UTF-8").trim_end().into())
}

/// The folder of torch's libraries, in that Python.
pub(crate) fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let source =
            "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))";
        let output = Command::new(python()).args(["-c", source]).output().expect("Python starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("lib")
    })
}

/// What `strandline report --format json` says of a recording: of the run, and of its one process.
#[track_caller]
pub(crate) fn report(recording: &Path) -> Report {
    let words = ["report".as_ref(), recording.as_os_str(), "--format".as_ref(), "json".as_ref()];
    let run: Value = serde_json::from_str(&strandline(&words)).expect("JSON");
    let processes = run["processes"].as_array().expect("processes");
    assert_eq!(processes.len(), 1, "{run}");
    let process = processes[0].clone();
    Report { run, process }
}

/// A report of one process.
pub(crate) struct Report {
    /// All of it.
    pub(crate) run: Value,
    /// The process.
    pub(crate) process: Value,
}

impl Report {
    /// The verdict and its reason.
    pub(crate) fn verdict(&self) -> (&str, &str) {
        let text = |name: &str| self.run[name].as_str().unwrap_or_default();
        (text("verdict"), text("reason"))
    }

    /// Nothing was lost, nothing is damaged, and own sums are torch's.
    #[track_caller]
    pub(crate) fn whole(self) -> Report {
        let p = &self.process;
        assert_eq!((&p["events_lost"], &p["accounting_drift_bytes"]), (&0.into(), &0.into()), "{p}");
        assert_eq!(p["damage"].as_array().map(Vec::len), Some(0), "{p}");
        self
    }
}

/// A folder of its own for a test, removed when the test has passed.
pub(crate) struct Folder {
    path: PathBuf,
    /// Where tails lie: on tmpfs like the real ones, and apart from them.
    tails: PathBuf,
}

impl Folder {
    /// Makes one.
    pub(crate) fn new(name: &str) -> Folder {
        static NUMBER: atomic::AtomicU32 = atomic::AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("strandline-test-{name}-{}-{n}", std::process::id()));
        let shm = Path::new("/dev/shm").join(path.file_name().expect("a name"));
        // A test that failed in an earlier process of our number has left its own.
        [&path, &shm].into_iter().for_each(|old| drop(std::fs::remove_dir_all(old)));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        let tails = if std::fs::create_dir(&shm).is_ok() { shm } else { path.clone() };
        Folder { path, tails }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tails that jobs left behind.
    pub(crate) fn tails(&self) -> Vec<PathBuf> {
        let all = std::fs::read_dir(&self.tails).into_iter().flatten().flatten().map(|e| e.path());
        all.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("strandline-")))
            .collect()
    }

    /// A name in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Names of the files below it that end like this.
    pub(crate) fn files(&self, ending: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.path.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.to_string_lossy().ends_with(ending) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.tails);
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A job under the preload, in a folder where its recording and its tail lie.
pub(crate) struct Job {
    command: Command,
    folder: PathBuf,
}

impl Job {
    /// A Python script of the repository, with arguments.
    pub(crate) fn python<A: AsRef<OsStr>>(folder: &Folder, script: &str, arguments: &[A]) -> Job {
        Job::python_at(folder, python(), script, arguments)
    }

    /// The same with a certain Python.
    pub(crate) fn python_at<A: AsRef<OsStr>>(
        folder: &Folder,
        python: &Path,
        script: &str,
        arguments: &[A],
    ) -> Job {
        let mut job = Job::program(folder, python);
        job.command.arg("-u").arg(root().join(script)).args(arguments);
        job
    }

    /// Any program.
    pub(crate) fn program(folder: &Folder, program: impl AsRef<OsStr>) -> Job {
        let mut command = Command::new(program);
        without(&mut command, &["STRANDLINE_"]);
        command
            .current_dir(folder.path())
            .env("LD_PRELOAD", preload_so())
            .env("STRANDLINE_OUT", folder.join("recording.strand"))
            .env("STRANDLINE_TAIL", &folder.tails)
            .stdin(Stdio::null());
        Job { command, folder: folder.path().to_path_buf() }
    }

    /// Sets a variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Job {
        self.command.env(name, value);
        self
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Job {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Job {
        self.command.args(arguments);
        self
    }

    /// So many simulated devices, in the words of both simulators.
    pub(crate) fn devices(self, n: u32) -> Job {
        self.env("STRANDLINE_SIM_DEVICES", n.to_string()).env("FAKE_CUDA_DEVICES", n.to_string())
    }

    /// Runs it to its end. A job that hangs is killed after ten minutes and fails the test.
    pub(crate) fn run(self) -> Ran {
        self.run_for(0.0)
    }

    /// The same for a job that takes so many seconds where nothing else is at work.
    pub(crate) fn run_for(mut self, seconds: f64) -> Ran {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the job starts");
        let deadline = Instant::now() + Duration::from_secs(600) + Duration::from_secs_f64(seconds);
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let read = |mut pipe: Box<dyn std::io::Read + Send>| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = pipe.read_to_end(&mut text);
                text
            })
        };
        let (out, err) = (read(Box::new(out.expect("piped"))), read(Box::new(err.expect("piped"))));
        while child.try_wait().expect("the job can be waited for").is_none() {
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the job hangs: {:?}", self.command);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = child.wait().expect("the job has ended");
        let output = Output { status, stdout: out.join().expect("read"), stderr: err.join().expect("read") };
        Ran { output, folder: self.folder }
    }
}

/// A job that has ended.
pub(crate) struct Ran {
    /// Status and output.
    pub(crate) output: Output,
    folder: PathBuf,
}

impl Ran {
    /// What it wrote on stdout.
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// What it wrote on stderr.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Our lines on its stderr.
    pub(crate) fn ours(&self) -> Vec<String> {
        self.stderr().lines().filter(|l| l.starts_with("strandline: ")).map(str::to_string).collect()
    }

    /// Its stderr without our lines.
    pub(crate) fn theirs(&self) -> String {
        let text = self.stderr();
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("strandline: ")).collect();
        lines.join("\n")
    }

    /// It must have ended with 0.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Ran {
        assert!(
            self.output.status.success(),
            "{:?}\n{}\n{}",
            self.output.status,
            self.stdout(),
            self.stderr()
        );
        self
    }

    /// The one recording it made.
    pub(crate) fn recording(&self) -> PathBuf {
        self.folder.join("recording.strand")
    }
}

/// A bundle holds a report of both kinds and a snapshot that the viewer opens.
#[track_caller]
pub(crate) fn is_whole(bundle: &Path) {
    let read = |name: &str| std::fs::read(bundle.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let report: Value = serde_json::from_slice(&read("report.json")).expect("JSON");
    assert_eq!(report["schema"], 1);
    let text = String::from_utf8_lossy(&read("report.txt")).into_owned();
    assert!(["LEAK", "GROWING"].iter().any(|w| text.starts_with(&format!("strandline: {w}"))), "{text}");
    snapshot_rules::must_be_valid(&read("snapshot.pickle"));
}

/// Everything that is in a recording.
pub(crate) struct Recording {
    /// Events in order.
    pub(crate) events: Vec<Event>,
    /// Threads, in the order in which they were first seen.
    pub(crate) threads: Vec<ThreadInfo>,
    /// The reader, at its end: names, facts, damage.
    pub(crate) reader: Reader,
}

impl Recording {
    /// Reads a recording and its tail to the end.
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Recording {
        let mut reader = Reader::open(path).unwrap_or_else(|e| panic!("{e}"));
        let (mut events, mut threads) = (Vec::new(), Vec::new());
        while let Some(batch) = reader.next_batch() {
            match batch {
                Batch::Events(more) => events.extend_from_slice(more),
                Batch::Item(Item::Thread(t)) => threads.push(t),
                Batch::Item(_) => {}
            }
        }
        Recording { events, threads, reader }
    }

    /// Nothing is damaged and nothing was lost.
    #[track_caller]
    pub(crate) fn whole(self) -> Recording {
        let s = self.reader.summary();
        assert!(self.reader.damage().is_empty(), "{:?}", self.reader.damage());
        assert_eq!((s.lost, s.lost_definitions, s.unknown_records), (0, 0, 0), "{s:?}");
        self
    }

    /// A fact about the process.
    pub(crate) fn fact(&self, name: &str) -> &Value {
        self.reader.summary().facts.get(name).unwrap_or(&Value::Null)
    }

    /// Events of a kind.
    pub(crate) fn count(&self, is: impl Fn(&Body) -> bool) -> usize {
        self.events.iter().filter(|e| is(&e.body)).count()
    }

    /// Sizes that were asked for, in order.
    pub(crate) fn allocated(&self) -> Vec<u64> {
        let size = |e: &Event| match &e.body {
            Body::Alloc(b) => Some(b.size.0),
            _ => None,
        };
        self.events.iter().filter_map(size).collect()
    }

    /// The blocks that were allocated, in order.
    pub(crate) fn blocks(&self) -> Vec<&Block> {
        fn block(e: &Event) -> Option<&Block> {
            if let Body::Alloc(b) = &e.body { Some(b) } else { None }
        }
        self.events.iter().filter_map(block).collect()
    }

    /// Frames of a stack as file name, line and function, innermost first.
    pub(crate) fn frames(&self, stack: StackId) -> Vec<(String, u32, String)> {
        let names = self.reader.names();
        names.frames(stack).map(|f| (f.file.clone(), f.line, f.function.clone())).collect()
    }
}

/// The body of an HTTP request that comes in.
pub(crate) fn request_body(stream: &std::net::TcpStream) -> Vec<u8> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    body
}
