//! Runs a job with the preload in it, and with all that watches it, until it has ended.

use super::library::Library;
use super::plan::{Outcome, Plan};
use super::{child, host, tails};
use crate::driver;
use crate::error::Error;
use crate::job::{Checkout, LD_PRELOAD, Seen, appended, elsewhere};
use crate::live::Which;
use crate::probe::{self, Linkage};
use crate::process::Target;
use crate::recording;
use crate::say::{self, shown};
use crate::ship::{self, Shipper};
use crate::size::Size;
use crate::snapshot;
use crate::watch::Watcher;
use std::ffi::OsString;
use strandline::format::env;

/// Runs the job with the preload in it until it has ended.
///
/// # Errors
/// It could not be started; its folder is gone then.
pub(crate) fn execute(plan: &Plan, library: Library) -> Result<Outcome, Error> {
    let result = start_and_wait(plan, library);
    if result.is_err() {
        let _ = std::fs::remove_dir(&plan.folder);
    }
    result
}

/// `library`: it is there until the job has ended.
fn start_and_wait(plan: &Plan, library: Library) -> Result<Outcome, Error> {
    let mut variables = plan.variables.clone();
    let mut set = |name: &str, value: OsString| variables.push((name.to_string(), value));
    // Another C library's loader would not start the program with our library; `nothing.rs` says it.
    if plan.job.find().and_then(|program| probe::linkage_of_interpreter(&program)) != Some(Linkage::Foreign) {
        set(LD_PRELOAD, appended(std::env::var_os(LD_PRELOAD), library.path()));
    }
    set(env::OUT, plan.folder.clone().into());
    set(env::QUIET, "1".into());
    set(env::WATCHED, "1".into());
    // Without it processes keep their tails themselves: what a `kill -9` costs is then said by them.
    let tails = tails::Socket::listen().ok();
    if let Some(socket) = &tails {
        set(env::TAIL_SOCKET, socket.address());
    }
    if let Some(checkout) = Checkout::of_here() {
        set(env::CHECKOUT, checkout.to_text().into());
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
        let sent = plan.alerts.sends().map(str::to_owned).into_iter();
        let sent: Vec<String> = sent.chain(plan.ship.as_ref().map(ship::Settings::sends)).collect();
        let sent = match sent.as_slice() {
            [] => "nothing is sent anywhere".to_owned(),
            all => format!("nothing is sent but {}", all.join(" and ")),
        };
        if let Some(told) = elsewhere(&plan.job, |name| std::env::var(name).ok()) {
            say::line(format!("{}, so nothing will be recorded; type instead: {}", told.why, told.instead));
        }
        say::line(format!("recording into {place} (at most {most} of disk per process; {sent})"));
    }
    let before = host::counts();
    let running = child::start(&plan.job, &variables, plan.output.as_ref())?;
    if plan.lets_go {
        running.let_go();
    }
    let pid = running.pid();
    let tails = tails.map(|socket| socket.keep(pid, before.clone()));
    let driver = driver::start(&plan.folder);
    // Where even the job's own words are put aside, nobody waits for an alert.
    let watcher = plan.output.is_none().then(|| Watcher::start(&plan.folder, &plan.alerts, Target::of(pid)));
    let snapshots = snapshot::fulfil(&plan.folder, Which::All, plan.quiet, plan.alerts.suppressions.clone());
    let shipper = plan.ship.as_ref().and_then(|s| Shipper::start(s, &plan.folder, Which::All));
    let ended = running.wait(|signal| {
        if let Some(watcher) = watcher.as_ref().filter(|_| signal == libc::SIGTERM) {
            watcher.terminating();
        }
    });
    drop(driver);
    drop(snapshots);
    let aborted = watcher.is_some_and(Watcher::finish);
    let tails = tails.map(|t| t.finish(pid, ended)).unwrap_or_default();
    // Once the tails are kept.
    if let Some(shipper) = shipper {
        shipper.finish();
    }
    let seen = Seen { pid, ended, killer: host::since(before.as_ref()) };
    Ok(Outcome { seen, recordings: recording::list(&plan.folder), aborted, tails })
}

/// Bound of a recording where nothing else is asked for (the preload's own default).
const MAX_SIZE: Size = Size(256 << 20);
