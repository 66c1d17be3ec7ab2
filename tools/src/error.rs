//! What can go wrong in the command: what, where, and what to do next; and with which status the command then ends.

use crate::say;
use std::fmt;
use std::path::{Path, PathBuf};

/// Exit statuses of our own. They are a contract (docs/verdicts.md, "Exit statuses"); a job's own status always wins.
pub(crate) mod status {
    /// Something could not be done.
    pub(crate) const FAILED: u8 = 1;
    /// Bad usage, or a recording that cannot be read.
    pub(crate) const USAGE: u8 = 2;
    /// `--fail-on-leak`, and there is one.
    pub(crate) const LEAK: u8 = 81;
    /// An alert ended the job.
    pub(crate) const ABORTED: u8 = 82;
    /// `predict`: it does not fit a card that was asked about.
    pub(crate) const DOES_NOT_FIT: u8 = 86;
    /// `--fail-on-leak`, and it could not be judged.
    pub(crate) const NOT_JUDGED: u8 = 83;
    /// `--fail-on-leak`: something grows.
    pub(crate) const GROWING: u8 = 84;
    /// `diff --fail-if-worse`, and it is.
    pub(crate) const WORSE: u8 = 85;
    /// The command was found but cannot be executed, as a shell says it.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// The command was not found, as a shell says it.
    pub(crate) const NOT_FOUND: u8 = 127;
}

/// An error of the command.
#[derive(Debug)]
pub(crate) struct Error {
    what: String,
    hint: Option<String>,
    status: u8,
}

impl Error {
    /// Something failed: `what` says what and where.
    pub(crate) fn new(what: impl Into<String>) -> Error {
        Error { what: what.into(), hint: None, status: status::FAILED }
    }

    /// What was asked for cannot be done as it stands, and what can.
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::new(what).hint(hint).status(status::USAGE)
    }

    /// The operating system said no about a path.
    pub(crate) fn io(what: &str, path: impl AsRef<Path>, source: std::io::Error) -> Error {
        let path: PathBuf = path.as_ref().into();
        // The system's number is no help beside its words.
        let source = source.to_string();
        let words = source.split(" (os error ").next().unwrap_or_default();
        Error::new(format!("{what}: {}: {words}", say::path(&path)))
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the status that the command ends with.
    pub(crate) fn status(mut self, status: u8) -> Error {
        self.status = status;
        self
    }

    /// What failed and where, and what to do next.
    pub(crate) fn parts(&self) -> (&str, Option<&str>) {
        (&self.what, self.hint.as_deref())
    }

    /// The status that the command ends with.
    pub(crate) fn exit_status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nstrandline: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
