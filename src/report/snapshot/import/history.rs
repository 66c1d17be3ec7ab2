//! A history that ends in a known state: back to where it began, and forward again, an event at a time.

use super::imported::{Entries, Imported};
use crate::event::{
    Addr, Block, Body, Bytes, DeviceId, Event, LiveBlock, Nanos, OpenSegment, Phase, SegmentOp, StackId,
    ThreadId,
};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// How far a history has been gone through.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// The next entry of each device; empty before the first.
    devices: Vec<Lane>,
    begun: bool,
    step: usize,
    in_optimizer: u32,
}

/// How far a device's entries have been gone through.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// The entry after `next`.
    at: u32,
    /// Times never go back.
    time: u64,
    /// Number and body of the next one that is understood.
    next: Option<(u32, Body)>,
}

impl Lane {
    fn advance(&mut self, entries: &Entries, device: DeviceId) {
        self.next = None;
        let Some(all) = entries.of(device) else { return };
        while let Some(e) = all.get(self.at as usize) {
            let number = self.at;
            self.at += 1;
            self.time = self.time.max(entries.unsigned(e, "time_us").unwrap_or(0));
            if let Some(body) = entries.entry(device, e) {
                self.next = Some((number, body));
                return;
            }
        }
    }
}

impl Imported {
    /// The events of the history, from its beginning.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let mut cursor = Cursor::default();
        std::iter::from_fn(move || self.next(&mut cursor))
    }

    /// The next event; `None` at the end.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Event> {
        let (time, device) = self.soonest(cursor)?;
        let time = Nanos(time.saturating_sub(self.epoch_us).saturating_mul(1000));
        let body = match device {
            Some(device) => {
                let lane = cursor.devices.get_mut(usize::from(device.0))?;
                let (number, mut body) = lane.next.take()?;
                lane.advance(&self.entries, device);
                let told = self.entries.told_phase(device, number);
                if let Body::Alloc(b) = &mut body {
                    // On autograd's own threads there is no Python to be seen.
                    let backward = self.entries.with_frames && b.stack == StackId(0);
                    let seen = Phase { optimizer: cursor.in_optimizer > 0, backward, ..Phase::default() };
                    b.phase = told.unwrap_or(seen);
                    b.rounded = self.rounded.get(&(device, number)).copied().unwrap_or_default();
                } else if let Body::FreeRequested(b) = &mut body {
                    b.phase = told.unwrap_or_default();
                }
                body
            }
            None => {
                let body = self.steps.get(cursor.step)?.body;
                cursor.step += 1;
                match body {
                    Body::OptimizerBegin(_) => cursor.in_optimizer += 1,
                    Body::OptimizerEnd(_) => cursor.in_optimizer = cursor.in_optimizer.saturating_sub(1),
                    _ => {}
                }
                body
            }
        };
        Some(Event { time, thread: ThreadId(0), body })
    }

    /// When the next event was, and on which device; `None`: it is a step's. At one time steps come first.
    pub(super) fn soonest(&self, cursor: &mut Cursor) -> Option<(u64, Option<DeviceId>)> {
        if !cursor.begun {
            cursor.begun = true;
            cursor.devices = self.entries.devices().map(|_| Lane::default()).collect();
            for (device, lane) in self.entries.devices().zip(&mut cursor.devices) {
                lane.advance(&self.entries, device);
            }
        }
        let step = self.steps.get(cursor.step).map(|s| (s.time, None));
        let lanes = self.entries.devices().zip(&cursor.devices);
        let entries = lanes.filter(|(_, l)| l.next.is_some()).map(|(device, l)| (l.time, Some(device)));
        step.into_iter().chain(entries).min_by_key(|(time, _)| *time)
    }

    /// Undoes the history of a device, from the state at its end. The last allocation of an address is the one that is in use then,
    /// and was `rounded` to what is told there.
    pub(super) fn go_back(
        &mut self,
        device: DeviceId,
        state: &mut State,
        rounded: &mut FxHashMap<Addr, Bytes>,
    ) {
        let Some(all) = self.entries.of(device) else { return };
        for (number, e) in all.iter().enumerate().rev() {
            let Some(body) = self.entries.entry(device, e) else { continue };
            if let Body::Alloc(b) = &body
                && let Some(size) = rounded.remove(&b.addr).filter(|s| *s >= b.size)
            {
                self.rounded.insert((device, number as u32), size);
            }
            state.undo(&body);
        }
    }
}

/// What is in use on a device.
#[derive(Default)]
pub(super) struct State {
    pub(super) segments: BTreeMap<u64, OpenSegment>,
    pub(super) blocks: BTreeMap<u64, LiveBlock>,
}

impl State {
    /// As it was before this entry.
    fn undo(&mut self, body: &Body) {
        match body {
            Body::Alloc(b) => drop(self.blocks.remove(&b.addr.0)),
            Body::FreeCompleted(b) => drop(self.blocks.insert(b.addr.0, freed(b, true))),
            Body::FreeRequested(b) => {
                self.blocks.entry(b.addr.0).or_insert_with(|| freed(b, true)).pending = false;
            }
            Body::Segment { .. } => match OpenSegment::of(body) {
                Some((SegmentOp::Alloc | SegmentOp::Map, s)) => self.cut(s.addr.0, s.addr.end(s.size).0),
                Some((_, s)) => drop(self.segments.insert(s.addr.0, s)),
                None => {}
            },
            _ => {}
        }
    }

    /// Takes a range out of the segment that it lies in.
    fn cut(&mut self, from: u64, end: u64) {
        let Some((&at, &s)) = self.segments.range(..=from).next_back() else { return };
        let last = at.saturating_add(s.size.0);
        if last < end {
            return;
        }
        self.segments.remove(&at);
        if at < from {
            self.segments.insert(at, OpenSegment { size: Bytes(from - at), ..s });
        }
        if end < last {
            self.segments.insert(end, OpenSegment { addr: Addr(end), size: Bytes(last - end), ..s });
        }
    }
}

/// A block that was in use before the history and is not at its end.
fn freed(b: &Block, pending: bool) -> LiveBlock {
    let rounded = b.size.0.max(1).checked_next_multiple_of(512).unwrap_or(b.size.0);
    LiveBlock { block: Block { rounded: Bytes(rounded), ..*b }, pending, ..start() }
}

/// In use before the history: since the first step, for all that is known.
pub(super) fn start() -> LiveBlock {
    LiveBlock { step: 1, microbatch: 1, ..LiveBlock::default() }
}
