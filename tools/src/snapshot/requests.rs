//! Snapshots that a job asks for itself, with `strandline_snapshot(path)`: made here, outside of it, out of its recording.

use super::{Moment, make};
use crate::alert::Target;
use crate::run::shown;
use crate::watch::Which;
use crate::{cli, recording, say};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};
use strandline::reader::{FactsFollower, Reader};

const INTERVAL: Duration = Duration::from_millis(250);

/// Fulfils what is asked for in the recordings of a folder; when it is dropped, what is still open, and ends.
pub(crate) struct Fulfiller {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Fulfiller {
    /// Begins. `quiet`: only what goes wrong is said.
    pub(crate) fn start(folder: &Path, which: Which, quiet: bool) -> Fulfiller {
        let (stop, stopped) = crossbeam_channel::bounded(1);
        let folder = folder.to_path_buf();
        let work = move || work(&folder, which, quiet, &stopped);
        let thread = std::thread::Builder::new().name("sl-snapshots".to_string()).spawn(work).ok();
        Fulfiller { stop: Some(stop), thread }
    }
}

impl Drop for Fulfiller {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(folder: &Path, which: Which, quiet: bool, stopped: &Receiver<()>) {
    // With each: the last request that was fulfilled. Facts are said again now and then. `None`: nobody's business here.
    let mut known: HashMap<PathBuf, Option<(FactsFollower, u64)>> = HashMap::new();
    loop {
        let ended = !matches!(stopped.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout));
        for path in recording::list(folder) {
            if !known.contains_key(&path)
                && let Ok(reader) = Reader::open(&path)
                && let Ok(follower) = FactsFollower::open(&path)
            {
                let who = reader.summary().who;
                let is_meant = which == Which::All || Target { pid: who.pid, start: who.start }.is_alive();
                known.insert(path.clone(), is_meant.then_some((follower, 0)));
            }
            let Some(Some((follower, last))) = known.get_mut(&path) else { continue };
            for request in follower.poll().iter().filter_map(Request::of) {
                if request.number > *last {
                    *last = request.number;
                    // Who watches besides `strandline run`, or came late, finds that it is done.
                    if which == Which::All || !request.is_fulfilled() {
                        request.fulfil(&path, quiet);
                    }
                }
            }
        }
        if ended {
            return;
        }
    }
}

/// A snapshot that was asked for.
#[derive(Debug, PartialEq)]
struct Request {
    /// Its number, from 1.
    number: u64,
    /// The mark of the moment.
    mark: String,
    path: PathBuf,
    /// When it was asked for, in milliseconds of Unix time; 0: not told.
    asked_ms: u64,
}

impl Request {
    fn of(said: &Value) -> Option<Request> {
        let asked = said.get("snapshot_request")?;
        let text = |name: &str| asked.get(name)?.as_str();
        // The path is the job's, and so is the folder that it counts from.
        let path = Path::new(text("cwd").unwrap_or_default()).join(text("path")?);
        let number = |name: &str| asked.get(name)?.as_u64();
        let asked_ms = number("unix_ms").unwrap_or(0);
        Some(Request { number: number("number")?, mark: text("mark")?.into(), path, asked_ms })
    }

    /// There is a file of that name that is not older than the request.
    fn is_fulfilled(&self) -> bool {
        let written = self.path.metadata().and_then(|m| m.modified()).ok();
        let written = written.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        written.is_some_and(|t| t.as_millis() >= u128::from(self.asked_ms))
    }

    fn fulfil(&self, recording: &Path, quiet: bool) {
        let options = cli::Snapshot {
            at: Some(Moment::Mark(self.mark.clone())),
            output: Some(self.path.clone()),
            ..cli::Snapshot::default()
        };
        match make(recording, &options) {
            Ok(made) if !quiet => {
                say::line(format!(
                    "{}, {} events, as the job asked",
                    shown(&made.path),
                    made.written.entries
                ));
            }
            Ok(_) => {}
            Err(e) => say::line(format!("the snapshot that the job asked for cannot be made: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_counts_its_path_from_the_jobs_folder() {
        let asked = |path: &str| json!({ "snapshot_request": { "number": 1, "path": path, "cwd": "/job", "mark": "snapshot 1" } });
        let request = Request::of(&asked("a.pickle")).unwrap();
        assert_eq!((request.path, request.mark), ("/job/a.pickle".into(), "snapshot 1".into()));
        assert_eq!(Request::of(&asked("/tmp/a.pickle")).unwrap().path, Path::new("/tmp/a.pickle"));
        assert_eq!(Request::of(&json!({ "ended": "exit" })), None);
    }

    #[test]
    fn a_request_is_fulfilled_by_a_file_that_is_not_older() {
        let path = std::env::temp_dir().join(format!("strandline-fulfilled-{}", std::process::id()));
        let asked = |asked_ms| Request { number: 1, mark: String::new(), path: path.clone(), asked_ms };
        assert!(!asked(0).is_fulfilled());
        std::fs::write(&path, "").unwrap();
        assert!(asked(0).is_fulfilled());
        assert!(!asked(u64::MAX).is_fulfilled());
        std::fs::remove_file(&path).unwrap();
    }
}
