//! What of a recording a snapshot shows: the window of its history, and which blocks.

use super::options::Options;
use crate::analyze::{Judged, Place};
use crate::error::Error;
use rustc_hash::FxHashSet;
use strandline::event::{Addr, Body, Bytes, DeviceId, Event, Nanos, StreamHandle};
use strandline::replay::Replay;
use strandline::report::snapshot::Filter;

/// Number of the event with which the history begins.
///
/// # Errors
/// There is no such step.
pub(super) fn begin(options: &Options, judged: &Judged, place: &Place) -> Result<u64, Error> {
    if let Some(n) = options.history {
        return Ok(judged.steps.first_event_of_last(n, place.events));
    }
    let Some(steps) = options.steps else { return Ok(0) };
    match judged.steps.begin_of(steps.from).filter(|&event| event <= place.events) {
        Some(event) => Ok(event),
        None => {
            let what = format!("step {} does not begin before the moment that is shown", steps.from);
            Err(Error::usage(what, "another moment: --at step:N"))
        }
    }
}

/// The filter, but for ages: those are known at the moment only.
///
/// # Errors
/// No stream and no stack is meant.
pub(super) fn filter(options: &Options, judged: &Judged) -> Result<Filter, Error> {
    let mut filter = Filter { min_size: Bytes(options.min_size.map_or(0, |s| s.0)), ..Filter::default() };
    if let Some(stream) = &options.stream {
        filter.streams = Some(streams(stream, &judged.replay)?);
    }
    if let Some(pattern) = &options.site {
        let stacks = Filter::stacks_with(&judged.read.names, pattern);
        if stacks.is_empty() {
            let what = format!("no stack in this recording has a frame with \"{pattern}\"");
            return Err(Error::usage(
                what,
                "a frame looks like train.py:14 Trainer.step, and you can give any part of it",
            ));
        }
        filter.stacks = Some(stacks);
    }
    Ok(filter)
}

/// Streams by number, by handle, `default`, or `side` for all that are not the main one.
fn streams(asked: &str, replay: &Replay) -> Result<Vec<(DeviceId, StreamHandle)>, Error> {
    let handle = asked.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok());
    let found: Vec<_> = (replay.streams().iter())
        .filter(|s| match asked {
            "default" => s.handle.0 == 0,
            "side" => replay.is_side(s.id),
            _ => handle.map_or_else(|| asked.parse() == Ok(s.id.0), |h| s.handle.0 == h),
        })
        .map(|s| (s.device, s.handle))
        .collect();
    if found.is_empty() {
        let what = format!("no stream \"{asked}\" in this recording");
        let hint = "give its number (as printed in the report), its handle (0x…), `default` or `side`";
        return Err(Error::usage(what, hint));
    }
    Ok(found)
}

/// Which blocks grow so many steps old, found in a pass over the events.
pub(super) struct Aged {
    steps: u32,
    born: FxHashSet<(DeviceId, Addr, Nanos)>,
}

impl Aged {
    /// Blocks of at least so many steps.
    pub(super) fn new(steps: u32) -> Aged {
        Aged { steps, born: FxHashSet::default() }
    }

    /// An event that the replay has not taken yet.
    pub(super) fn see(&mut self, e: &Event, replay: &Replay) {
        let Body::FreeRequested(b) = &e.body else { return };
        if let Some(h) = replay.block(b.device, b.addr)
            && replay.steps().saturating_add(1).saturating_sub(h.step) >= self.steps
        {
            self.born.insert((b.device, b.addr, h.born));
        }
    }

    /// At the moment that is shown: what is in use by then is as old as it is.
    pub(super) fn finish(mut self, replay: &Replay) -> FxHashSet<(DeviceId, Addr, Nanos)> {
        for h in replay.devices().flat_map(|d| replay.blocks(d.id)) {
            if replay.steps().saturating_add(1).saturating_sub(h.step) >= self.steps {
                self.born.insert((h.block.device, h.block.addr, h.born));
            }
        }
        self.born
    }
}
