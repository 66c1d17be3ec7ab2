//! `strandline diff`: what is more in one recording (or snapshot) than in another, by the line that allocated it.

use crate::analyze::{Judged, Moment, Place, Suppressions};
use crate::error::Error;
use crate::say::{self, shown};
use crate::{cli, recording, snapshot, terminal};
use std::path::Path;
use strandline::replay::Replay;
use strandline::report::diff::{Diff, Side};

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
    Ok(0)
}

/// One of the two.
struct One {
    name: String,
    place: Place,
    replay: Replay,
}

impl One {
    fn read(path: &Path, options: &cli::Diff) -> Result<One, Error> {
        let found = recording::find(Some(path))?;
        let path = recording::only(&found)?;
        let judged = Judged::read(path, &Suppressions::default(), &mut |_| {})?;
        // A snapshot is of a moment that somebody chose; of a run, the fullest one says most.
        let usual = if judged.is_snapshot() { Moment::End } else { Moment::Peak };
        let place = options.at.clone().unwrap_or(usual).find(&judged)?;
        let replay = snapshot::replay_at(&judged, &place)?;
        Ok(One { name: shown(path), place, replay })
    }

    fn side(&self) -> Side<'_> {
        Side { name: &self.name, moment: &self.place.words, replay: &self.replay }
    }
}
