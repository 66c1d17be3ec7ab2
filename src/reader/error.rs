//! Why a recording cannot be read.

use crate::event::printable;
use crate::format::header::HeaderError;
use std::path::PathBuf;
use std::{fmt, io};

/// Why there is nothing to read.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be opened or read.
    Io(PathBuf, io::Error),
    /// It is no recording, or none that this version reads.
    Header(PathBuf, HeaderError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(path, e) => write!(f, "{}: {e}", printable(&path.to_string_lossy())),
            Error::Header(path, e) => write!(f, "{}: {e}", printable(&path.to_string_lossy())),
        }
    }
}

impl std::error::Error for Error {}
