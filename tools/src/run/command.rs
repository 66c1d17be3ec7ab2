//! `strandline run`: from the options to the exit status.

use super::conclude::{conclude, exit_status};
use super::execute::execute;
use super::noted;
use super::plan::Plan;
use crate::alert::Settings;
use crate::error::Error;
use crate::job::{Job, NVTX_INJECTION, Variable, create_folder};
use crate::simulate::Extras;
use crate::{cli, embedded, environment, say};
use std::sync::Arc;

/// Runs the command; the result is the exit status.
///
/// # Errors
/// The job could not be started; what fails after it has ended is said, and its own status kept.
pub(crate) fn main(options: &cli::Run) -> Result<u8, Error> {
    let suppressions = Arc::new(options.gate.suppressions()?);
    let alerts = Settings::new(&options.alerts, suppressions.clone())?;
    let simulated = options.simulate.map(|_| environment::prepare(Extras::None)).transpose()?;
    let job = Job::new(&options.command, simulated.as_ref().map(|s| s.python.as_path()));
    let mut variables = variables(options);
    listen_to_nvtx(options.recorded.steps.as_ref(), &mut variables)?;
    if let Some(environment) = &simulated {
        variables.extend(environment::variables(environment, options.simulate));
    }
    let folder = create_folder(options.output.as_deref(), &job.name())?;
    let plan = Plan { job, folder, variables, alerts, quiet: options.quiet };
    if let Some(said) = noted::last().filter(|_| !options.quiet) {
        say::line(said);
    }
    let outcome = execute(&plan)?;
    let gate = options.gate.gate();
    let conclusion = conclude(&plan, &outcome, options.quiet, gate, &suppressions);
    if let Some(conclusion) = &conclusion {
        noted::keep(conclusion.failed.as_ref());
        suppressions.tell_unused();
    }
    let decision = conclusion.map_or_else(|| gate.map(|g| g.nothing()), |c| c.gate);
    let status = exit_status(&outcome, decision.as_ref());
    if let Some(decision) =
        decision.filter(|d| d.status != 0 && d.status == status && outcome.seen.ended.status() == 0)
    {
        say::line(decision.why);
    }
    Ok(status)
}

/// What the options say, as the preload reads it.
fn variables(options: &cli::Run) -> Vec<Variable> {
    options.recorded.as_env().map(|(name, value)| (name.to_string(), value.into())).collect()
}

/// Has NVTX load our library where its ranges are asked for; a profiler that is there already stays.
fn listen_to_nvtx(steps: Option<&cli::Steps>, variables: &mut Vec<Variable>) -> Result<(), Error> {
    if !matches!(steps, Some(cli::Steps::Nvtx(_))) {
        return Ok(());
    }
    if let Some(other) = std::env::var_os(NVTX_INJECTION).filter(|v| !v.is_empty()) {
        let what =
            format!("{NVTX_INJECTION} is set to {}, which takes the NVTX ranges", say::path(other.as_ref()));
        return Err(Error::new(what).hint("unset it, or mark steps otherwise: --steps manual").status(2));
    }
    variables.push((NVTX_INJECTION.to_string(), embedded::preload()?.into()));
    Ok(())
}
