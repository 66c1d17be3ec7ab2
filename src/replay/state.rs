//! The state machine itself.

use super::cohort::{Cohort, CohortId};
use super::device::{Device, PendingWait};
use super::progress::{Coverage, Inconsistency, Progress};
use super::site::Site;
use super::stream::Stream;
use crate::event::steps::StepSource;
use crate::event::{
    Addr, Block, DeviceId, Event, Item, Names, Nanos, OpenSegment, SiteId, StackId, StreamId,
};

/// A block that is live or pending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// As its allocation described it. `rounded` is never 0 here: where no report came it is the requested size rounded up to 512.
    pub block: Block,
    /// When it was allocated.
    pub born: Nanos,
    /// The step it was allocated in (from 1).
    pub step: u32,
    /// The microbatch it was allocated in (from 1).
    pub microbatch: u32,
    /// Its free was requested, but is not complete.
    pub pending: bool,
    /// It was open across a loss: whether it is still there is not known.
    pub unverified: bool,
    /// Its stream.
    pub stream: StreamId,
    /// The line that allocated it.
    pub site: SiteId,
    /// Its cohort.
    pub cohort: CohortId,
    /// For a pending block: the stream it waits for, where that was seen.
    pub waits_for: Option<StreamId>,
}

/// The state of a recorded process after the items that were applied.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    devices: Vec<Device>,
    streams: Vec<Stream>,
    sites: Vec<Site>,
    cohorts: Vec<Cohort>,
    inconsistencies: Vec<Inconsistency>,
    meta: serde_json::Map<String, serde_json::Value>,
    events: u64,
    lost: u64,
    time: Nanos,
}

impl Replay {
    /// A process of which nothing is known yet.
    pub fn new() -> Replay {
        Replay::default()
    }

    /// Takes the next item. `names` must already know the stack that an [`Item::Stack`] announces.
    pub fn apply(&mut self, item: &Item, names: &Names) -> Progress {
        let _ = names;
        match item {
            Item::Event(e) => self.apply_event(e),
            _ => Progress::default(),
        }
    }

    /// Takes the next event: the fast path of [`Replay::apply`].
    pub fn apply_event(&mut self, e: &Event) -> Progress {
        self.events += 1;
        self.time = e.time;
        Progress::default()
    }

    /// Tells which line a stack stands for, before an event uses it. [`Replay::apply`] does it for [`Item::Stack`].
    pub fn learn_stack(&mut self, stack: StackId, names: &Names) {
        let _ = (stack, names);
    }

    /// The recording is over: a step whose optimizer has run has ended.
    pub fn finish(&mut self) -> Progress {
        Progress::default()
    }

    /// Steps that have ended.
    pub fn steps(&self) -> u32 {
        0
    }
    /// Microbatches that have ended.
    pub fn microbatches(&self) -> u32 {
        0
    }
    /// What steps are counted by.
    pub fn step_source(&self) -> StepSource {
        StepSource::None
    }
    /// Events applied.
    pub fn events(&self) -> u64 {
        self.events
    }
    /// Records that the recording says were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
    /// Time of the last event.
    pub fn time(&self) -> Nanos {
        self.time
    }
    /// Facts about the process (the recording's `Meta` items, later ones over earlier ones).
    pub fn meta(&self) -> &serde_json::Map<String, serde_json::Value> {
        &self.meta
    }
    /// How much of the process was seen.
    pub fn coverage(&self) -> Coverage {
        Coverage::None
    }
    /// What a recording of a real process cannot contain.
    pub fn inconsistencies(&self) -> &[Inconsistency] {
        &self.inconsistencies
    }

    /// Devices on which anything happened, by ordinal.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }
    /// One device.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().find(|d| d.id == id)
    }
    /// Streams by [`StreamId`].
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }
    /// One stream.
    pub fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.get(id.0 as usize)
    }
    /// Whether it is a side stream: never the current one at a mark on the thread that marks.
    pub fn is_side(&self, id: StreamId) -> bool {
        self.stream(id).is_some_and(|s| s.at_marks == 0 && s.handle.0 != 0)
    }
    /// Call sites by [`SiteId`].
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }
    /// One call site.
    pub fn site(&self, id: SiteId) -> Option<&Site> {
        self.sites.get(id.0 as usize)
    }
    /// Cohorts by [`CohortId`].
    pub fn cohorts(&self) -> &[Cohort] {
        &self.cohorts
    }
    /// Live and pending blocks of a device, in no particular order.
    pub fn blocks(&self, device: DeviceId) -> impl Iterator<Item = &Held> {
        let _ = device;
        std::iter::empty()
    }
    /// The live or pending block at an address.
    pub fn block(&self, device: DeviceId, addr: Addr) -> Option<&Held> {
        let _ = (device, addr);
        None
    }
    /// Segments (and mapped ranges of expandable ones) of a device, in no particular order.
    pub fn segments(&self, device: DeviceId) -> impl Iterator<Item = &OpenSegment> {
        let _ = device;
        std::iter::empty()
    }
    /// Freed blocks that are not reusable yet, by the stream they wait for.
    pub fn pending(&self, device: DeviceId) -> Vec<PendingWait> {
        let _ = device;
        Vec::new()
    }
}
