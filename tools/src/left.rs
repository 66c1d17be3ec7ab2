//! `strandline left`: what a region of a job left behind, also of a job that still runs.

use crate::analyze::Feed;
use crate::error::Error;
use crate::kept::kept_in_scopes;
use crate::process::Target;
use crate::{cli, recording, say};
use serde_json::{Value, json};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use strandline::event::{DeviceId, Frame, Item, make_json_printable, printable};
use strandline::reader::TailState;
use strandline::replay::Replay;
use strandline::report::LeftBehind;

/// How long a process's rings are waited for. Whoever keeps them looks for new ones ten times a second.
const PATIENCE: Duration = Duration::from_secs(3);
const INTERVAL: Duration = Duration::from_millis(20);

/// Runs the command; the result is the exit status.
///
/// # Errors
/// The recording cannot be read, or has no such region.
pub(crate) fn main(options: &cli::Left) -> Result<u8, Error> {
    if options.peak && options.format == cli::DumpFormat::Text {
        return Err(Error::usage("--peak is only in JSON", "add --format json"));
    }
    let found = recording::find(Some(&options.recording))?;
    let path = recording::only(&found)?;
    let region = options.region.as_deref().unwrap_or_default();
    let (mut left, mut replay, mut feed) = read(path, region)?;
    // A process that has just begun to be recorded: what keeps its rings open has not taken them yet.
    let began = Instant::now();
    while is_out_of_reach(&feed) && began.elapsed() < PATIENCE {
        thread::sleep(INTERVAL);
        (left, replay, feed) = read(path, region)?;
    }
    if is_out_of_reach(&feed) {
        // What is in the file may end with an earlier region of this name.
        let what = "the latest events of this process cannot be read while it runs";
        return Err(Error::new(what)
            .hint("run this again when the process has ended (see docs/recording.md, \"The region\")"));
    }
    if !left.marked {
        let what = match &options.region {
            Some(name) => format!("there is no region \"{}\" in this recording", printable(name)),
            None => "--region NAME is missing".to_owned(),
        };
        let named: Vec<String> = left.regions.iter().map(|r| format!("\"{}\"", printable(r))).collect();
        let hint = match named.as_slice() {
            [] => "make one: strandline.mark(\"NAME begin\") and strandline.mark(\"NAME end\")".to_owned(),
            all => format!("regions here: {}", all.join(", ")),
        };
        return Err(Error::usage(what, hint));
    }
    match options.format {
        cli::DumpFormat::Json => {
            let mut value = left.json(&replay, feed.names(), &at_peaks(path, &left, options.peak)?);
            if let Some(told) = &options.kept_by {
                let began = feed.summary().unix_ns;
                add_statements(&mut value, told, &replay, began, |line| left.frames(line, feed.names()))?;
            }
            make_json_printable(&mut value);
            say::out(&format!("{value:#}\n"));
        }
        cli::DumpFormat::Text => {
            say::damage(path, &feed.damage());
            let mut text = Vec::new();
            left.text(&mut text, &replay).map_err(|e| Error::new(e.to_string()))?;
            say::out(&String::from_utf8_lossy(&text));
        }
    }
    Ok(0)
}

/// The recording, replayed to its end.
fn read(path: &Path, region: &str) -> Result<(LeftBehind, Replay, Feed), Error> {
    let (mut left, mut replay, mut feed) = (LeftBehind::new(region), Replay::new(), Feed::open(path)?);
    feed.each(|item, names| match item {
        Item::Event(e) => {
            left.before(e, &replay);
            replay.apply_event(e);
            left.after(e, &replay, names);
        }
        item => drop(replay.apply(item, names)),
    });
    Ok((left, replay, feed))
}

/// Its process runs, and what it has not written to the file yet cannot be read.
fn is_out_of_reach(feed: &Feed) -> bool {
    let summary = feed.summary();
    let is_read = summary.complete || matches!(summary.tail, TailState::Read(_));
    !is_read && Target::recorded(&summary.who).is_alive()
}

/// Gives each line the statement that keeps what it allocated, where that is known from who keeps it, or the file that was not searched for it because
/// it was modified since. `began`: when the recording did, in
/// nanoseconds of the Unix epoch. `frames`: of all stacks that allocated what a line has left.
fn add_statements<'n>(
    left: &mut Value,
    told: &str,
    replay: &Replay,
    began: u64,
    frames: impl Fn(usize) -> Vec<&'n Frame>,
) -> Result<(), Error> {
    let told: Vec<Value> = serde_json::from_str(told).map_err(|e| {
        Error::usage(format!("--kept-by: {e}"), "it is a list of objects with file, line, node and scopes")
    })?;
    let lines = left.get_mut("lines").and_then(Value::as_array_mut);
    for (i, line) in lines.into_iter().flatten().enumerate() {
        let is_same = |t: &&Value| ["file", "line", "node"].iter().all(|key| t.get(key) == line.get(key));
        let scopes = told.iter().find(is_same).and_then(|t| t.get("scopes")?.as_array());
        match scopes.map(|scopes| kept_in_scopes(scopes, frames(i), replay, began)) {
            Some(Ok(kept)) => {
                line["kept_at"] = json!({ "file": kept.file, "line": kept.line, "source": kept.source, "remedy": kept.remedy });
            }
            Some(Err(modified)) => line["modified_source"] = json!(modified),
            None => (),
        }
    }
    Ok(())
}

/// The recording as it stood at each device's peak within the region.
fn at_peaks(path: &Path, left: &LeftBehind, asked: bool) -> Result<Vec<(DeviceId, Replay)>, Error> {
    if !asked {
        return Ok(Vec::new());
    }
    let at_peak = |events| Ok::<_, Error>(Feed::open(path)?.replay_until(events, |_, _| ()));
    left.peaks.iter().map(|(id, peak)| Ok((*id, at_peak(peak.events)?))).collect()
}
