//! What happened in a process before it was recorded, where it was not started with the preload.

use crate::platform::tid::tid;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What is not seen by a process that was not started with us, in words; set before the tracker is attached.
static MISSED: OnceLock<String> = OnceLock::new();
/// Threads of the autograd engine that had their names before we could hear them; 0 ends the list.
static AUTOGRAD: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// What was missed, for the recording's coverage. `None`: we were there from the beginning.
pub(crate) fn missed() -> Option<&'static str> {
    MISSED.get().map(String::as_str)
}

/// Whether the calling thread, whose first event this is, was one of the autograd engine's before we came.
pub(crate) fn is_autograd() -> bool {
    has_trained() && AUTOGRAD.iter().any(|t| t.load(Relaxed) == tid())
}

/// Says what was missed, once.
pub(crate) fn set_missed(what: String) {
    let _ = MISSED.set(what);
}

/// Whether a backward has run before we came: its first one begins the autograd engine's threads.
pub(crate) fn has_trained() -> bool {
    AUTOGRAD.first().is_some_and(|t| t.load(Relaxed) != 0)
}

/// Notes which threads are the autograd engine's: they have told torch their names, and will not again.
pub(crate) fn name_autograd() {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let autograd = tasks.filter_map(|task| {
        let name = std::fs::read(task.path().join("comm")).ok()?;
        let tid = task.file_name().to_str()?.parse().ok()?;
        name.starts_with(b"pt_autograd_").then_some(tid)
    });
    AUTOGRAD.iter().zip(autograd).for_each(|(place, tid): (&AtomicU32, u32)| place.store(tid, Relaxed));
}
