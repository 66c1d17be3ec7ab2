//! What filled a device at one moment, in classes that sum to the driver's total.
//!
//! The class of a block follows from where it was born and how it died, so this is a second pass over the
//! items, once the moment is known: [`Pass::new`], [`Pass::apply`] for every item, [`Pass::finish`].

mod class;
mod twins;

pub use self::class::{Class, Classifier, Death};
use super::{Device, Held, PhaseKind, Progress, Replay};
use crate::event::{Block, Body, Bytes, DeviceId, Event, Item, Names, Nanos, named, total};
use rustc_hash::FxHashMap;

named! {
    /// Which moment.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum At {
        /// The peak of `allocated`.
        Peak = "peak",
        /// An allocation that failed.
        Oom = "oom",
        /// Any other event.
        Event = "step",
    }
}

/// The moment right after event number `event` (from 0) of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Device.
    pub device: DeviceId,
    /// Number of the event: see [`super::Peak::event`] and [`super::OomEvent::event`].
    pub event: u64,
    /// What the moment is.
    pub at: At,
    /// What the driver called free then, where the program asked.
    pub free: Option<Bytes>,
}

impl Moment {
    /// The moment a report shows: the last out-of-memory of a device, else its peak.
    pub fn of(d: &Device) -> Moment {
        match d.ooms.last() {
            Some(o) => Moment { device: d.id, event: o.event, at: At::Oom, free: o.free },
            None => Moment { device: d.id, event: d.peak_allocated.event, at: At::Peak, free: None },
        }
    }
}

/// The bytes of a device, by what they were used for: those that were asked for, so that weights, gradients and
/// optimizer state are what a model counts of itself. All but the last three sum to `reserved`; with
/// `outside` and `free`, where the driver told, to the device's total.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Anatomy {
    /// When.
    pub time: Nanos,
    /// In which step (from 1).
    pub step: u32,
    /// Doing what (as of the thread of the moment's event).
    pub phase: PhaseKind,
    /// Allocated before the first backward outside of all phases, and never freed.
    pub weights: Bytes,
    /// Allocated in backward and not freed there; of blocks that no step frees, those as large as a weight.
    pub gradients: Bytes,
    /// Allocated in an optimizer and living on.
    pub optimizer: Bytes,
    /// Allocated in forward, freed in backward (or for it).
    pub activations: Bytes,
    /// Born and dead within one phase of one microbatch.
    pub temporaries: Bytes,
    /// Blocks that a finding calls left behind.
    pub left_behind: Bytes,
    /// Blocks that a finding counts, which are replaced by larger ones.
    pub growing: Bytes,
    /// Blocks that a finding which is suppressed counts.
    pub suppressed: Bytes,
    /// The most that would have been allocated up to the moment without what a finding counts of earlier steps; `None` where none counts
    /// anything. What a step allocates of it the step may need.
    pub peak_without: Option<Bytes>,
    /// Blocks of none of these classes (libraries' workspaces), what the allocator rounded the others up by,
    /// unverified blocks.
    pub other: Bytes,
    /// Allocated before the recording began, as the sum that torch told: whose it is nobody saw.
    pub before_recording: Bytes,
    /// Freed by the job, but not reusable yet.
    pub pending: Bytes,
    /// Reserved, neither allocated nor pending.
    pub cached: Bytes,
    /// Sum of the classes up to `before_recording`.
    pub allocated: Bytes,
    /// `allocated` + `pending` + `cached`.
    pub reserved: Bytes,
    /// What the driver counts beyond `reserved`: context, libraries, other processes; `None` where nothing
    /// told.
    pub outside: Option<Bytes>,
    /// Part of `outside`: context and libraries of this process; `None` where the driver does not tell.
    pub libraries: Option<Bytes>,
    /// What each library was seen to take for itself, most first: a part of `libraries`, which has also what cannot be seen.
    pub seen_libraries: Vec<(String, Bytes)>,
    /// Part of `outside`: other processes; `None` where the driver does not tell.
    pub other_processes: Option<Bytes>,
    /// Free.
    pub free: Option<Bytes>,
}

impl Anatomy {
    /// Adds what was asked for to its class. What the allocator rounded up is no part of a model: it adds as
    /// much as 1 MiB to a block where it does not split what is left of a segment.
    fn add(&mut self, class: Class, block: &Block) {
        let (rounded, bytes) = (block.rounded.0, class.share(block));
        self.other.0 = self.other.0.saturating_add(rounded - bytes);
        let field = match class {
            Class::Weights => &mut self.weights,
            Class::Gradients => &mut self.gradients,
            Class::Optimizer => &mut self.optimizer,
            Class::Activations => &mut self.activations,
            Class::Temporaries => &mut self.temporaries,
            Class::LeftBehind => &mut self.left_behind,
            Class::Growing => &mut self.growing,
            Class::Suppressed => &mut self.suppressed,
            Class::Other => &mut self.other,
        };
        field.0 = field.0.saturating_add(bytes);
    }
}

/// A block that was live at the moment.
#[derive(Debug)]
struct Subject {
    held: Held,
    born_in: PhaseKind,
    death: Option<Death>,
    /// How many events were before that.
    died_after: u64,
}

/// The second pass.
#[derive(Debug)]
pub struct Pass {
    moment: Moment,
    replay: Replay,
    /// The state at the moment, once it is reached.
    anatomy: Option<Anatomy>,
    subjects: Vec<Subject>,
    /// Which of them lives at an address.
    at: FxHashMap<u64, usize>,
    job: Classifier,
}

impl Pass {
    /// A pass that will tell the anatomy of `moment`.
    pub fn new(moment: Moment) -> Pass {
        Pass {
            moment,
            replay: Replay::new(),
            anatomy: None,
            subjects: Vec::new(),
            at: FxHashMap::default(),
            job: Classifier::default(),
        }
    }

    /// Takes the next item, the same ones in the same order as the first pass.
    pub fn apply(&mut self, item: &Item, names: &Names) {
        if let Item::Event(e) = item {
            return self.apply_event(e);
        }
        let progress = self.replay.apply(item, names);
        self.fold(progress);
        self.job.see(item, names);
    }

    /// The same of an event.
    #[inline]
    pub fn apply_event(&mut self, e: &Event) {
        let progress = self.replay.apply_event(e);
        self.fold(progress);
        self.job.event(&e.body, e.time);
        match &e.body {
            Body::FreeRequested(b) | Body::Alloc(b) if self.anatomy.is_some() => self.ended(b),
            _ => {}
        }
        if self.anatomy.is_none() && self.replay.events() > self.moment.event {
            let phase = match &e.body {
                Body::Alloc(b) => PhaseKind::of(b.phase, self.replay.trained()),
                _ => self.replay.phase(e.thread),
            };
            self.stop(e.time, phase);
        }
    }

    /// The moment: copies what lives.
    fn stop(&mut self, time: Nanos, phase: PhaseKind) {
        let Some(d) = self.replay.device(self.moment.device) else { return };
        let mut a = Anatomy {
            time,
            step: self.replay.steps() + 1,
            phase,
            pending: d.pending,
            allocated: d.allocated,
            reserved: d.reserved.max(Bytes(d.allocated.0.saturating_add(d.pending.0))),
            before_recording: d.before_recording,
            seen_libraries: self.replay.calls().on(d.id),
            ..Anatomy::default()
        };
        a.cached = Bytes(a.reserved.0.saturating_sub(a.allocated.0).saturating_sub(a.pending.0));
        self.anatomy = Some(a);
        for h in self.replay.blocks(self.moment.device).filter(|h| !h.pending) {
            // The raw phase says nothing of evaluation before a backward was seen; here all of the past is
            // known.
            let born_in = PhaseKind::of(h.block.phase, self.replay.trained());
            self.at.insert(h.block.addr.0, self.subjects.len());
            self.subjects.push(Subject { held: *h, born_in, death: None, died_after: 0 });
        }
    }

    /// The process has ended: a killed one says no end.
    pub fn ends(&mut self) {
        if self.replay.ended().is_none() {
            let progress = self.replay.finish();
            self.fold(progress);
        }
    }

    /// Steps that turned out to be one: what was noted of them was of that one.
    fn fold(&mut self, progress: Progress) {
        let Some(n) = progress.step.filter(|_| progress.folded) else { return };
        self.anatomy.iter_mut().for_each(|a| a.step = a.step.min(n));
        for s in &mut self.subjects {
            s.held.step = s.held.step.min(n);
            s.death.iter_mut().for_each(|d| d.step = d.step.min(n));
        }
    }

    /// A block that was live at the moment was freed, or its address was handed out again.
    fn ended(&mut self, b: &Block) {
        if b.device != self.moment.device {
            return;
        }
        let Some(i) = self.at.remove(&b.addr.0) else { return };
        if let Some(s) = self.subjects.get_mut(i) {
            let phase = PhaseKind::of(b.phase, true);
            let (step, microbatch) = (self.replay.steps() + 1, self.replay.microbatches() + 1);
            s.death = Some(Death { phase, step, microbatch });
            s.died_after = self.replay.events().saturating_sub(1);
        }
    }

    /// The anatomy; `None` where the moment was not reached. `counted` says of a block (as it was at the moment) whether a leak
    /// finding counts it, `class_by` what findings call it, where it is old enough for that; the replay it is given is this pass's
    /// own, at the end of the recording: its ids are those of the first pass.
    pub fn finish(
        mut self,
        counted: &dyn Fn(&Held) -> bool,
        class_by: &dyn Fn(&Replay, &Held) -> Option<Class>,
    ) -> Option<Anatomy> {
        let mut a = self.anatomy.take()?;
        a.peak_without = self.peak_without(&a, counted);
        self.job.last_step = self.replay.steps();
        self.job.failed_step = (self.moment.at == At::Oom).then_some(a.step);
        // What a job frees on its way out, it frees after its last step.
        if let Some(from) = self.replay.torn_down_from() {
            let late = |s: &&mut Subject| s.died_after >= from;
            let deaths = self.subjects.iter_mut().filter(late).filter_map(|s| s.death.as_mut());
            deaths.for_each(|d| d.step = d.step.max(self.job.last_step + 1));
        }
        let mut sum = 0u64;
        let subjects = self.subjects.iter().map(|s| {
            sum = sum.saturating_add(s.held.block.rounded.0);
            let soon = self.job.died_soon(&s.held, s.death);
            let found = class_by(&self.replay, &s.held).filter(|class| !soon || *class == Class::Growing);
            let class = match found {
                _ if s.held.unverified => Class::Other,
                Some(class) => class,
                None => self.job.class(&s.held, s.born_in, s.death),
            };
            (s.held, s.death, class)
        });
        self.job.settle(&self.replay, subjects, |held, class| a.add(class, &held.block));
        // What was there before the recording has no block; so the classes sum to what torch says.
        let unseen = a.allocated.0.saturating_sub(sum);
        a.before_recording.0 = a.before_recording.0.min(unseen);
        a.other.0 = a.other.0.saturating_add(unseen - a.before_recording.0);
        self.outside(&mut a);
        Some(a)
    }

    fn peak_without(&self, a: &Anatomy, counted: &dyn Fn(&Held) -> bool) -> Option<Bytes> {
        // What a snapshot's history does not tell of was there before its first step.
        let born = |held: &Held| if held.born.0 == 0 { 0 } else { held.step };
        let mut by_step: Vec<(u32, u64)> = self
            .subjects
            .iter()
            .filter(|s| !s.held.unverified && !s.held.pending && counted(&s.held))
            .map(|s| (born(&s.held), s.held.block.rounded.0))
            .collect();
        if by_step.is_empty() {
            return None;
        }
        by_step.sort_unstable();
        let all = total(by_step.iter().filter(|b| b.0 < a.step).map(|b| b.1));
        let rows = &self.replay.device(self.moment.device)?.rows;
        let (mut blocks, mut kept, mut most) =
            (by_step.iter().peekable(), 0u64, a.allocated.0.saturating_sub(all));
        for row in rows.iter().filter(|r| r.step < a.step) {
            while let Some(block) = blocks.next_if(|b| b.0 < row.step) {
                kept = kept.saturating_add(block.1);
            }
            most = most.max(row.peak.0.saturating_sub(kept));
        }
        Some(Bytes(most))
    }

    /// What the driver counts beyond what torch reserved.
    fn outside(&self, a: &mut Anatomy) {
        let Some(d) = self.replay.device(self.moment.device) else { return };
        let Some(c) = d.capacity else { return };
        let outside = match self.moment.free {
            Some(free) => c.total.0.saturating_sub(free.0).saturating_sub(a.reserved.0),
            None if c.source == "properties" => return,
            None => c.others.0.min(c.total.0.saturating_sub(a.reserved.0)),
        };
        a.outside = Some(Bytes(outside));
        a.free = Some(Bytes(c.total.0.saturating_sub(a.reserved.0).saturating_sub(outside)));
        if let Some((r, process)) = d.driver.and_then(|r| Some((r, r.process?))) {
            let others = r.total.0.saturating_sub(r.free.0).saturating_sub(process.0).min(outside);
            a.other_processes = Some(Bytes(others));
            a.libraries = Some(Bytes(outside - others));
        }
    }
}

#[cfg(test)]
mod tests;
