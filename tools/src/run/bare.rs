//! A job that cannot be recorded: it comes first, and runs alone.

use super::plan::Outcome;
use super::{child, nothing, tails};
use crate::error::Error;
use crate::job::{Job, Seen, Variable};
use strandline::event::HostKiller;

/// Says why nothing is recorded, and runs the job with nothing of ours in it until it has ended.
///
/// # Errors
/// It could not be started.
pub(super) fn run(job: &Job, variables: &[Variable], why: &Error) -> Result<Outcome, Error> {
    let (what, next) = why.parts();
    nothing::tell(
        &format!("{what}; the job runs without being recorded"),
        next.unwrap_or("strandline doctor"),
    );
    let running = child::start(job, variables, None)?;
    running.let_go();
    let seen = Seen { pid: running.pid(), ended: running.wait(|_| ()), killer: HostKiller::Uncounted };
    Ok(Outcome { seen, recordings: Vec::new(), aborted: false, tails: tails::Kept::default() })
}
