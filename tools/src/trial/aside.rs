//! Attempts whose output is put aside, each in a folder of its own that goes afterwards.

use super::needs::{Attempt, Tried, attempt};
use crate::error::Error;
use crate::files::{self, Folder};
use crate::{job, process};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Lines that are told of a run that failed.
const LAST_LINES: usize = 8;
/// What a run printed, in its folder.
const PRINTED: &str = "output.txt";

/// Makes an attempt's folder and runs it; what it prints goes there, and its last lines come back. The folder is removed, unless it is
/// kept.
///
/// # Errors
/// As [`attempt`]; its folder cannot be made.
pub(crate) fn aside(simulated: &Path, what: Attempt<'_>, keep: bool) -> Result<(Tried, Vec<String>), Error> {
    let folder = what.folder.clone();
    let fail = |e| Error::io("cannot make", &folder, e);
    files::new_folder(&folder).map_err(fail)?;
    let printed =
        Folder::open(&folder).and_then(|folder| folder.create_new(OsStr::new(PRINTED))).map_err(fail)?;
    let tried = attempt(simulated, Attempt { output: Some(printed), ..what })?;
    let lines = File::open(folder.join(PRINTED)).map_or_else(|_| Vec::new(), last_lines);
    if !keep {
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok((tried, lines))
}

/// The last lines of a file, without empty ones.
fn last_lines(mut file: File) -> Vec<String> {
    const MOST: i64 = 16 << 10;
    let mut bytes = Vec::new();
    let _ = file.seek(SeekFrom::End(-MOST)).or_else(|_| file.seek(SeekFrom::Start(0)));
    let _ = file.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|l| (*l).to_owned()).collect()
}

/// The folder of all runs; it is removed at the end where nobody asked for it.
pub(crate) struct RunsFolder {
    pub(crate) path: PathBuf,
    keep: bool,
    /// Held as long as it is used.
    _lock: Option<Folder>,
}

impl RunsFolder {
    /// Makes it.
    ///
    /// # Errors
    /// It cannot be made, or holds something.
    pub(crate) fn make(asked: Option<&Path>, name: &str) -> Result<RunsFolder, Error> {
        if let Some(path) = asked {
            return Ok(RunsFolder { path: job::create_folder(Some(path), name)?, keep: true, _lock: None });
        }
        let all = files::temporary();
        let fail = |e| Error::io("cannot make a folder in", &all, e).hint("give a folder: -o DIR");
        files::make_folder(&all).map_err(fail)?;
        remove_left(&all);
        let path = new_folder(&all).map_err(fail)?;
        let lock = Folder::open(&path).ok().filter(is_free);
        Ok(RunsFolder { path, keep: false, _lock: lock })
    }
}

/// What the folders of runs that nobody wants to keep begin with; the process that made it, and a number, follow.
const BEGINS: &str = "trial-";

/// Makes one that is not there yet.
fn new_folder(all: &Path) -> io::Result<PathBuf> {
    let mut number = 0;
    loop {
        let path = all.join(format!("{BEGINS}{}-{number}", std::process::id()));
        match files::new_folder(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
            made => return made.map(|()| path),
        }
    }
}

/// Takes a folder's lock, if nobody has it. It tells of processes that cannot be seen from here, in other containers.
fn is_free(folder: &Folder) -> bool {
    files::lock(folder, libc::LOCK_EX | libc::LOCK_NB).is_ok()
}

/// Removes what processes of ours have left that were ended between two runs.
fn remove_left(all: &Path) {
    // In another user's folder nothing is ours to remove.
    if Folder::private(all).is_err() {
        return;
    }
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|n| n.strip_prefix(BEGINS));
        let pid = rest.and_then(|r| r.split('-').next()).and_then(|pid| pid.parse().ok());
        let is_gone = pid.is_some_and(|pid| process::started(pid).is_none());
        // Of a link this is the link itself.
        let is_ours = entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == files::user());
        if is_gone && is_ours && Folder::open(&entry.path()).is_ok_and(|f| is_free(&f)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for RunsFolder {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_processes_left_is_removed_and_nothing_else() {
        let all = std::env::temp_dir().join(format!("strandline-left-{}", std::process::id()));
        let own = std::process::id();
        // No process has such a number.
        let gone = 1u32 << 30;
        let held = all.join(format!("trial-{gone}-9"));
        let others = [format!("trial-{own}-0"), "trial-x".into(), "else".into(), format!("trial-{gone}-9")];
        let left = [format!("trial-{gone}"), format!("trial-{gone}-3")];
        for name in others.iter().chain(&left) {
            files::make_folder(&all.join(name).join("run")).expect("a folder");
        }
        let link = all.join(format!("trial-{gone}-7"));
        std::os::unix::fs::symlink(all.join("else"), &link).expect("a link");
        let lock = Folder::open(&held).expect("the folder");
        assert!(is_free(&lock));
        remove_left(&all);
        let is_there = |name: &String| all.join(name).join("run").exists();
        assert!(others.iter().all(is_there) && !left.iter().any(is_there));
        assert!(link.is_symlink());
        assert_eq!(new_folder(&all).expect("a folder"), all.join(format!("trial-{own}-1")));
        let _ = std::fs::remove_dir_all(all);
    }
}
