//! Jobs that are forked from a process which has imported PyTorch, before any of them calls CUDA: most of what a small job takes is that import.

use super::{Job, Ran, command, root, without};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// A process that runs `tests/python/imported.py`.
struct Imported {
    process: Mutex<Child>,
    /// What jobs print, and how they ended; the process removes it.
    said: PathBuf,
}

/// Where its words go that runs below `strandline run`, and what its jobs record.
const WORDS: &str = "words";
const RECORDINGS: &str = "recordings";

impl Imported {
    /// Starts it with a Python: what begins its command is made of the folder that is its own.
    fn start(begins: impl FnOnce(&Path) -> Command) -> Imported {
        let said =
            std::env::temp_dir().join(format!("strandline-imported-{}-{}", std::process::id(), next()));
        std::fs::create_dir_all(&said).expect("a temporary folder");
        let mut python = begins(&said);
        python.arg("-u").arg(root().join("tests/python/imported.py")).arg(&said);
        let process = python.stdin(Stdio::piped()).spawn().expect("it starts");
        Imported { process: Mutex::new(process), said }
    }

    /// The one of this test program that is called so, for a Python.
    fn of(python: &OsStr, name: &OsStr, begins: impl FnOnce(&Path) -> Command) -> Arc<Imported> {
        type All = HashMap<(OsString, OsString), Arc<Imported>>;
        static ALL: OnceLock<Mutex<All>> = OnceLock::new();
        let mut all = locked(ALL.get_or_init(Mutex::default));
        let started = || Arc::new(Imported::start(begins));
        all.entry((python.to_owned(), name.to_owned())).or_insert_with(started).clone()
    }

    /// The one for a Python and a preload.
    fn with(python: &OsStr, preload: &OsStr) -> Arc<Imported> {
        Imported::of(python, preload, |_| {
            let mut command = Command::new(python);
            without(&mut command, &["STRANDLINE_"]);
            command.env("LD_PRELOAD", preload);
            command
        })
    }

    /// Runs a script with its arguments to its end, at most so long.
    fn run(
        &self,
        argv: &[OsString],
        env: &[(OsString, Option<OsString>)],
        folder: &Path,
        most: Duration,
    ) -> Output {
        let text = |s: &OsString| s.to_str().expect("UTF-8").to_string();
        let number = next();
        let [out, err, status] =
            ["out", "err", "status"].map(|name| self.said.join(format!("{number}.{name}")));
        let env: Value = env
            .iter()
            .map(|(n, v)| (text(n), v.as_ref().map(text).into()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let argv: Vec<String> = argv.iter().map(text).collect();
        let request =
            json!({ "argv": argv, "env": env, "folder": folder, "out": out, "err": err, "status": status });
        let process = locked(&self.process);
        writeln!(process.stdin.as_ref().expect("piped"), "{request}").expect("it reads");
        drop(process);
        let until = Instant::now() + most;
        while !status.exists() {
            let ended = locked(&self.process).try_wait().expect("it can be asked");
            let words = || std::fs::read_to_string(self.said.join(WORDS)).unwrap_or_default();
            let goes_on = ended.is_none() && Instant::now() < until;
            assert!(goes_on, "the job hangs: {argv:?} {ended:?} {}", words());
            std::thread::sleep(Duration::from_millis(5));
        }
        let read = |path: PathBuf| std::fs::read(path).expect("a file");
        let raw = String::from_utf8(read(status)).expect("a number").parse().expect("a number");
        Output { status: ExitStatus::from_raw(raw), stdout: read(out), stderr: read(err) }
    }
}

/// Runs `python SCRIPT CASE` to its end, below the one `strandline run` that all such jobs of a test program have: what it did, and its recording.
pub(crate) fn in_one_run(python: &Path, script: &Path, case: &str, folder: &Path) -> (Output, PathBuf) {
    let imported = Imported::of(python.as_os_str(), "strandline run".as_ref(), |said| {
        let mut run = Command::new(command());
        without(&mut run, &["STRANDLINE_"]);
        run.arg("run").arg("-o").arg(said.join(RECORDINGS)).arg("--").arg(python);
        // Its last words are that nothing was recorded: by then the folder is gone.
        run.stderr(std::fs::File::create(said.join(WORDS)).expect("a file"));
        run.env("FAKE_CUDA_TOTAL", "24GiB").env("XDG_CACHE_HOME", super::cache());
        run
    });
    let recording = imported.said.join(RECORDINGS).join(format!("{}-{case}.strand", next()));
    let env = [("STRANDLINE_OUT".into(), Some(recording.clone().into()))];
    let argv = [script.as_os_str().to_owned(), case.into()];
    (imported.run(&argv, &env, folder, Duration::from_secs(600)), recording)
}

/// Numbers, each once.
fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Relaxed)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Job {
    /// Runs `python -u SCRIPT ARGUMENT…` to its end in a child of a process that has imported PyTorch: where it is not the beginning of a process that counts.
    /// It has none of our own lines: its stderr is another one than there was when the library was loaded, which may be anybody's.
    /// An allocator that is configured is that of a process of its own: PyTorch reads what it is told as it is loaded.
    pub(crate) fn run_imported(self) -> Ran {
        let configures = |(name, value): (&OsStr, Option<&OsStr>)| {
            name.to_string_lossy().ends_with("ALLOC_CONF") && value.is_some_and(|v| !v.is_empty())
        };
        if self.command.get_envs().any(configures) {
            return self.run();
        }
        let command = &self.command;
        let argv: Vec<OsString> =
            command.get_args().skip_while(|a| *a == "-u").map(OsStr::to_owned).collect();
        let env: Vec<_> = command.get_envs().map(|(n, v)| (n.to_owned(), v.map(OsStr::to_owned))).collect();
        let preload = env.iter().find(|(n, _)| n == "LD_PRELOAD").and_then(|(_, v)| v.clone());
        let imported = Imported::with(command.get_program(), &preload.unwrap_or_default());
        let output = imported.run(&argv, &env, &self.folder, Duration::from_secs(600));
        Ran { output, folder: self.folder }
    }
}
