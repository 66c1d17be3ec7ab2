//! The trial: the job's own python makes one tensor with the preload in it, and the recording is looked for.

use super::check::{Check, Patient};
use crate::job::{Job, find};
use crate::probe::{self, Torch};
use crate::{embedded, environment, files, recording, say};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use strandline::format::env;

/// The python that a job runs: itself, or the one that its first line names (`torchrun`, `accelerate`).
pub(super) fn python_of(job: &Job) -> Option<PathBuf> {
    let path = job.find()?;
    if job.is_python() {
        return Some(path);
    }
    let mut head = Vec::new();
    fs::File::open(&path).ok()?.take(512).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let mut words = line.split(|b| *b == b' ').filter(|w| !w.is_empty()).map(OsStr::from_bytes);
    let interpreter = words.next()?;
    let program = if interpreter.as_bytes().ends_with(b"/env") { words.next()? } else { interpreter };
    let job = Job { program: program.into(), arguments: Vec::new() };
    if job.is_python() { find(program) } else { None }
}

/// Makes the trial.
pub(super) fn run(patient: &Patient) -> Option<Check> {
    let python = patient.python.as_deref()?;
    let library = match embedded::preload() {
        Ok(library) => library,
        Err(e) => {
            let (what, next) = e.parts();
            return Some(Check::bad("library", what, next.unwrap_or_default()));
        }
    };
    if !matches!(probe::torch(python), Torch::Cuda(_)) {
        return Some(load(python, &library));
    }
    let folder = std::env::temp_dir().join(format!("strandline-doctor-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    if let Err(e) = files::new_folder(&folder) {
        return Some(Check::note("trial", format!("{}: {e}", say::path(&folder)), "set TMPDIR"));
    }
    let check = record(python, &library, &folder);
    let _ = fs::remove_dir_all(&folder);
    Some(check)
}

/// Only loads the library.
fn load(python: &Path, library: &Path) -> Check {
    let (ok, said) = attempt(python, library, "pass", Path::new("/"));
    if ok && !said.contains("cannot be preloaded") {
        return Check::good("trial", "the library loads in this python");
    }
    Check::bad(
        "trial",
        format!("the library does not load: {}", last_line(&said)),
        "is this a 64-bit python with glibc?",
    )
}

/// Makes a tensor and looks for the recording of it.
fn record(python: &Path, library: &Path, folder: &Path) -> Check {
    let (ok, said) = attempt(python, library, "import torch; torch.empty(1, device='cuda')", folder);
    let seen = !recording::list(folder).is_empty();
    let place = if environment::is_simulated(python) { " on the simulated GPU" } else { "" };
    match (ok, seen) {
        (true, true) => {
            Check::good("trial", format!("this python made a tensor{place}, and it was recorded"))
        }
        (true, false) => Check::bad(
            "trial",
            format!("a tensor was made but not recorded: {}", last_line(&said)),
            "please report this, with the output of: strandline doctor",
        ),
        (false, _) => Check::bad(
            "trial",
            format!("this python cannot make a tensor on the GPU: {}", last_line(&said)),
            "if it fails without strandline too, torch or the driver is the cause",
        ),
    }
}

fn attempt(python: &Path, library: &Path, code: &str, folder: &Path) -> (bool, String) {
    let mut command = Command::new(python);
    command.args(["-c", code]).env("LD_PRELOAD", library).env(env::OUT, folder).stdin(Stdio::null());
    match command.output() {
        Ok(output) => (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(e) => (false, e.to_string()),
    }
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("it printed nothing")
}
