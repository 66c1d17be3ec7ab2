//! For tests that run a job under the preload: the library, a Python with torch on a simulated device, the run itself.

#![allow(dead_code, reason = "every test binary uses its own part")]

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use strandline::event::{Body, Event, StackId};
use strandline::reader::{Batch, Reader};

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cargo() -> Command {
    let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    c.current_dir(root());
    c
}

/// `libstrandline.so`, built as it is shipped. Cargo itself tells where it lies.
pub(crate) fn preload_so() -> &'static Path {
    static SO: OnceLock<PathBuf> = OnceLock::new();
    SO.get_or_init(|| {
        built(&["build", "-p", "strandline-preload", "--profile", "preload"], |file| {
            file.ends_with("libstrandline.so")
        })
    })
}

/// Runs cargo and returns the first file of its messages that is asked for.
fn built(arguments: &[&str], wanted: impl Fn(&Path) -> bool) -> PathBuf {
    let output = cargo().args(arguments).arg("--message-format=json").output().expect("cargo starts");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let files = messages.flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default());
    let mut files = files.filter_map(|f| Some(PathBuf::from(f.as_str()?)));
    files.find(|f| wanted(f)).unwrap_or_else(|| panic!("cargo {arguments:?} built no such file"))
}

/// A Python with torch on the simulated device: `STRANDLINE_TEST_PYTHON`, or the one that the command provides.
pub(crate) fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        if let Some(p) = std::env::var_os("STRANDLINE_TEST_PYTHON").filter(|p| !p.is_empty()) {
            return p.into();
        }
        let command = ["run", "-q", "-p", "strandline-tools", "--", "simulate", "--python"];
        let output = cargo().args(command).stderr(Stdio::inherit()).output().expect("cargo starts");
        assert!(output.status.success(), "cargo {command:?} failed");
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
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
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("strandline-test-{name}-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        let shm = Path::new("/dev/shm").join(path.file_name().expect("a name"));
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
        let mut job = Job::program(folder, python());
        job.command.arg("-u").arg(root().join(script)).args(arguments);
        job
    }

    /// Any program.
    pub(crate) fn program(folder: &Folder, program: impl AsRef<OsStr>) -> Job {
        let mut command = Command::new(program);
        let ours =
            std::env::vars_os().map(|(k, _)| k).filter(|k| k.to_string_lossy().starts_with("STRANDLINE_"));
        ours.for_each(|k| {
            command.env_remove(k);
        });
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

    /// So many simulated devices, in the words of both simulators.
    pub(crate) fn devices(self, n: u32) -> Job {
        self.env("STRANDLINE_SIM_DEVICES", n.to_string()).env("FAKE_CUDA_DEVICES", n.to_string())
    }

    /// Runs it to its end. A job that hangs is killed after two minutes and fails the test.
    pub(crate) fn run(mut self) -> Ran {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the job starts");
        let deadline = Instant::now() + Duration::from_secs(120);
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

/// Everything that is in a recording.
pub(crate) struct Recording {
    /// Events in order.
    pub(crate) events: Vec<Event>,
    /// The reader, at its end: names, facts, damage.
    pub(crate) reader: Reader,
}

impl Recording {
    /// Reads a recording and its tail to the end.
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Recording {
        let mut reader = Reader::open(path).unwrap_or_else(|e| panic!("{e}"));
        let mut events = Vec::new();
        while let Some(batch) = reader.next_batch() {
            if let Batch::Events(more) = batch {
                events.extend_from_slice(more);
            }
        }
        Recording { events, reader }
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

    /// Frames of a stack as file name, line and function, innermost first.
    pub(crate) fn frames(&self, stack: StackId) -> Vec<(String, u32, String)> {
        let names = self.reader.names();
        names.frames(stack).map(|f| (f.file.clone(), f.line, f.function.clone())).collect()
    }
}
