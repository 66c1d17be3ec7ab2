//! `strandline snapshot`: a memory_viz snapshot out of a recording, made outside of the job.

use crate::analyze::{self, Feed, Given, Judged};
use crate::error::{Error, status};
use crate::run::shown;
use crate::say::Progress;
use crate::{cli, recording, say};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use strandline::event::Item;
use strandline::report::Facts;
use strandline::report::snapshot::{Snapshot, Source};

/// Runs the command; the result is the exit status.
///
/// # Errors
/// The recording cannot be read, or the snapshot cannot be written.
pub(crate) fn main(options: &cli::Snapshot) -> Result<u8, Error> {
    let cli::Moment::End = options.at;
    let found = recording::find(options.recording.as_deref())?;
    make_and_tell(analyze::only(&found)?, options.output.as_deref())?;
    Ok(0)
}

/// Makes the snapshot of a recording's end, and says where it is and what to do with it. Its path goes to stdout.
///
/// # Errors
/// The recording cannot be read, or the snapshot cannot be written.
pub(crate) fn make_and_tell(recording: &Path, output: Option<&Path>) -> Result<(), Error> {
    let mut progress = Progress::new();
    let judged = Judged::read(recording, None, &mut |events| {
        progress.show(|| format!("reading {}: {:.1} million events", shown(recording), events as f64 / 1e6));
    })?;
    drop(progress);
    let path = output.map_or_else(|| beside(recording), PathBuf::from);
    let entries = write(&judged, &path)?;
    say::line(format!("snapshot of the end of the run, {entries} events: drop it on pytorch.org/memory_viz"));
    say::out(&format!("{}\n", shown(&path)));
    Ok(())
}

/// `a.strand` → `a.end.pickle`.
fn beside(recording: &Path) -> PathBuf {
    recording.with_extension("end.pickle")
}

/// Writes under another name first, so that a snapshot that is there is whole.
fn write(judged: &Judged, path: &Path) -> Result<u64, Error> {
    let fail = |e| Error::io("cannot write the snapshot", path, e).status(status::FAILED);
    let part = path.with_extension("part");
    let out = BufWriter::with_capacity(1 << 20, File::create(&part).map_err(fail)?);
    let facts = Facts::of(judged.replay());
    let source = Source {
        replay: judged.replay(),
        names: judged.names(),
        steps: &judged.steps,
        epoch_us: judged.epoch_us(),
        alloc_conf: facts.text("alloc_conf").unwrap_or_default(),
        history: None,
    };
    let left_behind = |held: &_| judged.is_left_behind(held, judged.replay());
    let mut snapshot = Snapshot::begin(out, source, &left_behind).map_err(fail)?;
    let mut feed = Feed::open(&judged.path)?;
    while let Some((given, _)) = feed.next() {
        match given {
            Given::Events(events) => {
                events.iter().try_for_each(|e| snapshot.apply(&Item::Event(*e))).map_err(fail)?;
            }
            Given::Item(item) => snapshot.apply(&item).map_err(fail)?,
        }
    }
    let (mut out, written) = snapshot.finish().map_err(fail)?;
    out.flush().map_err(fail)?;
    drop(out);
    std::fs::rename(&part, path).map_err(fail)?;
    Ok(written.entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_recording_and_the_moment() {
        assert_eq!(beside(Path::new("x/h-r0.strand")), Path::new("x/h-r0.end.pickle"));
    }
}
