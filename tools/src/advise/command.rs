//! `strandline advise`: from the options to the exit status.

use super::source::Sources;
use crate::analyze::{self, Judged, Suppressions};
use crate::error::Error;
use crate::{cli, recording, say, terminal};
use serde_json::{Value, json};
use strandline::advise::{Look, Pass, advise};
use strandline::report::advice::Advised;

/// Of the peak, a block that matters is at least this part.
const PART: u64 = 20_000;
/// No block is smaller.
const LEAST: u64 = 512;

/// Runs the command; the exit status is 0 where the recordings could be read.
///
/// # Errors
/// No recording can be read, or it tells nothing of blocks.
pub(crate) fn main(options: &cli::Advise) -> Result<u8, Error> {
    let found = recording::find(options.recording.as_deref())?;
    let judged = analyze::judge(&found, None, &Suppressions::default(), None)?;
    if !judged.iter().any(Judged::has_blocks) {
        let what = "no GPU memory allocated by PyTorch was recorded, so there is nothing to advise";
        return Err(Error::usage(what, "see why: strandline report"));
    }
    judged.iter().for_each(Judged::warn_of_damage);
    let style = terminal::style_of_stdout();
    let mut processes: Vec<Value> = Vec::new();
    for one in judged.iter().filter(|j| j.has_blocks()) {
        let process = one.process();
        let all = advised(one)?;
        if options.json {
            let name = (judged.len() > 1).then(|| say::shown(&one.path));
            let devices: Vec<Value> = all.iter().map(|a| a.json(&process)).collect();
            processes.push(json!({ "process": name, "devices": devices }));
            continue;
        }
        if judged.len() > 1 {
            say::text(&format!("{}\n", say::shown(&one.path)));
        }
        all.iter().for_each(|a| _ = say::text(&a.text(&process, style)));
    }
    if options.json {
        say::out(&format!("{:#}\n", json!({ "schema": 1, "processes": processes })));
    }
    Ok(0)
}

/// The recording read once more, for what was allocated on each device from moment to moment, and what would lower its peak.
fn advised(judged: &Judged) -> Result<Vec<Advised>, Error> {
    let used = judged.replay.devices().filter(|d| d.peak_allocated.bytes.0 > 0);
    let mut pass = Pass::new(used.map(|d| (d.id, (d.peak_allocated.bytes.0 / PART).max(LEAST))));
    let mut feed = judged.again()?;
    feed.each(|item, names| pass.apply(item, names));
    let (replay, timelines) = pass.finish();
    let sources = Sources::of(judged);
    let source = |frame: &_| sources.line(frame);
    let told = timelines.iter().filter_map(|timeline| {
        let look = Look { timeline, replay: &replay, names: feed.names(), source: &source };
        Some(Advised {
            peak: judged.replay.device(timeline.device)?.peak_allocated,
            device: timeline.device,
            all: advise(&look),
            partial: timeline.partial,
        })
    });
    Ok(told.collect())
}
