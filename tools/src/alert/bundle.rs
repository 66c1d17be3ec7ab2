//! Evidence that survives whatever comes next: a folder with the report as text and JSON and a snapshot of the last steps.
//!
//! Few of them, none of them large, none of them overwritten; and one that is there is whole.

use super::attempt::HISTORY;
use crate::analyze::{self, Judged, Suppressions};
use crate::error::Error;
use crate::files::{self, Folder};
use crate::say::{self, shown};
use crate::snapshot;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline::event::named;
use strandline::report::{Report, Style, json, text};

named! {
    /// Why evidence is kept.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Why {
        /// An alert.
        Alert = "alert",
        /// An allocation failed.
        OutOfMemory = "oom",
        /// The job was asked to end.
        Terminated = "sigterm",
    }
}

impl Why {
    /// How many are kept for this reason: alerts must not take the room of what ends the job.
    fn most(self) -> usize {
        match self {
            Why::Alert => 3,
            Why::OutOfMemory | Why::Terminated => 1,
        }
    }
}

/// A snapshot larger than this is left out.
const LARGEST: u64 = 64 << 20;

/// The bundles of a run.
pub(super) struct Bundles {
    folder: PathBuf,
    suppressions: Arc<Suppressions>,
    made: Vec<Why>,
}

impl Bundles {
    /// None yet.
    pub(super) fn new(folder: &Path, suppressions: Arc<Suppressions>) -> Bundles {
        Bundles { folder: folder.into(), suppressions, made: Vec::new() }
    }

    /// Keeps evidence of the process of a recording, unless there is enough for this reason. Says where it is.
    pub(super) fn make(&mut self, why: Why, recording: &Path) {
        let before = self.made.iter().filter(|w| **w == why).count();
        if before >= why.most() {
            return;
        }
        self.made.push(why);
        match self.write(why, recording) {
            Ok(path) => say::line(format!("report and snapshot saved in {}", shown(&path))),
            Err(e) => say::line(format!("report and snapshot could not be saved: {e}")),
        }
    }

    fn write(&self, why: Why, recording: &Path) -> Result<PathBuf, Error> {
        let judged = [Judged::read(recording, &self.suppressions, &mut |_| {})?.measured(&mut |_| {})?];
        let home = Folder::ours(&self.folder).map_err(|e| Error::io("cannot write", &self.folder, e))?;
        let name = format!(".bundle-part-{}", std::process::id());
        let part = self.folder.join(&name);
        let fail = |e| Error::io("cannot write", &part, e);
        let _ = fs::remove_dir_all(&part);
        let folder = home.within(OsStr::new(&name)).map_err(fail)?;
        let done = fill(&folder, &analyze::report(&judged, None)).map_err(fail).and_then(|()| {
            let path = part.join("snapshot.pickle");
            // A process of which no block was seen has nothing to show.
            if judged[0].has_blocks() {
                let to = || files::create_in_own_folder(&path);
                snapshot::write(&judged[0], &path, Some(HISTORY), to)?;
            }
            if fs::metadata(&path).is_ok_and(|m| m.len() > LARGEST) {
                say::line(
                    "the snapshot is too large for a bundle and was left out; strandline snapshot writes it",
                );
                fs::remove_file(&path).map_err(fail)?;
            }
            self.name(&home, &name, why)
        });
        if done.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        done
    }

    /// Gives it its name: the next number that nobody has taken.
    fn name(&self, home: &Folder, part: &str, why: Why) -> Result<PathBuf, Error> {
        for number in 1.. {
            let name = format!("bundle-{number}-{}", why.name());
            let path = self.folder.join(&name);
            // A folder is never renamed over one that holds something.
            match home.rename(OsStr::new(part), OsStr::new(&name)) {
                Ok(()) => return Ok(path),
                Err(_) if path.exists() => {}
                Err(e) => return Err(Error::io("cannot create", path, e)),
            }
        }
        Err(Error::new("all folder names bundle-<n> are taken: delete old bundles"))
    }
}

fn fill(folder: &Folder, report: &Report<'_>) -> std::io::Result<()> {
    let file = |name: &str| folder.create_new(OsStr::new(name));
    let mut out = Vec::new();
    text::write(&mut out, report, Style::default())?;
    file("report.txt")?.write_all(&out)?;
    out.clear();
    json::write(&mut out, report)?;
    file("report.json")?.write_all(&out)
}
