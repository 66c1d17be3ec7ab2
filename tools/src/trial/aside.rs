//! Attempts whose output is put aside, each in a folder of its own that goes afterwards.

use super::needs::{Attempt, Tried, attempt};
use crate::error::Error;
use crate::simulate::Environment;
use crate::{files, job};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
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
pub(crate) fn aside(
    simulated: &Environment,
    what: Attempt<'_>,
    keep: bool,
) -> Result<(Tried, Vec<String>), Error> {
    let folder = what.folder.clone();
    let fail = |e| Error::io("cannot make", &folder, e);
    files::new_folder(&folder).map_err(fail)?;
    let printed =
        files::Folder::open(&folder).and_then(|f| f.create_new(OsStr::new(PRINTED))).map_err(fail)?;
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
}

impl RunsFolder {
    /// Makes it.
    ///
    /// # Errors
    /// It cannot be made, or holds something.
    pub(crate) fn make(asked: Option<&Path>, name: &str) -> Result<RunsFolder, Error> {
        if let Some(path) = asked {
            return Ok(RunsFolder { path: job::create_folder(Some(path), name)?, keep: true });
        }
        let path = files::temporary().join(format!("trial-{}", std::process::id()));
        let made = files::make_folder(&files::temporary()).and_then(|()| files::new_folder(&path));
        made.map_err(|e| Error::io("cannot make", &path, e).hint("give a folder: -o DIR"))?;
        Ok(RunsFolder { path, keep: false })
    }
}

impl Drop for RunsFolder {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
