//! What a judgement says, complete enough to be printed.

use super::certainty::{Bound, Certainty, Evidence};
use super::severity::Severity;
use crate::event::{DeviceId, SiteId, StreamHandle, StreamId};
use crate::replay::Held;

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Blocks allocated on a side stream stay live after the stream was left, more of them with every step.
    LiveAfterStreamExit,
    /// Blocks of the main stream (or of a private pool) stay live, more of them with every step or
    /// microbatch.
    StepGrowth,
    /// Freed blocks that never become reusable, because they wait for a stream.
    DeferredFree,
    /// Freed memory of streams that allocate no more. A note, as are all that follow.
    StrandedCache,
    /// Segments that small old blocks pin.
    Fragmentation,
    /// Blocks that pile up and vanish at once, again and again.
    CycleGarbage,
    /// Blocks of a side stream that stay, and do not become more.
    ResidentOnSideStream,
    /// State that an optimizer made when it first stepped.
    LazyState,
    /// Pools of captured graphs, in which nothing is seen.
    OpaquePool,
    /// Memory that goes to the driver and comes back with every step.
    AllocatorPressure,
    /// What was live when a recording too short to be judged ended.
    LiveAtExit,
}

impl Kind {
    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::LiveAfterStreamExit => "live-after-stream-exit",
            Kind::StepGrowth => "step-growth",
            Kind::DeferredFree => "deferred-free",
            Kind::StrandedCache => "stranded-cache",
            Kind::Fragmentation => "fragmentation",
            Kind::CycleGarbage => "cycle-garbage",
            Kind::ResidentOnSideStream => "resident-on-side-stream",
            Kind::LazyState => "lazy-state",
            Kind::OpaquePool => "opaque-pool",
            Kind::AllocatorPressure => "allocator-pressure",
            Kind::LiveAtExit => "live-at-exit",
        }
    }

    /// The same for a program that does not use PyTorch: in the words of whoever asks CUDA itself.
    pub fn remedy_without_torch(self) -> Option<&'static str> {
        match self {
            Kind::StepGrowth | Kind::LiveAfterStreamExit => Some(
                "free it when the work that needed it is done, or bound what is kept; of arrays keep numbers: float(x)",
            ),
            Kind::CycleGarbage => self.remedy(),
            _ => None,
        }
    }

    /// What helps against it in general, as a clause; `None` where nothing needs help.
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Kind::LiveAfterStreamExit => {
                "whatever keeps these tensors must let go of them when the step that used the stream is over"
            }
            Kind::StepGrowth => {
                "keep numbers of a step, not tensors: .item(), or .detach() before a loss or an output is stored"
            }
            Kind::DeferredFree => {
                "synchronize the stream that is waited for now and then, or use wait_stream in place of record_stream"
            }
            Kind::StrandedCache => {
                "make the stream once and reuse it: what was freed on a stream only that stream can use"
            }
            Kind::Fragmentation => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            Kind::CycleGarbage => {
                "break the cycle, for example with weakref, or call gc.collect() every few steps"
            }
            Kind::AllocatorPressure => {
                "a slightly smaller batch, or no empty_cache() in the loop, saves that time"
            }
            Kind::ResidentOnSideStream | Kind::LazyState | Kind::OpaquePool | Kind::LiveAtExit => {
                return None;
            }
        })
    }

    /// Whether it is about blocks that live on; the others are about memory that was freed, or explain.
    pub fn is_leak(self) -> bool {
        matches!(self, Kind::LiveAfterStreamExit | Kind::StepGrowth)
    }
}

/// What "per step" means in a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GrainName {
    /// Per step.
    Step,
    /// Per microbatch.
    Microbatch,
    /// Per second, in a job without steps.
    Tick,
}

impl GrainName {
    /// The stable name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            GrainName::Step => "step",
            GrainName::Microbatch => "microbatch",
            GrainName::Tick => "tick",
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

/// When the device will be full, in the finding's grain from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepsToOom {
    /// At the highest rate seen lately.
    pub low: u64,
    /// At the current rate.
    pub mid: u64,
    /// At the lowest rate that is still in keeping with what was seen; `u64::MAX` where growth dies away
    /// before the device is full.
    pub high: u64,
}

/// When the device will be full, in seconds from now on at the pace of the last steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondsToOom {
    /// The earliest.
    pub low: u64,
    /// The most likely.
    pub mid: u64,
    /// The latest; `u64::MAX` where growth dies away before the device is full.
    pub high: u64,
}

/// A site's part in a finding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FindingSite {
    /// Which: [`crate::replay::Replay::site`] has its line, your line, and a stack whose frames `Names` has.
    pub site: SiteId,
    /// Its part of the finding's bytes, 0 to 1.
    pub share: f64,
    /// Old blocks of it at the last mark.
    pub blocks_now: u64,
    /// Their bytes.
    pub bytes_now: u64,
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
    /// When the device will be full; `None` where its size is not known.
    pub steps_to_oom: Option<StepsToOom>,
    /// The same in seconds; `None` also where no clock tells how long a step takes.
    pub seconds_to_oom: Option<SecondsToOom>,
    /// The last mark that it was judged at.
    pub last_step: u32,
    /// One whole sentence with its numbers: why.
    pub explain: String,
    /// Sites by falling share.
    pub sites: Vec<FindingSite>,
    /// What the user has said about it, so that it counts for nothing: `known.supp:2`, the line of a suppression file, or
    /// `--allow-growth 1MiB/step`. It is shown as that and nowhere else.
    pub suppressed_by: Option<String>,
}

impl Finding {
    /// Whether a block is of the kind that this finding counts: of its device, stream and sites, and not
    /// older than it. For [`crate::replay::anatomy::Pass::finish`].
    pub fn counts(&self, h: &Held) -> bool {
        let born = if self.grain == GrainName::Microbatch { h.microbatch } else { h.step };
        h.block.device == self.device
            && self.stream.is_none_or(|s| s.id == h.stream)
            && born >= self.first_step
            && self.sites.iter().any(|s| s.site == h.site)
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

    /// The same of blocks that live on: what it counts was left behind.
    pub fn is_active_leak(&self) -> bool {
        self.grows() && self.kind.is_leak()
    }
}
