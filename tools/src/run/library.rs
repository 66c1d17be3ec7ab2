//! The library that is preloaded into a job, for as long as the job runs.

use crate::embedded;
use crate::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use strandline::format::env;

/// Where it lies.
pub(crate) struct Library {
    path: PathBuf,
    /// A folder of this run alone, where no other will do; it goes with this.
    own: PathBuf,
}

impl Library {
    /// Puts it into the cache; where that cannot be written, or nothing may be executed from there, below the folder of the recordings.
    ///
    /// # Errors
    /// It can lie nowhere; the folder of the recordings is gone then.
    pub(crate) fn place(recordings: &Path) -> Result<Library, Error> {
        let mut library = Library { path: PathBuf::new(), own: recordings.join(".strandline") };
        match embedded::preload_or_in(&library.own) {
            Ok(path) => library.path = path,
            Err(why) => {
                drop(library);
                let _ = fs::remove_dir(recordings);
                let next = "give a folder that can be written and is not mounted noexec: -o DIR, or";
                return Err(why.hint(format!("{next} {}=DIR", env::CACHE)));
            }
        }
        Ok(library)
    }

    /// Its absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.own);
    }
}
