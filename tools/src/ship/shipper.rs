//! Sends the recordings of a folder every few seconds, on a thread of its own.

use super::options::Settings;
use super::recording::{Found, Refused, Sent};
use crate::background::spawn;
use crate::error::Error;
use crate::live::Which;
use crate::recording;
use crate::say::{self, shown};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandline::report::size;

/// So long the end of a job is waited for at most to be sent.
const LAST: Duration = Duration::from_secs(30);

/// Recordings that are sent while they grow.
pub(crate) struct Shipper {
    stop: Sender<()>,
    /// Once all was tried: what is not there.
    done: Receiver<Option<String>>,
    /// Nobody waits any more: nothing more is said.
    is_left: Arc<AtomicBool>,
    again: String,
}

impl Shipper {
    /// Starts it; `None`: no thread can be started, and that was said.
    pub(crate) fn start(settings: &Settings, folder: &Path, which: Which) -> Option<Shipper> {
        let (stop, stopped) = crossbeam_channel::bounded::<()>(1);
        let (tell, done) = crossbeam_channel::bounded(1);
        let is_left = Arc::new(AtomicBool::new(false));
        let mut work = Work {
            settings: settings.clone(),
            folder: folder.into(),
            which,
            sent: HashMap::new(),
            runs: false,
            refused: Vec::new(),
            wrong: None,
            is_left: is_left.clone(),
        };
        let again = format!("strandline watch --ship {} {}", settings.store.address, shown(folder));
        let every = settings.every;
        let work = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
                work.round();
            }
            work.round();
            let _ = tell.send(work.missing());
        };
        let started = say::failure(spawn("sl-ship", work), "no recording is sent anywhere");
        started.map(|_| Shipper { stop, done, is_left, again })
    }

    /// Nothing more comes: the rest is sent, as long as that takes no longer than half a minute. What could not be sent is said.
    pub(crate) fn finish(self) {
        drop(self.stop);
        let missing = match self.done.recv_timeout(LAST) {
            Ok(missing) => missing,
            Err(_) => Some(format!("the end of the recording was not sent within {} s", LAST.as_secs())),
        };
        self.is_left.store(true, Ordering::Relaxed);
        if let Some(missing) = missing {
            say::line(format!("{missing}; to send the rest: {}", self.again));
        }
    }
}

struct Work {
    settings: Settings,
    folder: PathBuf,
    which: Which,
    sent: HashMap<PathBuf, Sent>,
    /// A process of one of them ran here since this began.
    runs: bool,
    /// Those that there is another one of.
    refused: Vec<PathBuf>,
    /// What was wrong in the last round.
    wrong: Option<String>,
    is_left: Arc<AtomicBool>,
}

impl Work {
    /// Sends what is new of all recordings.
    fn round(&mut self) {
        let before = self.wrong.take();
        if let Err(e) = self.send() {
            self.wrong = Some(e.parts().0.to_owned());
        }
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        match (&self.wrong, before) {
            (Some(wrong), None) => say::line(format!(
                "{wrong}; tried again every {} s, and nothing is lost while {} is there",
                self.settings.every.as_secs(),
                shown(&self.folder)
            )),
            (None, Some(_)) => {
                say::line(format!("recordings are sent to {} again", self.settings.store.address))
            }
            _ => {}
        }
    }

    fn send(&mut self) -> Result<(), Error> {
        let Settings { store, every } = &self.settings;
        let all = recording::list(&self.folder);
        let is_new = |path: &&PathBuf| !self.sent.contains_key(*path) && !self.refused.contains(*path);
        let found = |path: &PathBuf| Some((path.clone(), Found::of(path, *every)?));
        let new: Vec<(PathBuf, Found)> = all.iter().filter(is_new).filter_map(found).collect();
        self.runs |= new.iter().any(|(_, found)| found.runs);
        let mut unread = None;
        for (path, found) in new {
            // Others that watch on their machines send their own.
            if self.which == Which::Running && self.runs && !found.is_here {
                continue;
            }
            match Sent::begin(found, store, self.which) {
                Ok(sent) => drop(self.sent.insert(path, sent)),
                // Where the store is away, it is so for the others, too.
                Err(Refused::Store(e)) => return Err(e),
                Err(Refused::Unread(e)) => _ = unread.get_or_insert(e),
                Err(Refused::Another) => {
                    say::line(format!(
                        "{} is not sent: {} has another recording of this name; give each run its own place",
                        shown(&path),
                        store.address
                    ));
                    self.refused.push(path);
                }
            }
        }
        for path in &all {
            match self.sent.get_mut(path).map_or(Ok(()), |sent| sent.round(store)) {
                Err(Refused::Store(e)) => return Err(e),
                Err(Refused::Unread(e)) => _ = unread.get_or_insert(e),
                Ok(()) | Err(Refused::Another) => {}
            }
        }
        unread.map_or(Ok(()), Err)
    }

    /// What is not in the store, in words.
    fn missing(&self) -> Option<String> {
        let wrong = self.wrong.as_ref()?;
        let left: u64 = self.sent.values().map(Sent::left).sum();
        let left = if left > 0 { format!(" ({} not sent)", size(left)) } else { String::new() };
        Some(format!("{wrong}{left}"))
    }
}
