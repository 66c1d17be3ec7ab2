//! `strandline simulate`: PyTorch on a simulated GPU is set up, or a command is run in it.

use super::prepare::{prepare_with, variables};
use crate::error::Error;
use crate::job::{Job, Variable, cannot_start};
use crate::{cli, inherited, say};
use std::os::unix::process::CommandExt;

/// Runs `strandline simulate`; the result is the exit status.
///
/// # Errors
/// The environment could not be made, or the command not be started.
pub(crate) fn main(options: &cli::Simulate) -> Result<u8, Error> {
    let python = prepare_with(&options.torch, options.with_transformers)?;
    if options.command.is_empty() {
        say::out(&format!("{}\n", python.display()));
        if !options.python {
            let python = python.display();
            say::line(
                "this python has torch on a simulated GPU: computed values are meaningless, memory use is as on a real GPU",
            );
            say::raw(&format!(
                "  next  strandline run --simulate 24GiB train.py  # record it\n        {python} train.py  # without recording\n"
            ));
        }
        return Ok(0);
    }
    let job = Job::new(&options.command, Some(&python));
    Err(replace(&job, &variables(&python, options.size)))
}

/// Becomes the job: there is nothing left for us to do.
fn replace(job: &Job, variables: &[Variable]) -> Error {
    let mut command = std::process::Command::new(&job.program);
    command.args(&job.arguments).envs(variables.iter().map(|(name, value)| (name, value)));
    inherited::restore_sigxfsz();
    cannot_start(job, &command.exec())
}
