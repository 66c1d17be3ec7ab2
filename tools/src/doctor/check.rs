//! What a check answers, and what is checked.

use crate::job::Job;
use std::path::PathBuf;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grade {
    /// As it should be.
    Good,
    /// The job is seen, but less of it, or something is odd.
    Note,
    /// The job would not be seen.
    Bad,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) grade: Grade,
    /// What was looked at; one word.
    pub(super) about: &'static str,
    /// What was found.
    pub(super) found: String,
    /// What to do about it.
    pub(super) fix: Option<String>,
}

impl Check {
    pub(super) fn good(about: &'static str, found: impl Into<String>) -> Check {
        Check { grade: Grade::Good, about, found: found.into(), fix: None }
    }

    pub(super) fn note(about: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { grade: Grade::Note, about, found: found.into(), fix: Some(fix.into()) }
    }

    pub(super) fn bad(about: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { grade: Grade::Bad, about, found: found.into(), fix: Some(fix.into()) }
    }
}

/// The job that is asked about.
pub(super) struct Patient {
    pub(super) job: Job,
    /// The python that it runs, where that can be told.
    pub(super) python: Option<PathBuf>,
}
