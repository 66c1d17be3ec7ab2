//! The moment at which the interpreter begins to end: the last at which globals, and what a traceback keeps, are still there.
//!
//! A function of ours that `atexit` calls tells the watcher, waits for its last question, and answers it at once, on the thread that
//! ends the interpreter. It takes no longer than what is left of the budget, and never more than [`LONGEST`]; nothing is printed, and the
//! exit status is not touched.

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

/// Nanoseconds that the end of a job is put off at most.
const LONGEST: u64 = 400_000_000;
/// Between two looks for the question.
const WAIT: Duration = Duration::from_millis(1);

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
    let most = match config.probe {
        Some(Pace::Budget) => pace::left(since_began(began), charged(), true).min(LONGEST),
        _ => LONGEST,
    };
    ENDING.store(true, Release);
    // What is begun ends before all is used up.
    while clock::moment().mono_ns.saturating_sub(began) + SLICE < most {
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
