//! The folders that an environment is made in.

use super::error::{self, Error};
use crate::files;
use std::path::Path;

/// Makes a folder and what leads to it, where it is not there.
///
/// # Errors
/// It cannot be made.
pub(super) fn make_directory(path: &Path) -> Result<(), Error> {
    files::make_folder(path).map_err(|source| error::io("cannot make the directory", path, source))
}
