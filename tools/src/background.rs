//! Work on a thread of its own, which is told to stop and waited for when its owner is dropped; and on several, for what is many.

use crossbeam_channel::{Receiver, Sender};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Work under way; where no thread could be started, none.
pub(crate) struct Background {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Begins work on a thread of its own.
///
/// # Errors
/// None can be started.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_string()).spawn(work)
}

impl Background {
    /// Begins. `work` is given what is disconnected when it is to end.
    pub(crate) fn start(name: &str, work: impl FnOnce(&Receiver<()>) + Send + 'static) -> Background {
        let (stop, stopped) = crossbeam_channel::bounded(1);
        Background { stop: Some(stop), thread: spawn(name, move || work(&stopped)).ok() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What `one` makes of 0 to `count`, by so many threads, in this order.
pub(crate) fn in_order<T: Send>(count: usize, workers: usize, one: &(impl Fn(usize) -> T + Sync)) -> Vec<T> {
    if workers < 2 {
        return (0..count).map(one).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return done;
            }
            done.push((at, one(at)));
        }
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        // This thread works as well: where no other can be started it does all.
        let others: Vec<_> =
            (1..workers).filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        let own = work();
        let others =
            others.into_iter().flat_map(|o| o.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        own.into_iter().chain(others).collect()
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, made)| made).collect()
}
