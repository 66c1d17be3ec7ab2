//! Surroundings that are short of something: a job in them, bare and recorded.

use super::{Folder, Report, cache, command, python, report, root};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A C file of `tests/surroundings`, compiled.
#[track_caller]
pub(crate) fn compiled(folder: &Folder, source: &str, out: &str, options: &[&str]) -> PathBuf {
    let out = folder.join(out);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Werror", "-o"]).arg(&out).arg(root().join("tests/surroundings").join(source));
    assert!(cc.args(options).status().expect("cc starts").success());
    out
}

/// What a command did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Did {
    /// Its exit status; -1 for a signal.
    pub(crate) status: i32,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Stderr without our lines.
    pub(crate) theirs: Vec<String>,
    /// Our lines, as words.
    pub(crate) ours: String,
}

/// Runs words after some shell, in a mount namespace of its own; `None` where this machine allows none, or what the shell needs (it
/// ends with 99 then): that is said.
pub(crate) fn surrounded(folder: &Folder, setup: &str, words: &[&str]) -> Option<Did> {
    for flags in ["-m", "-Urm"] {
        let mut unshare = Command::new("unshare");
        unshare.arg(flags).args(["sh", "-c", &format!("{setup}\nexec \"$@\""), "sh"]).args(words);
        for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
            unshare.env_remove(name);
        }
        unshare.env("XDG_CACHE_HOME", cache()).current_dir(folder.path()).stdin(Stdio::null());
        let Output { status, stdout, stderr } = unshare.output().expect("unshare (util-linux) is there");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&stdout), text(&stderr));
        let is_ours = |line: &&str| line.starts_with("strandline: ") || line.starts_with("  ");
        let (ours, theirs): (Vec<&str>, Vec<&str>) = stderr.lines().partition(is_ours);
        if !stderr.contains("unshare: ") && status.code() != Some(99) {
            let ours = ours.iter().flat_map(|l| l.split_whitespace()).collect::<Vec<_>>().join(" ");
            let status = status.code().unwrap_or(-1);
            return Some(Did {
                status,
                stdout,
                theirs: theirs.iter().map(|l| l.to_string()).collect(),
                ours,
            });
        }
        eprintln!("unshare {flags}: {}", stderr.trim());
    }
    eprintln!("SKIPPED: no such surroundings can be made here");
    None
}

/// `surrounded.py` with these words, bare and under `strandline run` with these options, each after the shell: both must end alike.
/// Returns our words.
#[track_caller]
pub(crate) fn ends_as_bare(setup: &str, options: &str, words: &str) -> Option<(Folder, String)> {
    let folder = Folder::new("surrounded");
    let script = root().join("tests/python/surrounded.py");
    let (python, script) = (python().to_string_lossy(), script.to_string_lossy());
    let job: Vec<&str> = [&*python, &*script].into_iter().chain(words.split(' ')).collect();
    let bare = surrounded(&folder, setup, &job)?;
    let command = command().to_string_lossy();
    let run: Vec<&str> =
        [&*command, "run"].into_iter().chain(options.split_whitespace()).chain(["--"]).chain(job).collect();
    let recorded = surrounded(&folder, setup, &run)?;
    assert_eq!(
        (bare.status, &bare.stdout, &bare.theirs),
        (recorded.status, &recorded.stdout, &recorded.theirs),
        "{}",
        recorded.ours
    );
    assert!(bare.stdout.contains("SIGXFSZ"), "the job got to its end: {bare:?}");
    Some((folder, recorded.ours))
}

/// It is recorded to its last event. Returns its folder.
#[track_caller]
pub(crate) fn is_recorded(setup: &str, options: &str, words: &str) -> Option<Folder> {
    let (folder, ours) = ends_as_bare(setup, options, words)?;
    assert!(!ours.contains("NOTHING RECORDED") && !ours.contains("may lose"), "{ours}");
    let [recording] = &folder.files(".strand")[..] else { panic!("{:?}\n{ours}", folder.files(".strand")) };
    let report = report(recording);
    assert_eq!(report.process["ended"], "exit", "{}", report.process);
    has_everything(&report);
    Some(folder)
}

/// Every event of the job is in it, and nothing is damaged.
#[track_caller]
pub(crate) fn has_everything(report: &Report) {
    let p = &report.process;
    assert!(p["events"].as_u64().is_some_and(|n| n >= 100), "{p}");
    assert_eq!((&p["events_lost"], p["damage"].as_array().map(Vec::len)), (&0.into(), Some(0)), "{p}");
}

/// It is not recorded, for a reason that is said.
#[track_caller]
pub(crate) fn is_said(setup: &str, options: &str, words: &str, why: &[&str]) {
    if let Some((_, ours)) = ends_as_bare(setup, options, words) {
        assert!(why.iter().all(|w| ours.contains(w)), "{why:?}: {ours}");
    }
}

/// 64 MB of `/dev/shm`.
pub(crate) const SMALL_SHM: &str = "mount -t tmpfs -o size=64m none /dev/shm || exit 99";
