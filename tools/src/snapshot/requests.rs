//! Snapshots that a job asks for itself, with `strandline_snapshot(path)`: made here, outside of it, out of its recording.

use super::{Moment, make};
use crate::run::shown;
use crate::{cli, recording, say};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use strandline::reader::FactsFollower;

const INTERVAL: Duration = Duration::from_millis(250);

/// Fulfils what is asked for in the recordings of a folder; when it is dropped, what is still open, and ends.
pub(crate) struct Fulfiller {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Fulfiller {
    /// Begins. `quiet`: only what goes wrong is said.
    pub(crate) fn start(folder: &Path, quiet: bool) -> Fulfiller {
        let (stop, stopped) = crossbeam_channel::bounded(1);
        let folder = folder.to_path_buf();
        let work = move || work(&folder, quiet, &stopped);
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

fn work(folder: &Path, quiet: bool, stopped: &Receiver<()>) {
    // With each: the last request that was fulfilled. Facts are said again now and then.
    let mut known: HashMap<PathBuf, (FactsFollower, u64)> = HashMap::new();
    loop {
        let ended = !matches!(stopped.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout));
        for path in recording::list(folder) {
            if !known.contains_key(&path)
                && let Ok(follower) = FactsFollower::open(&path)
            {
                known.insert(path.clone(), (follower, 0));
            }
            let Some((follower, last)) = known.get_mut(&path) else { continue };
            for request in follower.poll().iter().filter_map(Request::of) {
                if request.number > *last {
                    *last = request.number;
                    request.fulfil(&path, quiet);
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
}

impl Request {
    fn of(said: &Value) -> Option<Request> {
        let asked = said.get("snapshot_request")?;
        let text = |name: &str| asked.get(name)?.as_str();
        // The path is the job's, and so is the folder that it counts from.
        let path = Path::new(text("cwd").unwrap_or_default()).join(text("path")?);
        Some(Request { number: asked.get("number")?.as_u64()?, mark: text("mark")?.into(), path })
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
}
