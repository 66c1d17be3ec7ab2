//! One process at a time makes things below a cache directory.

use super::error::{self, Error};
use super::progress::tell;
use crate::files::{Folder, lock};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

/// Takes the cache's lock, waiting for whoever holds it. Held until it is dropped, or until the process ends in whatever way.
pub(super) fn take(cache: &Path) -> Result<File, Error> {
    let failed = |source| error::io("cannot lock", &cache.join("lock"), source);
    let file = Folder::open(cache).and_then(|f| f.append(OsStr::new("lock"))).map_err(failed)?;
    if lock(&file, libc::LOCK_EX | libc::LOCK_NB).is_err() {
        let what = "waiting for another process that is making this environment";
        tell(format_args!("strandline: {what}\n"));
        lock(&file, libc::LOCK_EX).map_err(failed)?;
    }
    Ok(file)
}
