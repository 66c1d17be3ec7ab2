//! Ending a job because of an alert.

use crate::process::Target;
use crate::say;
use std::time::{Duration, Instant};

/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(50);

/// SIGTERM to the job (to its recorded processes where it is not ours), SIGKILL to what is left of it after the grace.
pub(super) fn end(job: Option<Target>, recorded: &[Target], grace: Duration, since: Instant) {
    let all = || job.iter().chain(recorded);
    say::line(format!(
        "ABORT: strandline sends SIGTERM to the job because of this alert, and SIGKILL in {} s if it still runs then",
        grace.as_secs()
    ));
    match job {
        Some(job) => job.send(libc::SIGTERM),
        None => recorded.iter().for_each(|t| t.send(libc::SIGTERM)),
    }
    while all().any(Target::is_alive) {
        if since.elapsed() >= grace {
            say::line("ABORT: the grace period is over: strandline sends SIGKILL to the job");
            all().for_each(|t| t.send(libc::SIGKILL));
            return;
        }
        std::thread::sleep(LOOK);
    }
}
