//! One process at a time makes things below a cache directory.

use super::error::Error;
use super::progress::Progress;
use crate::files::Folder;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Held until it is dropped, or until the process ends in whatever way.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the cache's lock, waiting for whoever holds it.
    pub(super) fn take(cache: &Path, progress: &Progress) -> Result<Self, Error> {
        let path = cache.join("lock");
        let failed = |source| Error::io("cannot lock", &path, source);
        let file = Folder::open(cache).and_then(|f| f.append(OsStr::new("lock"))).map_err(failed)?;
        if flock(&file, libc::LOCK_EX | libc::LOCK_NB).is_err() {
            progress.say("waiting for another process that is making this environment");
            loop {
                match flock(&file, libc::LOCK_EX) {
                    Ok(()) => break,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(Lock { _file: file })
    }
}

fn flock(file: &File, operation: i32) -> std::io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed; flock takes no pointer.
    match unsafe { libc::flock(file.as_raw_fd(), operation) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
