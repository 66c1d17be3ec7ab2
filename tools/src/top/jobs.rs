//! Which recordings are shown, and the thread that follows them: drawing never waits for reading.

use super::rank::{self, Rank};
use crate::analyze::Suppressions;
use crate::error::{Error, status};
use crate::live::Followed;
use crate::recording;
use crate::say::shown;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often rows are made.
const EVERY: Duration = Duration::from_secs(1);
/// How many of these pass until it is looked for other jobs.
const LOOK: u32 = 4;

/// What was asked for.
enum Asked {
    /// Whatever this user runs.
    Mine,
    /// All of a folder.
    Folder(PathBuf),
    /// One recording.
    One(PathBuf),
}

/// A recording, until it has been read to its end, and its rows.
struct Seen {
    followed: Option<Followed>,
    rows: Vec<Rank>,
}

/// The recordings that are shown.
pub(super) struct Jobs {
    asked: Asked,
    known: HashSet<PathBuf>,
    suppressions: Arc<Suppressions>,
    seen: Vec<Seen>,
}

impl Jobs {
    /// Opens what is there.
    ///
    /// # Errors
    /// There is nothing to show.
    pub(super) fn open(asked: Option<&Path>, suppressions: Arc<Suppressions>) -> Result<Jobs, Error> {
        let one = |pid| recording::of_process(pid).map(Asked::One);
        let asked = match asked {
            None => Asked::Mine,
            Some(path) if path.is_dir() => {
                let found = recording::find(Some(path))?;
                Asked::Folder(found.first().and_then(|r| r.parent()).unwrap_or(path).into())
            }
            Some(path) => match path.to_str().filter(|_| !path.exists()).map(str::parse::<u32>) {
                Some(Ok(pid)) => one(pid)?,
                _ => Asked::One(recording::find(Some(path))?.swap_remove(0)),
            },
        };
        let mut jobs = Jobs { asked, known: HashSet::new(), suppressions, seen: Vec::new() };
        jobs.look();
        if jobs.seen.is_empty() {
            return Err(jobs.nothing().status(status::USAGE));
        }
        Ok(jobs)
    }

    fn nothing(&self) -> Error {
        match &self.asked {
            Asked::Mine => Error::new("none of your running jobs on this machine is being recorded")
                .hint("record one: strandline run train.py   (one that has ended: strandline top DIR)"),
            Asked::Folder(path) | Asked::One(path) => {
                Error::new(format!("{}: it cannot be read as a recording", shown(path)))
                    .hint(format!("why: strandline report {}", shown(path)))
            }
        }
    }

    /// Begins with recordings that are new.
    fn look(&mut self) {
        let found = match &self.asked {
            Asked::Mine => recording::of_this_user(&|path| self.known.contains(path)),
            Asked::Folder(folder) => recording::list(folder),
            Asked::One(path) => vec![path.clone()],
        };
        for path in found {
            // One whose header is not written yet is looked at again.
            if !self.known.contains(&path)
                && let Some(followed) = Followed::open(self.known.len(), &path, &self.suppressions)
            {
                self.known.insert(path);
                self.seen.push(Seen { followed: Some(followed), rows: Vec::new() });
            }
        }
    }

    /// Takes all that is new.
    pub(super) fn rows(&mut self) -> Vec<Rank> {
        for seen in &mut self.seen {
            let Some(followed) = &mut seen.followed else { continue };
            followed.take(&mut |_| {});
            seen.rows = rank::rows_of(followed);
            if followed.is_over() {
                // Its rows stay; what they were made of need not.
                seen.followed = None;
            }
        }
        self.seen.iter().flat_map(|s| s.rows.iter().cloned()).collect()
    }

    /// Follows until `stop` is dropped. Rows that nobody has taken yet are not waited for.
    pub(super) fn follow(mut self, rows: &Sender<Vec<Rank>>, stop: &Receiver<()>) {
        for round in 1.. {
            let _ = rows.try_send(self.rows());
            if stop.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if round % LOOK == 0 {
                self.look();
            }
        }
    }
}
