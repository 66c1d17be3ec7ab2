//! One more pass over a recording: how memory, steps, phases and streams went on in time, in bounded size.

use super::sums::Key;
use crate::event::{Body, DeviceId, Event, Item, Names, SiteId, StreamHandle, ThreadId};
use crate::replay::{Progress, Replay};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Pieces of time of which each has two readings of a counter at the most: its highest and its last.
const PIECES: u64 = 10_000;
/// Slices and instants that are kept of a process.
const MOST: usize = 200_000;

/// What a slice or an instant is a part of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// What a thread does: backwards, optimizer steps.
    Thread(ThreadId),
    /// Phases and marks that the job names.
    Named,
    /// A stream that a thread has as its current one.
    Stream(DeviceId, StreamHandle),
}

/// A part of the time; an instant where it has no length.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) track: Track,
    pub(super) name: String,
    pub(super) thread: ThreadId,
    pub(super) from: u64,
    /// `None`: an instant.
    pub(super) to: Option<u64>,
}

/// Readings of what a device holds.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Time, allocated, reserved, waiting to be freed.
    pub(super) points: Vec<[u64; 4]>,
    /// Time, and what lines hold, in the order of [`Timeline::lines`].
    pub(super) by_line: Vec<(u64, Vec<u64>)>,
    /// Time, used as the driver counts.
    pub(super) driver: Vec<[u64; 2]>,
    piece: u64,
    highest: [u64; 4],
    last: [u64; 4],
    now: Vec<u64>,
}

/// The pass.
#[derive(Debug, Default)]
pub struct Timeline {
    replay: Replay,
    width: u64,
    /// When the first event was.
    began: Option<u64>,
    pub(super) lines: Vec<SiteId>,
    numbers: FxHashMap<SiteId, usize>,
    pub(super) lanes: BTreeMap<DeviceId, Lane>,
    /// Step, from, to.
    pub(super) steps: Vec<(u32, u64, u64)>,
    /// Microbatch, and its end.
    pub(super) microbatches: Vec<(u32, u64)>,
    pub(super) slices: Vec<Slice>,
    pub(super) left_out: u64,
    pub(super) threads: BTreeMap<ThreadId, (u32, String)>,
    /// Backwards and optimizer steps that have begun, and when.
    begun: BTreeMap<(&'static str, ThreadId), Vec<u64>>,
    scopes: BTreeMap<(ThreadId, DeviceId), (StreamHandle, u64)>,
    phase: Option<(String, ThreadId, u64)>,
}

impl Timeline {
    /// A pass over the recording that `first` has replayed, which follows what these lines hold.
    pub fn new(first: &Replay, lines: Vec<SiteId>) -> Timeline {
        let numbers = lines.iter().enumerate().map(|(i, site)| (*site, i)).collect();
        Timeline {
            replay: Replay::new(),
            width: first.time().0.div_ceil(PIECES).max(1),
            lines,
            numbers,
            ..Timeline::default()
        }
    }

    /// Takes the next item.
    pub fn apply(&mut self, item: &Item, names: &Names) {
        if let Item::Event(event) = item {
            return self.event(event, names);
        }
        let progress = self.replay.apply(item, names);
        self.after(progress);
        match item {
            Item::Thread(t) => drop(self.threads.insert(t.thread, (t.tid, t.name.clone()))),
            Item::Driver(d) => {
                let used = d.total.0.saturating_sub(d.free.0);
                self.lanes.entry(d.device).or_default().driver.push([d.time.0, used]);
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &Event, names: &Names) {
        let freed = match &event.body {
            Body::FreeRequested(b) | Body::FreeCompleted(b) => {
                let held = self.replay.block(b.device, b.addr).filter(|h| !h.pending);
                held.map(|h| (Key::of(h), h.block.rounded.0))
            }
            _ => None,
        };
        self.began.get_or_insert(event.time.0);
        let progress = self.replay.apply_event(event);
        self.after(progress);
        self.slice(event, names);
        let device = match (&event.body, freed) {
            (_, Some((key, bytes))) => {
                self.line(key, |now| now.saturating_sub(bytes));
                key.device
            }
            (Body::Alloc(b), None) => {
                let held = self.replay.block(b.device, b.addr).map(|h| (Key::of(h), h.block.rounded.0));
                if let Some((key, bytes)) = held {
                    self.line(key, |now| now.saturating_add(bytes));
                }
                b.device
            }
            (body, None) => match body.allocator_device() {
                Some(device) => device,
                None => return,
            },
        };
        self.read(device, event.time.0);
    }

    /// Nothing more comes.
    pub fn end(&mut self) {
        let progress = self.replay.finish();
        self.after(progress);
        let now = self.replay.time().0;
        self.lanes.values_mut().for_each(Lane::flush);
        for ((thread, device), (stream, since)) in std::mem::take(&mut self.scopes) {
            self.push(Track::Stream(device, stream), String::new(), thread, since, Some(now));
        }
        for ((name, thread), since) in std::mem::take(&mut self.begun) {
            for since in since {
                self.push(Track::Thread(thread), name.to_owned(), thread, since, Some(now));
            }
        }
        if let Some((name, thread, since)) = self.phase.take() {
            self.push(Track::Named, name, thread, since, Some(now));
        }
    }

    fn after(&mut self, progress: Progress) {
        let end = self.replay.last_step_time().0;
        if let Some(step) = progress.step {
            // Steps that turned out to be one.
            while self.steps.pop_if(|s| s.0 >= step).is_some() {}
            // What the file no longer has was no part of this one.
            let began = if step == 1 { 0 } else { self.began.unwrap_or(end) };
            let from = self.steps.last().map_or(began, |s| s.2);
            self.steps.push((step, from, end.max(from)));
        }
        if let Some(n) = progress.microbatch {
            while self.microbatches.pop_if(|m| m.0 >= n).is_some() {}
            self.microbatches.push((n, self.replay.time().0));
        }
    }

    fn line(&mut self, key: Key, change: impl Fn(u64) -> u64) {
        let Some(&number) = self.numbers.get(&key.site) else { return };
        let lane = self.lanes.entry(key.device).or_default();
        lane.now.resize(self.lines.len(), 0);
        lane.now[number] = change(lane.now[number]);
    }

    /// Reads the counters of a device.
    fn read(&mut self, device: DeviceId, time: u64) {
        let Some(d) = self.replay.device(device) else { return };
        let lane = self.lanes.entry(device).or_default();
        let reading = [time, d.allocated.0, d.reserved.0, d.pending.0];
        if time / self.width != lane.piece {
            lane.flush();
            lane.piece = time / self.width;
        }
        if reading[1] >= lane.highest[1] {
            lane.highest = reading;
        }
        lane.last = reading;
    }

    /// What the event begins or ends.
    fn slice(&mut self, event: &Event, names: &Names) {
        let (time, thread) = (event.time.0, event.thread);
        let ended = match event.body {
            Body::BackwardBegin { .. } => return self.begin("backward", thread, time),
            Body::OptimizerBegin(_) => return self.begin("optimizer", thread, time),
            Body::BackwardEnd { .. } => "backward",
            Body::OptimizerEnd(_) => "optimizer",
            Body::Scope { device, to, .. } => return self.scope(thread, device, to, time),
            Body::Mark { name, phase } => {
                let name = names.text(name).unwrap_or_default().to_owned();
                if !phase {
                    return self.push(Track::Named, name, thread, time, None);
                }
                if let Some((name, thread, since)) = self.phase.replace((name, thread, time)) {
                    self.push(Track::Named, name, thread, since, Some(time));
                }
                return;
            }
            _ => return,
        };
        if let Some(since) = self.begun.get_mut(&(ended, thread)).and_then(Vec::pop) {
            self.push(Track::Thread(thread), ended.to_owned(), thread, since, Some(time));
        }
    }

    fn begin(&mut self, what: &'static str, thread: ThreadId, time: u64) {
        self.begun.entry((what, thread)).or_default().push(time);
    }

    /// A thread has another stream as its current one; the default stream is no scope.
    fn scope(&mut self, thread: ThreadId, device: DeviceId, to: StreamHandle, time: u64) {
        let before = match to.0 {
            0 => self.scopes.remove(&(thread, device)),
            _ => self.scopes.insert((thread, device), (to, time)),
        };
        if let Some((stream, since)) = before {
            self.push(Track::Stream(device, stream), String::new(), thread, since, Some(time));
        }
    }

    fn push(&mut self, track: Track, name: String, thread: ThreadId, from: u64, to: Option<u64>) {
        if self.slices.len() >= MOST {
            self.left_out += 1;
            return;
        }
        self.slices.push(Slice { track, name, thread, from, to });
    }
}

impl Lane {
    /// A piece of time is over.
    fn flush(&mut self) {
        let (highest, last) = (std::mem::take(&mut self.highest), self.last);
        if highest[0] > 0 && highest[0] < last[0] {
            self.points.push(highest);
        }
        if last[0] > 0 {
            self.points.push(last);
            if !self.now.is_empty() {
                self.by_line.push((last[0], self.now.clone()));
            }
        }
        self.last = [0; 4];
    }
}
