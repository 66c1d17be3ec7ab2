//! Snapshots that a job asks for itself, with `strandline_snapshot(path)`: made here, outside of it, out of its recording.

use super::make::make;
use super::options::Options;
use crate::analyze::{Moment, Suppressions};
use crate::background::Background;
use crate::files::Folder;
use crate::live::Which;
use crate::process::Target;
use crate::recording;
use crate::say::{self, shown};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use strandline::event::printable;
use strandline::reader::{FactsFollower, Reader};
use strandline::report::plural;

const INTERVAL: Duration = Duration::from_millis(250);
/// How long a snapshot that cannot be made is tried again: of a process that has just begun to record, the latest events cannot be read yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fulfils what is asked for in the recordings of a folder; when what it returns is dropped, what is still open, and ends. `quiet`: only
/// what goes wrong is said.
pub(crate) fn fulfil(
    folder: &Path,
    which: Which,
    quiet: bool,
    suppressions: Arc<Suppressions>,
) -> Background {
    let folder = folder.to_path_buf();
    Background::start("sl-snapshots", move |stopped| work(&folder, which, quiet, &suppressions, stopped))
}

fn work(folder: &Path, which: Which, quiet: bool, suppressions: &Suppressions, stopped: &Receiver<()>) {
    // `None`: nobody's business here.
    let mut known: HashMap<PathBuf, Option<Asking>> = HashMap::new();
    loop {
        let ended = !matches!(stopped.recv_timeout(INTERVAL), Err(RecvTimeoutError::Timeout));
        for path in recording::list(folder) {
            if !known.contains_key(&path)
                && let Ok(reader) = Reader::open(&path)
            {
                let is_alive = || Target::recorded(&reader.summary().who).is_alive();
                // What another user's job asks for is nobody's business here.
                let is_meant = recording::is_own(reader.summary()) && (which == Which::All || is_alive());
                known.insert(path.clone(), is_meant.then(|| Asking::new(reader)));
            }
            let Some(Some(asking)) = known.get_mut(&path) else { continue };
            asking.poll();
            asking.open.retain(|(request, since)| {
                // Who watches besides `strandline run`, or came late, finds that it is done.
                if which == Which::Running && request.is_fulfilled(folder) {
                    return false;
                }
                let is_last = ended || since.elapsed() >= PATIENCE;
                !request.fulfil(folder, &path, quiet, suppressions, is_last)
            });
        }
        if ended {
            return;
        }
    }
}

/// A recording in which snapshots are asked for.
struct Asking {
    facts: FactsFollower,
    /// The number of the last request. Facts are said again now and then.
    last: u64,
    /// What is not fulfilled yet, and since when.
    open: Vec<(Request, Instant)>,
}

impl Asking {
    fn new(reader: Reader) -> Asking {
        Asking { facts: FactsFollower::from_reader(reader), last: 0, open: Vec::new() }
    }

    /// Takes what was asked for since.
    fn poll(&mut self) {
        for request in self.facts.poll().iter().filter_map(Request::of) {
            if request.number > self.last {
                self.last = request.number;
                self.open.push((request, Instant::now()));
            }
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
    /// As the job named it.
    path: PathBuf,
    /// When it was asked for, in milliseconds of Unix time; 0: not told.
    asked_ms: u64,
}

impl Request {
    fn of(said: &Value) -> Option<Request> {
        let asked = said.get("snapshot_request")?;
        let text = |name: &str| asked.get(name)?.as_str();
        let number = |name: &str| asked.get(name)?.as_u64();
        let asked_ms = number("unix_ms").unwrap_or(0);
        Some(Request {
            number: number("number")?,
            mark: text("mark")?.into(),
            path: text("path")?.into(),
            asked_ms,
        })
    }

    /// Where it is written: below the folder of the recordings and nowhere else, whatever the job has named. A relative path counts
    /// from there; no link is followed on the way.
    fn place(&self, folder: &Path) -> io::Result<(Folder, OsString)> {
        let home = Folder::ours(folder)?;
        let below = match self.path.is_absolute() {
            false => self.path.as_path(),
            true => {
                let known = [home.real_path(), std::path::absolute(folder)];
                let below = known.iter().flatten().find_map(|home| self.path.strip_prefix(home).ok());
                below.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it lies elsewhere"))?
            }
        };
        let ending = below.extension().unwrap_or_default();
        if ["strand", "watch", "tail"].iter().any(|own| ending == *own) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is the name of a recording"));
        }
        home.below(below).map(|(folder, name)| (folder, name.to_owned()))
    }

    /// There is a file of that name that is not older than the request.
    fn is_fulfilled(&self, folder: &Path) -> bool {
        let file = self.place(folder).and_then(|(folder, name)| folder.read(&name));
        let written = file.and_then(|f| f.metadata()?.modified()).ok();
        let written = written.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        written.is_some_and(|t| t.as_millis() >= u128::from(self.asked_ms))
    }

    /// Whether nothing is left to do. What cannot be made is said if this `is_last`, and left for the next time if not.
    fn fulfil(
        &self,
        folder: &Path,
        recording: &Path,
        quiet: bool,
        suppressions: &Suppressions,
        is_last: bool,
    ) -> bool {
        let place = match self.place(folder) {
            Ok(place) => place,
            Err(e) => {
                say::line(format!(
                    "the snapshot that the job asked for was not written to {}: {e}; snapshots are only written below {}: give a relative path",
                    say::path(&self.path),
                    shown(folder)
                ));
                return true;
            }
        };
        let path = if self.path.is_absolute() { self.path.clone() } else { folder.join(&self.path) };
        let options = Options {
            at: Some(Moment::Mark(printable(&self.mark).into_owned())),
            output: Some(path),
            ..Options::default()
        };
        let made = make(recording, &options, suppressions, |_| place.0.create(&place.1));
        match &made {
            Ok(made) if !quiet => say::line(format!(
                "{}, {}, requested by the job",
                shown(&made.path),
                plural(made.written.entries, "event")
            )),
            Err(e) if is_last => {
                say::line(format!("the snapshot that the job asked for cannot be made: {e}"));
            }
            _ => {}
        }
        is_last || made.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    fn asked(path: &str) -> Request {
        let said =
            json!({ "snapshot_request": { "number": 1, "path": path, "cwd": "/job", "mark": "snapshot 1" } });
        Request::of(&said).unwrap()
    }

    #[test]
    fn a_request_leads_below_the_folder_of_the_recordings_and_nowhere_else() {
        let home = std::env::temp_dir().join(format!("strandline-requests-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(home.join("sub")).unwrap();
        std::os::unix::fs::symlink("/tmp", home.join("out")).unwrap();
        let inside = |name: &str| home.join(name).to_string_lossy().into_owned();
        for good in ["a.pickle", "sub/a.pickle", &inside("a.pickle"), &inside("sub/a.pickle")] {
            assert_eq!(asked(good).place(&home).unwrap().1, "a.pickle", "{good}");
        }
        for bad in [
            "/etc/passwd",
            "../a.pickle",
            "out/a.pickle",
            &inside("../a.pickle"),
            &inside("out/a.pickle"),
            "h-r0.strand",
            "",
        ] {
            assert!(asked(bad).place(&home).is_err(), "{bad}");
        }
        assert_eq!(Request::of(&json!({ "ended": "exit" })), None);
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn what_cannot_be_made_yet_is_left_for_the_next_time() {
        let home = std::env::temp_dir().join(format!("strandline-not-yet-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        let recording = home.join("h-r0.strand");
        let request = asked("a.pickle");
        let fulfil = |is_last| request.fulfil(&home, &recording, true, &Suppressions::default(), is_last);
        assert!(!fulfil(false), "nothing is written of it yet");
        assert!(fulfil(true), "it was tried long enough");
        assert!(asked("/etc/passwd").fulfil(&home, &recording, true, &Suppressions::default(), false));
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn a_request_is_fulfilled_by_a_file_that_is_not_older() {
        let home = std::env::temp_dir().join(format!("strandline-fulfilled-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        let asked = |asked_ms| Request { asked_ms, ..asked("a.pickle") };
        assert!(!asked(0).is_fulfilled(&home));
        fs::write(home.join("a.pickle"), "").unwrap();
        assert!(asked(0).is_fulfilled(&home));
        assert!(!asked(u64::MAX).is_fulfilled(&home));
        fs::remove_dir_all(&home).unwrap();
    }
}
