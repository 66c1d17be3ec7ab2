//! What a judgement says, complete enough to be printed.

use super::amounts::{many, thousands};
use super::certainty::{Bound, Certainty, Evidence};
use super::kind::Kind;
use super::severity::{NEAR_SECONDS, NEAR_STEPS, Severity};
use super::until_full::{SecondsToOom, StepsToOom};
use crate::event::steps::StepSource;
use crate::event::{Addr, DeviceId, SiteId, StackId, StreamHandle, StreamId, named};
use crate::replay::anatomy::Class;
use crate::replay::{Grain, Held, Replay, Site, SiteKind};

named! {
    /// What "per step" means in a finding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum GrainName {
        /// Per step.
        Step = "step",
        /// Per microbatch.
        Microbatch = "microbatch",
        /// Per second, in a job without steps.
        Tick = "tick",
        /// Per iteration of a loop, in a job without steps that is too short to be judged by seconds.
        Iteration = "iteration",
    }
}

impl GrainName {
    /// What a grain is called in this job.
    pub(super) fn of(replay: &Replay, grain: Grain) -> GrainName {
        match (grain, replay.step_source()) {
            (Grain::Microbatch, _) => GrainName::Microbatch,
            (Grain::Step, StepSource::Time) => GrainName::Tick,
            (Grain::Step, StepSource::Iteration) => GrainName::Iteration,
            (Grain::Step, _) => GrainName::Step,
        }
    }

    /// A rate's: `a step`.
    pub fn per(self) -> &'static str {
        match self {
            GrainName::Step => "a step",
            GrainName::Microbatch => "a microbatch",
            GrainName::Tick => "a second",
            GrainName::Iteration => "an iteration",
        }
    }

    /// The noun of sentences: "every second".
    pub fn noun(self) -> &'static str {
        match self {
            GrainName::Tick => "second",
            other => other.name(),
        }
    }
}

/// The stream of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRef {
    /// Dense number.
    pub id: StreamId,
    /// Raw handle.
    pub handle: StreamHandle,
    /// Whether it is a side stream.
    pub side: bool,
    /// How many streams had this handle before.
    pub epoch: u32,
}

impl StreamRef {
    /// A stream of a replay.
    pub(super) fn of(replay: &Replay, id: StreamId) -> Option<StreamRef> {
        let s = replay.stream(id)?;
        Some(StreamRef { id, handle: s.handle, side: replay.is_side(id), epoch: s.epoch })
    }
}

/// A site's part in a finding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FindingSite {
    /// Which: [`crate::replay::Replay::site`] has its line, your line, and a stack whose frames `Names` has.
    pub site: SiteId,
    /// The stack from which most of its bytes came that were live when the finding was young; 0 where none was looked for.
    pub stack: StackId,
    /// Its part of the finding's bytes, 0 to 1.
    pub share: f64,
    /// Old blocks of it at the last mark.
    pub blocks_now: u64,
    /// Their bytes.
    pub bytes_now: u64,
    /// Whether an optimizer allocated them; `None` where that is not told apart: some of both, or a note. What an optimizer made at
    /// a line that also leaks is its own.
    pub of_optimizer: Option<bool>,
}

impl FindingSite {
    /// The site, with the stack that leads to what was found rather than to what its line allocated first.
    pub fn site(&self, replay: &Replay) -> Option<Site> {
        let mut site = replay.site(self.site)?.clone();
        if site.kind == SiteKind::Line && self.stack != StackId(0) {
            site.stack = self.stack;
            // Others may have called that line first.
            if let Some(yours) = replay.your_line(self.stack) {
                site.your_line = Some(yours.clone());
            }
        }
        Some(site)
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its number among what may be leaks in this process, from 1: it stays the same while everything else changes; 0 in a note.
    pub id: u32,
    /// What.
    pub kind: Kind,
    /// Whether it is a leak: the same on every card.
    pub certainty: Certainty,
    /// What the certainty rests on.
    pub evidence: Vec<Evidence>,
    /// Where it ends by itself, where something says so.
    pub bound: Option<Bound>,
    /// How soon it hurts: by steps and time until the device is full.
    pub severity: Severity,
    /// The same were it certain that no reference cycle keeps it: [`Finding::severity`] is a warning at most while Python's
    /// collector may still free it.
    pub urgency: Severity,
    /// What "step" means in the fields below.
    pub grain: GrainName,
    /// Where.
    pub device: DeviceId,
    /// On which stream.
    pub stream: Option<StreamRef>,
    /// The first mark whose blocks are among those left behind.
    pub first_step: u32,
    /// The mark at which it was first said.
    pub detected_step: u32,
    /// The mark at which growth was seen to have stopped; `None` while it stands.
    pub withdrawn_step: Option<u32>,
    /// It was seen for a dozen marks or more.
    pub established: bool,
    /// Bytes per mark over the whole run since `first_step`.
    pub bytes_per_step: f64,
    /// Blocks per mark over the whole run since `first_step`.
    pub blocks_per_step: f64,
    /// Bytes per mark lately.
    pub current_bytes_per_step: f64,
    /// Left behind at the last mark.
    pub bytes_now: u64,
    /// Blocks left behind at the last mark.
    pub blocks_now: u64,
    /// Neither counts what the last marks allocated, so many of them: such blocks are too new to be judged.
    pub not_counted: u32,
    /// So few marks left blocks that these do not tell whether it grows: it is a note, unless a container holds them all that has no limit. The
    /// mean number of marks between them.
    pub sparse: Option<f64>,
    /// When the device will be full; `None` where its size is not known.
    pub steps_to_oom: Option<StepsToOom>,
    /// The same in seconds; `None` also where no clock tells how long a step takes.
    pub seconds_to_oom: Option<SecondsToOom>,
    /// Both count what other findings add to the device, too, what PyTorch reserves beyond the blocks, or a block that is there beside its
    /// larger successor.
    pub with_others: bool,
    /// Both count that it becomes faster by about the same with each mark.
    pub speeds_up: bool,
    /// The last mark that it was judged at.
    pub last_step: u32,
    /// One whole sentence with its numbers: why.
    pub explain: String,
    /// Sites by falling share.
    pub sites: Vec<FindingSite>,
    /// Blocks of these sites that were allocated once, as the lines first ran, and whose size or stack never came again: a library's workspace
    /// (cuBLAS makes one at the first matrix product), and no part of what grows.
    pub once: Vec<Addr>,
    /// What the user has said about it, so that it counts for nothing: `known.supp:2`, the line of a suppression file, or
    /// `--allow-growth 1MiB/step`. It is shown as that and nowhere else.
    pub suppressed_by: Option<String>,
}

/// Evidence of every finding about blocks that outlive others.
pub(super) const LONGEST_LIFE: &str = "longest lifetime of a freed block of the line, in steps";
/// The evidence of how many marks left the blocks.
pub(super) const BIRTHS: &str = "number of steps that allocated these blocks";
/// The evidence of blocks that are made anew and larger each time.
pub(super) const REMADE: &str = "times it was allocated again, larger than before";

impl Finding {
    /// Whether a block is of the kind that this finding counts: of its device, stream and sites, an optimizer's only where the finding
    /// is about those, and not older than it. For [`crate::replay::anatomy::Pass::finish`].
    pub fn counts(&self, h: &Held) -> bool {
        let born = if self.grain == GrainName::Microbatch { h.microbatch } else { h.step };
        h.block.device == self.device
            && self.stream.is_none_or(|s| s.id == h.stream)
            && born >= self.first_step
            && !self.once.contains(&h.block.addr)
            && self
                .sites
                .iter()
                .any(|s| s.site == h.site && s.of_optimizer.is_none_or(|o| o == h.block.phase.optimizer))
    }

    /// What was seen, as the phrase that reports begin it with.
    pub fn headline(&self) -> String {
        let (noun, often) = (self.grain.noun(), (1.0 / self.times_per_step()).round());
        let grain = match self.is_rare() {
            true => format!("{} {}", thousands(often as u64), many(noun)),
            false => noun.to_owned(),
        };
        self.kind.info().headline.replace("{grain}", &grain)
    }

    /// It leaves blocks in at most one of two marks: its rate is one on average.
    pub fn is_rare(&self) -> bool {
        let times = self.times_per_step();
        // Of marks that take turns the first and the last may both have left blocks, several each.
        (1e-9..=if times < self.blocks_per_step { 0.55 } else { 0.5 }).contains(&times)
    }

    /// How often it leaves blocks, however many at once: 0.1 where it is in one of ten marks.
    pub fn times_per_step(&self) -> f64 {
        if let Some(between) = self.sparse {
            return 1.0 / between.max(1.0);
        }
        let until = self.last_step.saturating_sub(self.not_counted);
        let marks = f64::from(until.saturating_sub(self.first_step)) + 1.0;
        // Of what has ended, the marks since then are no measure.
        let births = self.births().filter(|_| self.withdrawn_step.is_none()).map(|births| births / marks);
        births.map_or(self.blocks_per_step, |births| births.min(self.blocks_per_step))
    }

    /// How many different marks left the blocks, of what outlives others.
    pub(super) fn births(&self) -> Option<f64> {
        self.evidence.iter().find(|e| e.what == BIRTHS).map(|e| e.value)
    }

    /// It is about blocks that are made anew and larger each time: nothing of it is old.
    pub fn is_remade(&self) -> bool {
        self.evidence.iter().any(|e| e.what == REMADE)
    }

    /// What it calls a block that it counts; `is_old`: the block has outlived its step.
    pub fn class(&self, h: &Held, is_old: bool) -> Option<Class> {
        let is_due = is_old || self.is_remade();
        if !(self.kind.is_leak() && self.is_growth() && is_due && self.counts(h)) {
            return None;
        }
        Some(match self.is_suppressed() {
            true => Class::Suppressed,
            false if self.is_remade() => Class::Growing,
            false => Class::LeftBehind,
        })
    }

    /// The bytes that its device has, where what it is about is bounded, and by more than these.
    pub fn room_below_bound(&self, replay: &Replay) -> Option<u64> {
        let bound = self.bound.as_ref().filter(|_| self.certainty == Certainty::Bounded)?.bytes?;
        let room = replay.device(self.device)?.capacity?.total.0;
        (bound > room).then_some(room)
    }

    /// Of what is [`Certainty::InUse`], the longest time in marks that any of it lived for.
    pub fn in_use_for(&self) -> Option<u64> {
        let mut evidence = self.evidence.iter().filter(|_| self.certainty == Certainty::InUse);
        let life = evidence.find(|e| e.what == LONGEST_LIFE)?;
        Some(life.value as u64)
    }

    /// Bytes that each mark adds now, where that is more than a fifth off what each did since it began.
    pub fn current_rate(&self) -> Option<f64> {
        self.current_beyond(0.2)
    }

    /// The same, where it is off by more than this part.
    pub fn current_beyond(&self, part: f64) -> Option<f64> {
        let off = (self.current_bytes_per_step - self.bytes_per_step).abs();
        (off > part * self.bytes_per_step.abs()).then_some(self.current_bytes_per_step)
    }

    /// Stands, is a leak or growth, and nothing suppresses it: it makes the verdict.
    pub fn grows(&self) -> bool {
        self.suppressed_by.is_none() && self.is_growth()
    }

    /// Would make the verdict, were it not suppressed.
    pub fn is_suppressed(&self) -> bool {
        self.suppressed_by.is_some() && self.is_growth()
    }

    fn is_growth(&self) -> bool {
        self.withdrawn_step.is_none() && self.certainty >= Certainty::Growing
    }

    /// Time to save and stop: a leak of severity alert, or growth, which may end by itself, that fills the device within 50 steps or ten
    /// minutes.
    pub fn is_imminent(&self) -> bool {
        let is_near = self.steps_to_oom.is_some_and(|s| s.mid <= NEAR_STEPS)
            || self.seconds_to_oom.is_some_and(|s| s.mid <= NEAR_SECONDS);
        self.grows() && self.severity == Severity::Alert && (self.certainty == Certainty::Leak || is_near)
    }

    /// Blocks that are kept, but so little that it is only noted.
    pub fn is_small(&self) -> bool {
        self.certainty == Certainty::Note && self.kind.is_leak() && self.kind.has_holder()
    }

    /// Blocks that are kept, in too few marks for more than a note ([`Finding::sparse`]), until it is known who keeps them.
    pub fn may_be_sparse_leak(&self) -> bool {
        self.sparse.is_some()
            && self.is_small()
            && self.withdrawn_step.is_none()
            && self.suppressed_by.is_none()
    }

    /// The same of blocks that live on: what it counts was left behind.
    pub fn is_active_leak(&self) -> bool {
        self.grows() && self.kind.is_leak()
    }
}
