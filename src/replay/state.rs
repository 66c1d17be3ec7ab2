//! The state of a recorded process, and how it is read. What events change in it is in `apply`, `marks`, `restore`, `teardown` and
//! `failures`.

use super::calls::Calls;
use super::cohort::{Cohort, Cohorts, Now};
use super::device::{Device, PendingWait};
use super::failed::Failed;
use super::held::{Freed, Held};
use super::leaving::Leaving;
use super::progress::{Coverage, Inconsistency, PhaseKind, Progress};
use super::quiet::Quiescence;
use super::refused::Refused;
use super::series::Point;
use super::site::{Site, Sites};
use super::stream::{Stream, Streams};
use crate::event::steps::{InPass, Iterations, StepMachine, StepSource};
use crate::event::{
    Addr, Bytes, DeviceId, DriverMemory, Frame, Item, Names, Nanos, OpenSegment, PackageFolders, SiteId,
    StackId, StreamId, ThreadId,
};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The fact by which a reader tells a replay to count iterations instead of seconds: the stack of the allocations that begin them. No
/// recording has it.
pub const ITERATIONS: &str = "iterations";
/// The fact by which a reader tells a replay how a pass comes to places that call backward: `[first stack, second stack, name of an` [`InPass`]`]`
/// each. No recording has it.
pub const PASSES: &str = "passes";

/// What is known of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadState {
    /// What it did when it allocated last.
    pub(super) phase: PhaseKind,
    /// Site of what its open outermost backward allocates; nesting depth.
    pub(super) backward: (SiteId, u32),
}

/// The state of a recorded process after the items that were applied.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    pub(super) machine: StepMachine,
    pub(super) now: Now,
    pub(super) devices: Vec<Device>,
    pub(super) streams: Streams,
    pub(super) quiet: Quiescence,
    pub(super) sites: Sites,
    pub(super) cohorts: Cohorts,
    /// By thread number: they are dense.
    pub(super) threads: Vec<ThreadState>,
    /// Current stream by thread and device, where it was seen to change.
    pub(super) currents: FxHashMap<(u16, u8), StreamId>,
    /// Site of what autograd threads allocate: of the backward that was begun last and is still open, or
    /// ended last.
    pub(super) backward: SiteId,
    pub(super) inconsistencies: Vec<Inconsistency>,
    pub(super) meta: serde_json::Value,
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) gaps: u64,
    pub(super) time: Nanos,
    pub(super) coverage: Coverage,
    /// A backward or an optimizer was seen.
    pub(super) trained: bool,
    /// When a backward or an optimizer last ended, or a manual step.
    pub(super) trained_until: Nanos,
    pub(super) ended: Option<Nanos>,
    /// Steps and microbatches that have ended.
    pub(super) steps: u32,
    pub(super) microbatches: u32,
    pub(super) last_mark_time: Nanos,
    pub(super) clock: super::clock::StepClock,
    /// Events are missing up to the next checkpoint.
    pub(super) dropped: bool,
    pub(super) generation: u32,
    /// Sizes of what the runtime handed out, by address.
    pub(super) runtime: FxHashMap<u64, u64>,
    pub(super) calls: Calls,
    /// See [`Replay::suppose_usable`].
    pub(super) supposed: Option<Bytes>,
    pub(super) failed: Option<Failed>,
    /// Calls that CUDA has refused, of threads that were given nothing since.
    pub(super) refused: Vec<Refused>,
    /// How often what a device looked like was copied for one.
    pub(super) scenes: u32,
    /// When Python's collector was last seen to have made a full collection; step 0: not since that is seen.
    pub(super) collected: Option<Now>,
    /// An optimizer or a backward has ended, and nothing was allocated since: if nothing ever is, what is freed now is freed
    /// by a job that ends, and the last step's end was before.
    pub(super) trailing: bool,
    /// What was freed since.
    pub(super) freed: Vec<Freed>,
    /// Number of the event at which that began.
    pub(super) freed_from: u64,
    /// What had been freed so when the recording ended.
    pub(super) torn_down: Vec<Freed>,
    /// What a job frees whose steps a clock ends.
    pub(super) leaving: Leaving,
    /// When the first answer of the job's probe was given of which it is not noted yet what had been freed by then.
    pub(super) answer_due: Option<Nanos>,
}

impl Replay {
    /// A process of which nothing is known yet.
    pub fn new() -> Replay {
        Replay { now: Now { step: 1, microbatch: 1 }, ..Replay::default() }
    }

    /// Takes the next item. `names` must already know the stack that an [`Item::Stack`] announces.
    pub fn apply(&mut self, item: &Item, names: &Names) -> Progress {
        match item {
            Item::Event(e) => return self.apply_event(e),
            Item::Stack(id) => self.learn_stack(*id, names),
            Item::Meta(serde_json::Value::Object(m)) => {
                let answers = m.get("holders").and_then(|_| Some(self.meta.get_mut("holders")?.take()));
                m.iter().for_each(|(key, fact)| self.meta[key] = fact.clone());
                if m.contains_key("holders") {
                    self.take_answers(&answers.unwrap_or_default());
                }
                if let Some(told) = m.get(ITERATIONS)
                    && let Some(stack) = told["stack"].as_u64()
                {
                    let after = told["after_ns"].as_u64().map(Nanos);
                    self.machine.count_iterations(Iterations { stack: StackId(stack as u32), after });
                }
                m.get(PASSES)
                    .and_then(|p| p.as_array())
                    .into_iter()
                    .flatten()
                    .for_each(|p| self.tell_passes(p));
                self.sizes_from_facts();
                self.sites.packages = PackageFolders::of_facts(&self.meta);
            }
            Item::Checkpoint(c) => self.checkpoint(c),
            Item::Dropped(_) => self.dropped = true,
            Item::Driver(d) => self.driver(d),
            Item::End(t) => {
                self.note_answers(*t);
                self.ended = Some(*t);
                self.time = self.time.max(*t);
                if self.exit_status().is_some_and(|s| s > 0) {
                    self.died(false);
                }
                return self.finish();
            }
            _ => {}
        }
        Progress::default()
    }

    fn driver(&mut self, d: &DriverMemory) {
        self.capacity(d.device, d.total, d.free, "driver");
        if let Some(dev) = self.devices.get_mut(d.device.0 as usize) {
            dev.driver = Some(*d);
        }
    }

    /// Tells the machine one entry of the fact [`PASSES`]. What is none is ignored.
    fn tell_passes(&mut self, entry: &serde_json::Value) {
        let place = |i: usize| Some(StackId(u32::try_from(entry[i].as_u64()?).ok()?));
        let how = InPass::ALL.into_iter().find(|how| entry[2] == how.name());
        if let (Some(first), Some(second), Some(how)) = (place(0), place(1), how) {
            self.machine.tell_passes([first, second], how);
        }
    }

    /// Tells which line a stack stands for, before an event uses it. [`Replay::apply`] does it for
    /// [`Item::Stack`].
    pub fn learn_stack(&mut self, stack: StackId, names: &Names) {
        self.sites.learn(stack, names);
        self.calls.learn(stack, names);
    }

    /// Steps that have ended.
    pub fn steps(&self) -> u32 {
        self.steps
    }
    /// Microbatches that have ended.
    pub fn microbatches(&self) -> u32 {
        self.microbatches
    }
    /// What iterations are counted by, where they are ([`ITERATIONS`]).
    pub fn iterations(&self) -> Option<Iterations> {
        self.machine.iterations()
    }
    /// What steps are counted by.
    pub fn step_source(&self) -> StepSource {
        self.machine.source()
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
    /// When the last step ended.
    pub fn last_step_time(&self) -> Nanos {
        self.last_mark_time
    }
    /// The step that was under way at a moment, from 1; of a long recording to a step or two. `None` where that is not known.
    pub fn step_at(&self, time: Nanos) -> Option<u32> {
        self.clock.at(time)
    }
    /// The same, quicker where moments are asked for in their order: `near` is kept from one to the next, and may begin as anything.
    pub fn step_near(&self, time: Nanos, near: &mut usize) -> Option<u32> {
        self.clock.near(time, near)
    }
    /// When the recording says that it is complete.
    pub fn ended(&self) -> Option<Nanos> {
        self.ended
    }
    /// The status that the process ended with, where it ended by itself and that was recorded.
    pub fn exit_status(&self) -> Option<u64> {
        self.meta["exit_status"].as_u64()
    }
    /// The process is known to have ended by itself, with status 0, or to have gone on when it ended the recording.
    pub fn ended_well(&self) -> bool {
        self.ended.is_some() && (self.exit_status() == Some(0) || self.meta["ended"] == "stopped")
    }
    /// Facts about the process (the recording's `Meta` items, later ones over earlier ones); null: none was told.
    pub fn meta(&self) -> &serde_json::Value {
        &self.meta
    }
    /// How much of the process was seen.
    pub fn coverage(&self) -> Coverage {
        self.coverage
    }
    /// It did nothing with GPU memory: a worker that compiles, say, which asked for no more than a device and its stream.
    pub fn is_idle(&self) -> bool {
        self.coverage == Coverage::None && self.lost == 0
    }
    /// What CUDA handed out beside the allocator's blocks and segments.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }
    /// The call that first failed for good, where one did.
    pub fn failed(&self) -> Option<&Failed> {
        self.failed.as_ref()
    }
    /// What a recording of a real process cannot contain.
    pub fn inconsistencies(&self) -> &[Inconsistency] {
        &self.inconsistencies
    }

    /// Devices on which anything happened, by ordinal.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|d| d.is_seen())
    }
    /// One device.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(id.0 as usize).filter(|d| d.is_seen())
    }
    /// Largest difference between own and torch's totals on any device.
    pub fn accounting_drift(&self) -> Bytes {
        self.devices.iter().map(|d| d.accounting_drift).max().unwrap_or_default()
    }
    /// Streams by [`StreamId`].
    pub fn streams(&self) -> &[Stream] {
        &self.streams.list
    }
    /// One stream.
    pub fn stream(&self, id: StreamId) -> Option<&Stream> {
        self.streams.list.get(id.0 as usize)
    }
    /// Whether it is a side stream: not the default one, and (all but) never the current one of the thread
    /// that trains when an optimizer or a backward ends, or at a manual step.
    pub fn is_side(&self, id: StreamId) -> bool {
        self.streams.is_side(id)
    }
    /// Whether a file is of an installed package, of PyTorch or of Python itself, and not the user's own.
    pub fn is_installed(&self, file: &str) -> bool {
        self.sites.is_installed(file)
    }

    /// Call sites by [`SiteId`].
    pub fn sites(&self) -> &[Site] {
        &self.sites.list
    }
    /// One call site.
    pub fn site(&self, id: SiteId) -> Option<&Site> {
        self.sites.list.get(id.0 as usize)
    }
    /// The first frame of a stack that is outside of packages and Python's library.
    pub fn your_line(&self, stack: StackId) -> Option<&Frame> {
        self.sites.your_line(stack)
    }
    /// Cohorts by [`CohortId`].
    pub fn cohorts(&self) -> &[Cohort] {
        &self.cohorts.list
    }
    /// The step and the microbatch (from 1) in which Python's collector was last seen to have made a full collection; 0 where none
    /// was seen yet, `None` where they cannot be seen.
    pub fn last_full_collection(&self) -> Option<(u32, u32)> {
        self.collected.map(|n| (n.step, n.microbatch))
    }
    /// Whether an optimizer or a backward ended last, and nothing was allocated since: if nothing ever is, the step is over.
    pub fn is_trailing(&self) -> bool {
        self.trailing
    }
    /// Whether the job freed something after its last step's optimizer, and ended: marks are of before, blocks and segments of
    /// after.
    pub fn is_torn_down(&self) -> bool {
        !self.torn_down.is_empty()
    }
    /// How many events are before that.
    pub fn torn_down_from(&self) -> Option<u64> {
        self.is_torn_down().then_some(self.freed_from)
    }
    /// What it freed then: cohorts and sizes.
    pub fn torn_down(&self) -> impl Iterator<Item = (&Cohort, u64)> {
        self.torn_down
            .iter()
            .filter_map(|f| Some((self.cohorts.list.get(f.cohort.0 as usize)?, f.size.rounded)))
    }
    /// Live and pending blocks of a device, in no particular order.
    pub fn blocks(&self, device: DeviceId) -> impl Iterator<Item = &Held> {
        self.devices.get(device.0 as usize).into_iter().flat_map(|d| d.table.iter())
    }
    /// What lives on each stream of a device: a cohort may be of several.
    pub fn live_of_streams(&self, device: DeviceId) -> BTreeMap<StreamId, Point> {
        let mut all: BTreeMap<StreamId, Point> = BTreeMap::new();
        for h in self.blocks(device).filter(|h| !h.pending && !h.unverified) {
            all.entry(h.stream).or_default().add(Point { blocks: 1, bytes: h.block.rounded.0 });
        }
        all
    }
    /// The live or pending block at an address.
    pub fn block(&self, device: DeviceId, addr: Addr) -> Option<&Held> {
        self.devices.get(device.0 as usize)?.table.get(addr.0)
    }
    /// Segments (and mapped ranges of expandable ones) of a device, by address.
    pub fn segments(&self, device: DeviceId) -> impl Iterator<Item = &OpenSegment> {
        self.devices.get(device.0 as usize).into_iter().flat_map(|d| d.segments.iter())
    }
    /// Freed blocks that are not reusable yet, by the stream they wait for, most bytes first.
    pub fn pending(&self, device: DeviceId) -> Vec<PendingWait> {
        let waits = self.devices.get(device.0 as usize).map_or(&[][..], |d| &d.waits);
        let mut w: Vec<PendingWait> = waits.iter().copied().filter(|w| w.blocks > 0).collect();
        w.sort_by_key(|w| (std::cmp::Reverse(w.bytes), w.stream));
        w
    }
    /// What a thread that allocates now would be doing.
    pub fn phase(&self, thread: ThreadId) -> PhaseKind {
        self.threads.get(thread.0 as usize).map_or(PhaseKind::Unknown, |t| t.phase)
    }
    /// How often the state was begun anew from a checkpoint: ids of cohorts from before mean nothing any
    /// more.
    pub fn generation(&self) -> u32 {
        self.generation
    }
    /// When a backward or an optimizer last ended, or a step was marked; 0: never since the recording, or what is left of it, began.
    pub fn trained_until(&self) -> Nanos {
        self.trained_until
    }
    /// Whether a backward or an optimizer was ever seen.
    pub fn trained(&self) -> bool {
        self.trained
    }

    #[inline]
    pub(super) fn thread(&mut self, t: ThreadId) -> &mut ThreadState {
        let i = t.0 as usize;
        if self.threads.len() <= i {
            self.threads.resize(i + 1, ThreadState::default());
        }
        &mut self.threads[i]
    }

    /// Counts something that a recording of a real process cannot contain; `first` is asked for the first
    /// example only.
    #[cold]
    pub(super) fn inconsistent(&mut self, what: &'static str, first: impl FnOnce() -> String) {
        match self.inconsistencies.iter_mut().find(|i| i.what == what) {
            Some(i) => i.count += 1,
            None => self.inconsistencies.push(Inconsistency { what, count: 1, first: first() }),
        }
    }
}
