//! `strandline diff`: what is more in one recording (or snapshot) than in another, or at another moment, by the line that allocated it.

use crate::analyze::{Judged, Moment, Place, Suppressions};
use crate::error::{Error, status};
use crate::say::{self, shown};
use crate::{cli, recording, snapshot, terminal};
use std::path::{Path, PathBuf};
use strandline::replay::Replay;
use strandline::report::diff::{Diff, Side};
use strandline::report::{percent, size};

/// Runs the command; the result is the exit status.
///
/// # Errors
/// One of the two cannot be read, or has no such moment.
pub(crate) fn main(options: &cli::Diff) -> Result<u8, Error> {
    let (base, new) = (One::read(&options.base, options)?, One::read(&options.new, options)?);
    let diff = Diff::of(base.side(), new.side());
    let mut text = Vec::new();
    match options.format {
        cli::DumpFormat::Json => {
            serde_json::to_writer_pretty(&mut text, &diff.json()).map_err(|e| Error::new(e.to_string()))?;
            text.push(b'\n');
        }
        cli::DumpFormat::Text => {
            diff.text(&mut text, terminal::style_of_stdout()).map_err(|e| Error::new(e.to_string()))?
        }
    }
    say::out(&String::from_utf8_lossy(&text));
    let Some(worse) = options.fail_if_worse else { return Ok(0) };
    let (part, bytes, allowed) = match worse {
        cli::Worse::Part(part) => (part, 0, percent(part)),
        cli::Worse::Bytes(bytes) => (0.0, bytes, size(bytes)),
    };
    let Some(by) = diff.worse_by(part, bytes) else { return Ok(0) };
    let part = diff.in_percent().map(|p| format!(" ({p})")).unwrap_or_default();
    say::line(format!(
        "exit status {}, for --fail-if-worse: {} more in use{part}; {allowed} may be",
        status::WORSE,
        size(by)
    ));
    Ok(status::WORSE)
}

/// One of the two.
struct One {
    name: String,
    place: Place,
    replay: Replay,
}

impl One {
    fn read(asked: &Path, options: &cli::Diff) -> Result<One, Error> {
        let (path, at) = split(asked);
        let found = recording::find(Some(&path))?;
        let path = recording::only(&found)?;
        let judged = Judged::read(path, &Suppressions::default(), &mut |_| {})?;
        // A snapshot is of a moment that somebody chose; of a run, the fullest one says most.
        let usual = if judged.is_snapshot() { Moment::End } else { Moment::Peak };
        let place = at.or_else(|| options.at.clone()).unwrap_or(usual).find(&judged)?;
        let replay = snapshot::replay_at(&judged, &place)?;
        Ok(One { name: shown(path), place, replay })
    }

    fn side(&self) -> Side<'_> {
        Side { name: &self.name, moment: &self.place.words, replay: &self.replay }
    }
}

/// `REC@step:10`: a recording and a moment of it. What lies there under its whole name is meant as it is.
fn split(asked: &Path) -> (PathBuf, Option<Moment>) {
    let parts = asked.to_str().filter(|_| !asked.exists()).and_then(|text| text.rsplit_once('@'));
    match parts.and_then(|(path, moment)| Some((path, moment.parse().ok()?))) {
        Some((path, moment)) => (path.into(), Some(moment)),
        None => (asked.to_path_buf(), None),
    }
}
