//! The moment at which the interpreter begins to end: the last at which globals, and what a traceback keeps, are still there.
//!
//! A function of ours that `atexit` calls tells the watcher, waits for its last question, and answers it at once, on the thread that
//! ends the interpreter. It searches no longer than what is left of the budget, and waits no longer than [`LONGEST`]. Where more threads want
//! to run than there are processors, the watcher has to wait for its turn as well: there it waits up to [`LONGEST_BUSY`], but no longer than
//! the job has run. Nothing is printed, and the exit status is not touched.

use super::budget::SLICE;
use super::pace;
use super::slices::{ENDING, LAST_ASKED, WANTED, add_pause, charged, guarded_slice, look_again};
use crate::platform::clock;
use crate::platform::config::Pace;
use crate::platform::pause::pause;
use crate::python::interpreter;
use crate::recorder::overhead;
use crate::recorder::{self, since_began};
use serde_json::json;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

/// Nanoseconds that the end of a job is put off at most, and the same on a busy machine.
const LONGEST: u64 = 400_000_000;
const LONGEST_BUSY: u64 = 2_000_000_000;
/// Between two looks for the question.
const WAIT: Duration = Duration::from_millis(1);
/// So many looks in a row that find no thread waiting for a processor: the machine is not busy.
const CALM: u32 = 16;

/// Answers the last question. Called by `atexit`, with the GIL held.
#[cold]
pub(crate) fn at_exit() {
    let Some(config) = recorder::config().filter(|_| recorder::is_recording()) else { return };
    let (began, before) = (clock::moment().mono_ns, overhead::paused());
    recorder::record_metadata(json!({ "ending": since_began(began) }));
    let is_watched = config.watched || config.alerts;
    if config.probe.is_none() || !is_watched && !WANTED.load(Acquire) {
        return;
    }
    let left = |now| match config.probe {
        Some(Pace::Budget) => pace::left(since_began(now), charged(), true),
        _ => LONGEST,
    };
    let most = left(began).min(LONGEST);
    let most_busy = since_began(began).min(LONGEST_BUSY);
    ENDING.store(true, Release);
    let mut calm = 0;
    loop {
        let now = clock::moment().mono_ns;
        // What is begun ends before all is used up.
        let with_slice = now.saturating_sub(began) + SLICE;
        if with_slice >= most {
            calm = if is_busy() { 0 } else { calm + 1 };
            if calm == CALM || with_slice >= most_busy || left(now) < SLICE {
                break;
            }
        }
        if WANTED.load(Acquire) {
            guarded_slice();
        } else if LAST_ASKED.load(Acquire) || !recorder::is_recording() {
            break;
        }
        // Other threads of Python's go on meanwhile, as at any moment of the end.
        interpreter::without_gil(|| pause(WAIT));
    }
    look_again();
    ENDING.store(false, Release);
    // What the slices took is counted already.
    let slices = overhead::paused().saturating_sub(before);
    let waited = clock::moment().mono_ns.saturating_sub(began).saturating_sub(slices);
    add_pause(waited, waited);
}

/// Whether more threads want to run on this machine than it has processors.
fn is_busy() -> bool {
    // SAFETY: asks for a number.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let wanting = std::fs::read_to_string("/proc/loadavg").ok().and_then(|text| wanting(&text));
    wanting.is_some_and(|n| processors > 0 && n > processors as u64)
}

/// Threads that run or want to, this one among them: `0.61 0.40 0.38 3/214 11206` (proc_loadavg(5)).
fn wanting(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::wanting;

    #[test]
    fn threads_that_want_to_run_are_read_from_the_kernels_line() {
        assert_eq!(wanting("0.61 0.40 0.38 3/214 11206\n"), Some(3));
        assert_eq!((wanting(""), wanting("0.61 0.40 0.38 x/214 1")), (None, None));
    }
}
