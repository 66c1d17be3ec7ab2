//! What can go wrong while an environment is made: what, where, and what to do next.

use std::fmt::Display;
use std::io;
use std::path::Path;
use strandline::format::env;

/// Why an environment could not be provided, in words.
pub(crate) type Error = String;

/// A file or directory refused. What an environment is made in belongs to one user, as does the environment.
pub(super) fn io(what: &str, path: &Path, why: io::Error) -> Error {
    let advice = match why.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("\n  set {} to a folder of your own with 2 GB of room", env::CACHE)
        }
        _ => String::new(),
    };
    format!("{what} {}: {why}{advice}", path.display())
}

/// A library cannot be understood.
pub(super) fn library(path: &Path, why: impl Display, advice: &str) -> Error {
    format!("{}: {why}; {advice}", path.display())
}

/// A program that was run failed: what it was for, how it ended, and its last lines.
pub(super) fn tool(what: &str, ended: &str, tail: &str, advice: &str) -> Error {
    let lines: String = tail.lines().map(|line| format!("\n    {line}")).collect();
    let advice = if advice.is_empty() { String::new() } else { format!("\n  {advice}") };
    format!("{what} failed: {ended}{lines}{advice}")
}
