//! What fails a command: options of `run` and `report`.

use crate::analyze;
use crate::error::Error;
use crate::rate::Threshold;
use clap::Args;
use std::path::PathBuf;

/// Which findings count, and whether they fail the command.
#[derive(Args, Debug)]
pub(crate) struct Gate {
    /// Exit with 81 on a leak, 84 on growth, or 83 if there was too little to judge
    #[arg(long)]
    pub(crate) fail_on_leak: bool,
    /// With --fail-on-leak: do not fail on TOO SHORT or NOT JUDGED
    #[arg(long, requires = "fail_on_leak")]
    pub(crate) allow_inconclusive: bool,
    /// With --fail-on-leak: do not fail on growth up to RATE (1MiB/step, 100KiB/min); a leak always fails
    #[arg(long, value_name = "RATE", requires = "fail_on_leak")]
    pub(crate) allow_growth: Option<Threshold>,
    /// File of findings to ignore, one per line: leak:PATTERN or growing:PATTERN, where PATTERN (* matches any text) may match anywhere in the name of the function, the file or the object that holds the memory; may be repeated
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

/// `--known` of a command that judges nothing: taken, and absent from its help.
#[derive(Args, Debug)]
pub(crate) struct Unused {
    #[arg(id = "known", long = "known", hide = true, value_name = "FILE")]
    _known: Vec<PathBuf>,
}
