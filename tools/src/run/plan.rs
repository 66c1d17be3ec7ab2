//! A job that is to be run, and what came of it.

use super::tails;
use crate::alert::Settings;
use crate::job::{Job, Seen, Variable};
use crate::ship;
use std::fs::File;
use std::path::PathBuf;

/// How a job is run; what `run` and `demo` have in common.
pub(crate) struct Plan {
    /// The job.
    pub(crate) job: Job,
    /// The new folder that its recordings go to.
    pub(crate) folder: PathBuf,
    /// More variables for it.
    pub(crate) variables: Vec<Variable>,
    /// When to alert while it runs, and what to do then.
    pub(crate) alerts: Settings,
    /// Where recordings are sent while it runs.
    pub(crate) ship: Option<ship::Settings>,
    /// Nothing is said at the start.
    pub(crate) quiet: bool,
    /// Where what the job prints goes, and then nobody is alerted; `None`: where ours goes.
    pub(crate) output: Option<File>,
    /// Nothing is read or printed on the standard streams once the job runs, so that what the job closes is closed.
    pub(crate) lets_go: bool,
}

/// What came of it.
pub(crate) struct Outcome {
    /// How the job ended.
    pub(crate) seen: Seen,
    /// Its recordings.
    pub(crate) recordings: Vec<PathBuf>,
    /// An alert of ours ended it.
    pub(crate) aborted: bool,
    /// The tails of its processes.
    pub(crate) tails: tails::Kept,
}
