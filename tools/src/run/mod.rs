//! `strandline run`: the job as it would run without us, recorded, and a report when it ends.
//!
//! The rule of this room is invisibility: terminal, standard streams, process group, signals, job control and exit
//! status are the job's own. What we say goes to stderr, in whole lines, before the job starts and after it has ended.

mod child;
mod command;
mod exited;
mod host;
mod launchers;
mod noted;
mod nothing;
mod nvml;
mod place;
mod signals;
mod tails;
mod watch;

pub(crate) use child::{Ended, cannot_start};
pub(crate) use command::{Job, find};
pub(crate) use launchers::elsewhere;
pub(crate) use nvml::Nvml;
pub(crate) use place::{HOME, create as create_folder, now, today};
pub(crate) use signals::{Set as Signals, be_witness, restore_limits, write_beyond_limits};
pub(crate) use watch::Watcher as DriverWatcher;

use crate::alert::{Settings, Target};
use crate::analyze::{self, Conclusion, Decision, Gate, Suppressions};
use crate::environment::{self, Variable};
use crate::error::{Error, status};
use crate::simulate::Extras;
use crate::size::Size;
use crate::watch::{Watcher, Which};
use crate::{cli, embedded, recording, say, snapshot};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline::format::env;
use strandline::report::Exit;

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
    /// Nothing is said at the start.
    pub(crate) quiet: bool,
}

/// What came of it.
pub(crate) struct Outcome {
    /// Its process.
    pub(crate) pid: u32,
    /// How the job ended.
    pub(crate) ended: Ended,
    /// Its recordings.
    pub(crate) recordings: Vec<PathBuf>,
    /// The host's out-of-memory killer struck in our control group meanwhile.
    pub(crate) killed_by_host: bool,
    /// An alert of ours ended it.
    pub(crate) aborted: bool,
    /// The tails of its processes.
    pub(crate) tails: tails::Kept,
}

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
    let folder = place::create(options.output.as_deref(), &job.name())?;
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
        decision.filter(|d| d.status != 0 && d.status == status && outcome.ended.status() == 0)
    {
        say::line(decision.why);
    }
    Ok(status)
}

/// What the options say, as the preload reads it.
fn variables(options: &cli::Run) -> Vec<Variable> {
    options.recorded.as_env().map(|(name, value)| (name.to_string(), value.into())).collect()
}

/// What NVTX loads at a process's first mark; ours where steps are ranges of it.
pub(crate) const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";

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

/// Runs the job with the preload in it until it has ended.
///
/// # Errors
/// It could not be started; its folder is gone then.
pub(crate) fn execute(plan: &Plan) -> Result<Outcome, Error> {
    let result = start_and_wait(plan);
    if result.is_err() {
        let _ = std::fs::remove_dir(&plan.folder);
    }
    result
}

fn start_and_wait(plan: &Plan) -> Result<Outcome, Error> {
    let library = embedded::preload()?;
    let mut variables = plan.variables.clone();
    let mut set = |name: &str, value: OsString| variables.push((name.to_string(), value));
    set(LD_PRELOAD, appended(std::env::var_os(LD_PRELOAD), &library));
    set(env::OUT, plan.folder.clone().into());
    set(env::QUIET, "1".into());
    set(env::WATCHED, "1".into());
    // Without it processes keep their tails themselves: what a `kill -9` costs is then said by them.
    let tails = tails::Socket::listen().ok();
    if let Some(socket) = &tails {
        set(env::TAIL_SOCKET, socket.address());
    }
    if let Ok(own) = std::env::current_exe() {
        set(env::BIN, own.into());
    }
    if !plan.quiet {
        let most = variables
            .iter()
            .find(|(name, _)| name == env::MAX_SIZE)
            .map(|(_, value)| value.to_string_lossy());
        let most = most.and_then(|m| m.parse::<Size>().ok()).unwrap_or(MAX_SIZE);
        let place = shown(&plan.folder);
        let most = strandline::report::size(most.0);
        let sent = plan.alerts.sends().map(|what| format!(" but {what}")).unwrap_or_default();
        if let Some(told) = elsewhere(&plan.job, |name| std::env::var(name).ok()) {
            say::line(format!("{}, so nothing will be recorded; type instead: {}", told.why, told.instead));
        }
        say::line(format!(
            "recording into {place} ({most} a process at most; nothing is sent anywhere{sent})"
        ));
    }
    let kills = host::kills();
    let running = child::start(&plan.job, &variables)?;
    let pid = running.pid();
    let tails = tails.map(tails::Socket::keep);
    let driver = watch::Watcher::start(&plan.folder);
    let watcher = Watcher::start(&plan.folder, &plan.alerts, Target::of(pid));
    let snapshots = snapshot::Fulfiller::start(&plan.folder, Which::All, plan.quiet);
    let ended = running.wait(|signal| {
        if signal == libc::SIGTERM {
            watcher.terminating();
        }
    });
    drop(driver);
    drop(snapshots);
    let aborted = watcher.finish().aborted;
    let tails = tails.map(|t| t.finish(pid, ended)).unwrap_or_default();
    let killed_by_host = host::kills().unwrap_or(0) > kills.unwrap_or(u64::MAX);
    Ok(Outcome { pid, ended, recordings: recording::list(&plan.folder), killed_by_host, aborted, tails })
}

/// Bound of a recording where nothing else is asked for (the preload's own default).
const MAX_SIZE: Size = Size(256 << 20);

/// The loader's variable.
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";

/// Ours comes last: who was there first stays first.
pub(crate) fn appended(existing: Option<OsString>, library: &Path) -> OsString {
    let mut all = existing.unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

/// A path as a person would type it: relative where it lies below the current directory.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let short = path.strip_prefix(&here).unwrap_or(path);
    let slash = if path.is_dir() { "/" } else { "" };
    format!("{}{slash}", say::path(short))
}

/// Says what came of it; `None` where there is nothing to judge. In a quiet run only news are said, and why a gate fails.
pub(crate) fn conclude(
    plan: &Plan,
    outcome: &Outcome,
    quiet: bool,
    gate: Option<Gate>,
    suppressions: &Suppressions,
) -> Option<Conclusion> {
    let gate_fails = |decision: Option<&Decision>| {
        outcome.aborted || outcome.ended.status() == 0 && exit_status(outcome, decision) != 0
    };
    if outcome.recordings.is_empty() {
        if outcome.killed_by_host {
            say_killed();
        }
        let deleted = if plan.folder.exists() { outcome.tails.deleted() } else { Some(&*plan.folder) };
        if !quiet || gate_fails(gate.map(|g| g.nothing()).as_ref()) || deleted.is_some() {
            nothing::say(plan, outcome, deleted);
        }
        let _ = std::fs::remove_dir(&plan.folder);
        return None;
    }
    let exit = |decision: Option<&Decision>| {
        let status = exit_status(outcome, decision);
        Exit { status: i32::from(status), own: !gate_fails(decision) }
    };
    match analyze::conclude(&outcome.recordings, outcome, suppressions, gate, exit) {
        Ok(conclusion) => {
            if outcome.killed_by_host && !conclusion.says_killed {
                say_killed();
            }
            if !quiet || conclusion.is_news() || gate_fails(conclusion.gate.as_ref()) {
                say::raw(&conclusion.text);
            }
            Some(conclusion)
        }
        Err(e) => {
            say::line(e.to_string());
            None
        }
    }
}

/// People take it for a GPU's out-of-memory, or for nothing at all: a DataLoader worker that is just gone.
fn say_killed() {
    say::line(
        "KILLED BY THE HOST: the machine's out-of-memory killer ended a process of this job's control group",
    );
    say::line(
        "that is host memory (RAM), not GPU memory: fewer DataLoader workers, or a larger memory limit",
    );
}

/// 82 where an alert ended the job; else its own status if it is not 0; otherwise the gate's, where there is one.
fn exit_status(outcome: &Outcome, gate: Option<&Decision>) -> u8 {
    match (outcome.ended.status(), gate) {
        _ if outcome.aborted => status::ABORTED,
        (0, Some(gate)) => gate.status,
        (own, _) => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_first_stays_first() {
        let library = Path::new("/c/libstrandline.so");
        assert_eq!(appended(None, library), "/c/libstrandline.so");
        assert_eq!(appended(Some("".into()), library), "/c/libstrandline.so");
        assert_eq!(appended(Some("/a.so /b.so".into()), library), "/a.so /b.so:/c/libstrandline.so");
    }

    #[test]
    fn the_jobs_own_status_always_wins() {
        let leak = Some(&Decision { status: 81, why: String::new() });
        let came = |ended, aborted| Outcome {
            pid: 1,
            ended,
            recordings: Vec::new(),
            killed_by_host: false,
            aborted,
            tails: tails::Kept::default(),
        };
        let exit_status = |ended, gate| super::exit_status(&came(ended, false), gate);
        assert_eq!(super::exit_status(&came(Ended::Signal(15), true), leak), 82);
        assert_eq!(exit_status(Ended::Exit(3), leak), 3);
        assert_eq!(exit_status(Ended::Signal(9), leak), 137);
        assert_eq!(exit_status(Ended::Exit(0), leak), 81);
        assert_eq!(exit_status(Ended::Exit(0), None), 0);
    }
}
