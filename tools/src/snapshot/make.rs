//! Makes a snapshot of a moment of a recording.

use super::options::{Format, Options};
use super::wanted;
use crate::analyze::{Judged, Moment, Place, Suppressions, nothing};
use crate::error::{Error, status};
use crate::files;
use crate::say::{Progress, shown};
use std::cell::Cell;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use strandline::event::{Event, Item};
use strandline::replay::{Held, Replay};
use strandline::report::Facts;
use strandline::report::snapshot::{Language, Snapshot, Source, Standing, Written};

/// Entries of a history beyond which memory_viz is not asked to draw it. Measured in Chromium (docs/measurements.md): with two
/// million (106 MiB) the slowest view is there after 49 s, with 4.2 million it had taken 10 GB and not come to its end.
const MOST_ENTRIES: u64 = 2_000_000;
/// memory_viz reads JSON as one string, and V8's longest has 2^29 - 24 characters.
const MOST_JSON: u64 = (1 << 29) - 24;
/// A snapshot that was made.
pub(super) struct Made {
    pub(super) path: PathBuf,
    /// The moment that it shows.
    pub(super) words: String,
    pub(super) written: Written,
    /// There was memory before the recording, of which no block is known.
    pub(super) lacks_earlier: bool,
}

/// Makes a snapshot.
///
/// # Errors
/// The recording cannot be read, there is no such moment, or the snapshot cannot be written.
pub(super) fn make(
    recording: &Path,
    options: &Options,
    suppressions: &Suppressions,
    to: impl FnOnce(&Path) -> io::Result<files::New>,
) -> Result<Made, Error> {
    let mut progress = Progress::new();
    let judged = Judged::read(recording, suppressions, &mut |events| {
        progress.show(|| format!("reading {}: {:.1} million events", shown(recording), events as f64 / 1e6));
    })?;
    drop(progress);
    if judged.replay.events() == 0 && !judged.read.damage.is_empty() {
        return Err(nothing(&judged));
    }
    judged.warn_of_damage();
    let moment = options.moment();
    let place = moment.find(&judged)?;
    let path = options.output.clone().unwrap_or_else(|| beside(recording, &moment, options.format));
    let written = write_place(&judged, options, &place, &path, || to(&path))?;
    Ok(Made { path, words: place.words, written, lacks_earlier: judged.has_memory_from_before()? })
}

/// `a.strand` → `a.end.pickle`.
fn beside(recording: &Path, moment: &Moment, format: Format) -> PathBuf {
    let ending = match format {
        Format::Pickle => "pickle",
        Format::Json => "json",
    };
    recording.with_extension(format!("{moment}.{ending}"))
}

/// Writes a snapshot of the last event with the history of the last so many steps, or all of it. Returns how many events it shows.
///
/// # Errors
/// The recording cannot be read again, or the snapshot cannot be written.
pub(crate) fn write(
    judged: &Judged,
    path: &Path,
    history: Option<u32>,
    to: impl FnOnce() -> io::Result<files::New>,
) -> Result<u64, Error> {
    let options = Options { history, ..Options::default() };
    let place = Moment::Now.find(judged)?;
    write_place(judged, &options, &place, path, to).map(|written| written.entries)
}

/// Writes it into `to`, which is kept once it is whole. `path` is what it is called.
fn write_place(
    judged: &Judged,
    options: &Options,
    place: &Place,
    path: &Path,
    to: impl FnOnce() -> io::Result<files::New>,
) -> Result<Written, Error> {
    let mut filter = wanted::filter(options, judged)?;
    let from = wanted::begin(options, judged, place)?;
    let is_end = place.events >= judged.replay.events();
    // The state then: what is in use, and how old it is.
    let mut aged = options.min_age.map(wanted::Aged::new);
    let then = match is_end && aged.is_none() {
        true => None,
        false => {
            let see = |e: &Event, replay: &Replay| aged.iter_mut().for_each(|a| a.see(e, replay));
            Some(judged.again()?.replay_until(place.events, see))
        }
    };
    let replay = then.as_ref().unwrap_or(&judged.replay);
    filter.born = aged.map(|a| a.finish(replay));
    let steps = if is_end {
        judged.steps.clone()
    } else {
        judged.steps.before(place.events, judged.replay.torn_down_from())
    };
    let facts = Facts::of(&judged.replay);
    let source = Source {
        replay,
        names: &judged.read.names,
        steps: &steps,
        epoch_us: judged.epoch_ns() / 1000,
        alloc_conf: facts.text("alloc_conf").unwrap_or_default(),
        from,
        filter: &filter,
        language: match options.format {
            Format::Pickle => Language::Pickle,
            Format::Json => Language::Json,
        },
    };
    let fail = |e| Error::io("cannot write the snapshot", path, e).status(status::FAILED);
    let bytes = Cell::new(0);
    let out = Counted { to: to().map_err(fail)?, bytes: &bytes };
    let most_bytes = if source.language == Language::Json { MOST_JSON } else { u64::MAX };
    let mut snapshot = Snapshot::begin(out, source, &|held| standing(judged, held, replay)).map_err(fail)?;
    let mut left = place.events;
    let mut applied = Ok(());
    judged.again()?.until(|item, _| {
        if matches!(item, Item::Event(_)) {
            let Some(less) = left.checked_sub(1) else { return ControlFlow::Break(()) };
            left = less;
        }
        applied = snapshot.apply(item).map_err(fail);
        if (snapshot.entries() > MOST_ENTRIES || bytes.get() > most_bytes) && !options.any_size {
            applied = Err(too_large(judged, place, from, snapshot.entries()));
        }
        if applied.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    applied?;
    let (out, written) = snapshot.finish().map_err(fail)?;
    out.to.keep().map_err(fail)?;
    Ok(written)
}

/// What is to stand out about a block.
fn standing(judged: &Judged, held: &Held, replay: &Replay) -> Option<Standing> {
    if judged.is_left_behind(held, replay) {
        return Some(Standing::LeftBehind);
    }
    if held.pending {
        return Some(Standing::Deferred);
    }
    held.is_old(replay.steps()).then_some(Standing::Old)
}

/// Names the window that fits, where so many entries do not.
fn too_large(judged: &Judged, place: &Place, from: u64, entries: u64) -> Error {
    let what = match entries {
        n if n > MOST_ENTRIES => {
            format!("the snapshot would have more than {} million events", MOST_ENTRIES / 1_000_000)
        }
        _ => format!("the snapshot would be more than {} of JSON", strandline::report::size(MOST_JSON)),
    };
    let steps = judged.steps.ended().map_or(0, |(first, last)| u64::from(last - first + 1));
    let a_step = (place.events - from.min(place.events)) / steps.max(1);
    let hint = match entries.min(MOST_ENTRIES).checked_div(a_step) {
        Some(n) if steps > 1 && n > 0 => format!("the last steps only: --history {}", n.min(steps)),
        _ => "the large blocks only: --min-size 1MiB".to_string(),
    };
    let more = "or use --stream, --site or --min-age; --any-size writes the snapshot anyway";
    Error::usage(format!("{what}, which memory_viz does not draw"), format!("{hint} ({more})"))
}

/// A sink that counts.
struct Counted<'a, W> {
    to: W,
    bytes: &'a Cell<u64>,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.bytes.set(self.bytes.get() + n as u64);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_recording_and_the_moment() {
        let name = |moment, format| beside(Path::new("x/h-r0.strand"), &moment, format);
        assert_eq!(name(Moment::End, Format::Pickle), Path::new("x/h-r0.end.pickle"));
        assert_eq!(name(Moment::Step(7), Format::Json), Path::new("x/h-r0.step7.json"));
    }
}
