//! `strandline run`: from the options to the exit status.

use super::conclude::{conclude, exit_status};
use super::execute::execute;
use super::library::Library;
use super::plan::Plan;
use super::{bare, noted};
use crate::alert::Settings;
use crate::error::{Error, status};
use crate::job::{Ended, Job, NVTX_INJECTION, Variable, create_folder};
use crate::{cli, environment, say, ship, signals};
use std::path::PathBuf;
use std::sync::Arc;

/// Runs the command; the result is the exit status.
///
/// # Errors
/// The job could not be started; what fails after it has ended is said, and its own status kept.
pub(crate) fn main(options: &cli::Run) -> Result<u8, Error> {
    let suppressions = Arc::new(options.gate.suppressions()?);
    let alerts = Settings::new(&options.alerts, suppressions.clone())?;
    let ship = ship::Settings::new(&options.shipping)?;
    let simulated = options.simulate.map(|_| environment::prepare()).transpose()?;
    let job = Job::new(&options.command, simulated.as_deref());
    let device = simulated.map(|s| environment::variables(&s, options.simulate)).unwrap_or_default();
    has_no_other_listener(&options.recorded)?;
    let gate = options.gate.gate();
    let (outcome, decision, is_told) = match places(options, &job) {
        Ok((folder, library)) => {
            let mut variables = variables(options, &library);
            variables.extend(device);
            let quiet = options.quiet;
            let plan = Plan { job, folder, variables, alerts, ship, quiet, output: None, lets_go: true };
            if let Some(said) = noted::last().filter(|_| !options.quiet) {
                say::line(said);
            }
            let outcome = execute(&plan, library)?;
            let conclusion = conclude(&plan, &outcome, options.quiet, gate, &suppressions);
            if let Some(conclusion) = &conclusion {
                noted::keep(conclusion.failed.as_ref());
                suppressions.tell_unused();
            }
            let is_told = conclusion.is_some() && !options.quiet;
            let decision = conclusion.map_or_else(|| gate.map(|g| g.nothing()), |c| c.gate);
            (outcome, decision, is_told)
        }
        Err(why) if why.exit_status() == status::USAGE => return Err(why),
        Err(why) => (bare::run(&job, &device, &why)?, gate.map(|g| g.nothing()), false),
    };
    let status = exit_status(&outcome, decision.as_ref());
    if let Some(decision) = decision
        .filter(|d| !is_told && d.status != 0 && d.status == status && outcome.seen.ended.status() == 0)
    {
        say::line(decision.why);
    }
    match outcome.seen.ended {
        // Where that is not possible, the status says it as a shell does.
        Ended::Signal(signal) if !outcome.aborted => signals::end_by(signal),
        _ => {}
    }
    Ok(status)
}

/// The folder of the recordings, and the library.
fn places(options: &cli::Run, job: &Job) -> Result<(PathBuf, Library), Error> {
    let folder = create_folder(options.output.as_deref(), &job.name())?;
    let library = Library::place(&folder)?;
    Ok((folder, library))
}

/// What the options say, as the preload reads it.
fn variables(options: &cli::Run, library: &Library) -> Vec<Variable> {
    let recorded = options.recorded.as_env().map(|(name, value)| (name.to_string(), value.into()));
    let listens = options.recorded.listens_to_nvtx();
    recorded.chain(listens.then(|| (NVTX_INJECTION.to_string(), library.path().into()))).collect()
}

/// A profiler that takes NVTX's ranges already stays.
fn has_no_other_listener(recorded: &cli::Recorded) -> Result<(), Error> {
    let other = std::env::var_os(NVTX_INJECTION).filter(|v| !v.is_empty());
    let Some(other) = other.filter(|_| recorded.listens_to_nvtx()) else { return Ok(()) };
    let what = format!(
        "{NVTX_INJECTION} is set to {}, which receives the NVTX ranges instead of strandline",
        say::path(other.as_ref())
    );
    Err(Error::usage(what, "unset it, or mark steps otherwise: --steps manual"))
}
