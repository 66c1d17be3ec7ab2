//! What can go wrong while an environment is made: what, where, and what to do next.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why an environment could not be provided.
#[derive(Debug)]
pub(crate) enum Error {
    /// A file or directory refused.
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A program that was run failed.
    Tool {
        /// What it was run for.
        what: String,
        /// How it ended.
        ended: String,
        /// Its last lines.
        tail: String,
        /// What to do next.
        advice: &'static str,
    },
    /// A library cannot be understood.
    Library {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: String,
        /// What to do next.
        advice: &'static str,
    },
    /// This machine or this request is not catered for.
    Unsupported(String),
}

impl Error {
    /// A file or directory refused.
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io { what, path: path.to_path_buf(), source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { what, path, source } => write!(f, "{what} {}: {source}", path.display()),
            Error::Tool { what, ended, tail, advice } => {
                write!(f, "{what} failed: {ended}")?;
                for line in tail.lines() {
                    write!(f, "\n    {line}")?;
                }
                if advice.is_empty() { Ok(()) } else { write!(f, "\n  {advice}") }
            }
            Error::Library { path, why, advice } => write!(f, "{}: {why}; {advice}", path.display()),
            Error::Unsupported(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
