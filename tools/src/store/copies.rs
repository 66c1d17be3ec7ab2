//! Where copies lie while they are read or sent.

use crate::error::{Error, status};
use crate::files;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of our own for copies.
pub(super) fn new_folder() -> Result<PathBuf, Error> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("strandline-store-{}-{}-{number}", files::user(), std::process::id());
    let folder = std::env::temp_dir().join(name);
    files::new_folder(&folder).map_err(|e| no_room(&folder, e))?;
    Ok(folder)
}

/// What a copy's folder said no to.
pub(super) fn no_room(path: &Path, e: io::Error) -> Error {
    Error::io("cannot keep a copy", path, e)
        .hint("set TMPDIR to the folder for copies while they are read or sent")
        .status(status::USAGE)
}
