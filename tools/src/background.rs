//! Work on a thread of its own, which is told to stop and waited for when its owner is dropped.

use crossbeam_channel::{Receiver, Sender};
use std::io;
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
