//! `strandline diff`: what is more in one recording (or snapshot) than in another, or at another moment, by the line that allocated it; several
//! runs in one table.

mod runs;

use crate::analyze::{Judged, Moment, Place, Suppressions};
use crate::error::{Error, status};
use crate::say::{self, shown};
use crate::{cli, recording, terminal};
use serde_json::Value;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use strandline::replay::Replay;
use strandline::report::diff::{Diff, Side};
use strandline::report::{percent, size};

/// Runs the command; the result is the exit status.
///
/// # Errors
/// One of the two cannot be read, or has no such moment.
pub(crate) fn main(options: &cli::Diff) -> Result<u8, Error> {
    let paths: Vec<&Path> =
        std::iter::once(&options.base).chain(&options.new).map(PathBuf::as_path).collect();
    let Some(asked) = runs::asked(&paths) else { return two(options) };
    if options.at.is_some() {
        let what = "--at is for two recordings; runs in a table are compared by their peaks";
        return Err(Error::new(what).status(status::USAGE));
    }
    let all = runs::compare(asked)?;
    print(
        options.format,
        &all.json(),
        |out| all.text(out, terminal::style_of_stdout()),
        |out| all.html(out),
    )?;
    let Some(worse) = options.fail_if_worse else { return Ok(0) };
    let (part, bytes, _) = allowed(worse);
    let names = all.worse(part, bytes);
    if names.is_empty() {
        return Ok(0);
    }
    say::line(format!(
        "exit status {} (--fail-if-worse): {}",
        status::WORSE,
        shown(Path::new(&names.join(", ")))
    ));
    Ok(status::WORSE)
}

/// Two, line by line.
fn two(options: &cli::Diff) -> Result<u8, Error> {
    let Some(new) = options.new.first() else { return Ok(0) };
    let (base, new) = (One::read(&options.base, options)?, One::read(new, options)?);
    let diff = Diff::of(base.side(), new.side());
    print(
        options.format,
        &diff.json(),
        |out| diff.text(out, terminal::style_of_stdout()),
        |out| diff.html(out),
    )?;
    let Some(worse) = options.fail_if_worse else { return Ok(0) };
    let (part, bytes, allowed) = allowed(worse);
    let Some(by) = diff.worse_by(part, bytes) else { return Ok(0) };
    let part = diff.in_percent().map(|p| format!(" ({p})")).unwrap_or_default();
    say::line(format!(
        "exit status {} (--fail-if-worse): {} more in use{part}; {allowed} is allowed",
        status::WORSE,
        size(by)
    ));
    Ok(status::WORSE)
}

/// How much more may be: a part of what the base has, bytes, and both in words.
fn allowed(worse: cli::Worse) -> (f64, u64, String) {
    match worse {
        cli::Worse::Part(part) => (part, 0, percent(part)),
        cli::Worse::Bytes(bytes) => (0.0, bytes, size(bytes)),
    }
}

fn print(
    format: cli::DiffFormat,
    json: &Value,
    text: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    html: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> Result<(), Error> {
    let mut out = Vec::new();
    match format {
        cli::DiffFormat::Json => writeln!(out, "{json:#}"),
        cli::DiffFormat::Text => text(&mut out),
        cli::DiffFormat::Html => html(&mut out),
    }
    .map_err(|e| Error::new(e.to_string()))?;
    say::out(&String::from_utf8_lossy(&out));
    Ok(())
}

/// One of the two.
struct One {
    name: String,
    place: Place,
    replay: Replay,
    is_damaged: bool,
}

impl One {
    fn read(asked: &Path, options: &cli::Diff) -> Result<One, Error> {
        let (path, at) = split(asked);
        let found = recording::find(Some(&path))?;
        let path = recording::only(&found)?;
        let judged = Judged::read(path, &Suppressions::default(), &mut |_| {})?;
        judged.warn_of_damage();
        // A snapshot is of a moment that somebody chose; of a run, the fullest one says most.
        let usual = if judged.read.is_snapshot { Moment::End } else { Moment::Peak };
        let place = at.or_else(|| options.at.clone()).unwrap_or(usual).find(&judged)?;
        let replay = judged.again()?.replay_until(place.events, |_, _| ());
        Ok(One { name: shown(path), place, replay, is_damaged: !judged.read.damage.is_empty() })
    }

    fn side(&self) -> Side<'_> {
        let One { name, place, replay, is_damaged } = self;
        Side { name, moment: &place.words, replay, is_damaged: *is_damaged }
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
