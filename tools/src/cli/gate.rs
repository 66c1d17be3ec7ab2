//! What fails a command: options of `run` and `report`.

use crate::analyze;
use crate::error::Error;
use crate::rate::Threshold;
use clap::Args;
use std::path::PathBuf;

/// Which findings count, and whether they fail the command.
#[derive(Args, Debug)]
pub(crate) struct Gate {
    /// End with 81 where there is a leak, 84 where something grows, 83 where it could not be judged (`run`: if the job ended with 0)
    #[arg(long)]
    pub(crate) fail_on_leak: bool,
    /// With --fail-on-leak: what could not be judged is no failure
    #[arg(long, requires = "fail_on_leak")]
    pub(crate) allow_inconclusive: bool,
    /// With --fail-on-leak: what grows no faster is no failure, such as 1MiB/step or 100KiB/min; a leak always is
    #[arg(long, value_name = "RATE", requires = "fail_on_leak")]
    pub(crate) allow_growth: Option<Threshold>,
    /// Findings that do not count: leak:PATTERN or growing:PATTERN a line, of a function, a file or what keeps it; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Vec<PathBuf>,
}

impl Gate {
    /// The gate, where one is asked for.
    pub(crate) fn gate(&self) -> Option<analyze::Gate> {
        self.fail_on_leak.then_some(analyze::Gate { allow_inconclusive: self.allow_inconclusive })
    }

    /// What does not count: the patterns of the files, and what grows no faster than is allowed.
    ///
    /// # Errors
    /// A file cannot be read, or a line of it is no suppression.
    pub(crate) fn suppressions(&self) -> Result<analyze::Suppressions, Error> {
        Ok(analyze::Suppressions::read(&self.suppressions)?.allowing(self.allow_growth))
    }
}
