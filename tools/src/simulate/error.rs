//! What can go wrong while an environment is made: what, where, and what to do next.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;
use strandline::format::env;

/// Why an environment could not be provided, in words.
#[derive(Debug)]
pub(crate) struct Error(String);

impl Error {
    /// This machine or this request is not catered for.
    pub(super) fn unsupported(why: impl Into<String>) -> Error {
        Error(why.into())
    }

    /// A file or directory refused. What an environment is made in belongs to one user, as does the environment.
    pub(super) fn io(what: &str, path: &Path, why: io::Error) -> Error {
        let advice = match why.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("\n  set {} to a folder of your own with 2 GB of room", env::CACHE)
            }
            _ => String::new(),
        };
        Error(format!("{what} {}: {why}{advice}", path.display()))
    }

    /// A library cannot be understood.
    pub(super) fn library(path: &Path, why: impl Display, advice: &str) -> Error {
        Error(format!("{}: {why}; {advice}", path.display()))
    }

    /// A program that was run failed: what it was for, how it ended, and its last lines.
    pub(super) fn tool(what: &str, ended: &str, tail: &str, advice: &str) -> Error {
        let lines: String = tail.lines().map(|line| format!("\n    {line}")).collect();
        let advice = if advice.is_empty() { String::new() } else { format!("\n  {advice}") };
        Error(format!("{what} failed: {ended}{lines}{advice}"))
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
