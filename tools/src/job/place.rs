//! Where a run's recordings go: a folder of its own, created exclusively, never one that exists.

use crate::error::{Error, status};
use crate::recording::HOME;
use crate::{files, say};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Creates the folder of a run and returns its absolute path. `asked` is the user's `-o`: it may exist only if it is
/// empty. Without it: `strandline/<name>-<MMDD-HHMM>`, with `-2`, `-3` … where that is taken; below the temporary
/// folder where the current one cannot be written, since a job that waited for hours must not fail of that.
///
/// # Errors
/// The folder cannot be created; with the status of bad usage, where what was asked for is no folder, or holds something.
pub(crate) fn create(asked: Option<&Path>, name: &str) -> Result<PathBuf, Error> {
    let made = match asked {
        Some(path) => create_asked(path)?,
        None => create_home(name)
            .or_else(|refused| create_named(&files::temporary(), name, &now()).map_err(|_| refused))?,
    };
    std::path::absolute(&made).map_err(|e| Error::io("cannot find", made, e))
}

fn create_asked(path: &Path) -> Result<PathBuf, Error> {
    let fail = |e| refused(path, e);
    if let Some(parent) = path.parent() {
        files::make_folder(parent).map_err(fail)?;
    }
    match files::new_folder(path) {
        Ok(()) => Ok(path.into()),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            let mut entries = std::fs::read_dir(path).map_err(fail)?;
            if entries.next().is_none() {
                return Ok(path.into());
            }
            let what =
                format!("{} exists and is not empty; recordings are never overwritten", say::path(path));
            Err(Error::usage(what, "give another folder with -o"))
        }
        Err(e) => Err(fail(e)),
    }
}

/// A folder below `strandline`, which git leaves out: what a job reads of the state of its checkout stays the same.
fn create_home(name: &str) -> Result<PathBuf, Error> {
    let home = Path::new(HOME);
    let is_new = !home.exists();
    let made = create_named(home, name, &now())?;
    if is_new {
        // A file that cannot be written costs no recording.
        let _ = files::write(&home.join(".gitignore"), b"*\n");
    }
    Ok(made)
}

fn create_named(home: &Path, name: &str, time: &str) -> Result<PathBuf, Error> {
    let fail = |e| refused(home, e);
    files::make_folder(home).map_err(fail)?;
    let mut number = 1;
    loop {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = home.join(format!("{name}-{time}{suffix}"));
        match files::new_folder(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(e) => return Err(fail(e)),
        }
    }
}

/// A folder that cannot be made. The name may be at fault, or only the disk.
fn refused(path: &Path, why: io::Error) -> Error {
    let is_misnamed = matches!(
        why.kind(),
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::InvalidFilename
    );
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let error = Error::io("cannot create the folder of the recording", path, why)
        .hint("give a folder that can be written: -o DIR");
    if is_misnamed { error.status(status::USAGE) } else { error }
}

/// `MMDD-HHMM`, local time.
pub(crate) fn now() -> String {
    let tm = local();
    format!("{:02}{:02}-{:02}{:02}", tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min)
}

/// The day as `2026-11-22`.
pub(crate) fn today() -> String {
    let tm = local();
    format!("{}-{:02}-{:02}", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday)
}

fn local() -> libc::tm {
    // SAFETY: time accepts a null pointer; localtime_r writes the struct it is given, and all-zero is a valid `tm`.
    unsafe {
        let seconds = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&seconds, &mut tm);
        tm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_never_shared_and_never_overwritten() {
        let home = std::env::temp_dir().join(format!("strandline-place-{}", std::process::id()));
        let made: Vec<_> = (0..3).map(|_| create_named(&home, "train", "1120-0312").unwrap()).collect();
        assert_eq!(made, ["train-1120-0312", "train-1120-0312-2", "train-1120-0312-3"].map(|n| home.join(n)));
        let asked = home.join("a/b");
        assert_eq!(create_asked(&asked).unwrap(), asked);
        assert_eq!(create_asked(&asked).unwrap(), asked, "an empty one may be given");
        std::fs::write(asked.join("x"), "").unwrap();
        let error = create_asked(&asked).unwrap_err();
        assert!(error.to_string().contains("never overwritten"), "{error}");
        assert_eq!(error.exit_status(), status::USAGE);
        std::fs::remove_dir_all(&home).unwrap();
    }
}
