//! What the page draws of one device.

use super::flame::Tree;
use crate::event::{DeviceId, SiteId, StreamId};
use crate::replay::PhaseKind;
use crate::replay::anatomy::Class;
use rustc_hash::FxHashMap;

/// Bytes by class, in the order of [`Class::ALL`].
pub(super) type ByClass = [u64; Class::ALL.len()];

/// Phases in the order of [`Point::phases`].
pub(super) const PHASES: [PhaseKind; 5] = [
    PhaseKind::Forward,
    PhaseKind::Backward,
    PhaseKind::Optimizer,
    PhaseKind::Evaluation,
    PhaseKind::Unknown,
];

/// What was held at one moment, in bytes.
#[derive(Debug, Default)]
pub(super) struct Point {
    /// The step that had just ended.
    pub(super) step: u32,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    pub(super) pending: u64,
    /// The most within the step.
    pub(super) peak: u64,
    /// Of blocks that a finding counts.
    pub(super) left: u64,
    /// By the phase they were born in.
    pub(super) phases: [u64; 5],
    pub(super) streams: FxHashMap<StreamId, u64>,
    /// By what they were used for.
    pub(super) classes: ByClass,
    /// The largest of them.
    pub(super) sites: Vec<(SiteId, u64)>,
}

/// A moment that is looked at more closely.
#[derive(Debug, Default)]
pub(super) struct Closeup {
    pub(super) allocated: u64,
    pub(super) step: u32,
    /// By stack, as a tree of frames.
    pub(super) tree: Tree,
    /// Step of birth → bytes and blocks.
    pub(super) ages: Vec<(u32, u64, u64)>,
    /// By line and stream: bytes and blocks.
    pub(super) lines: FxHashMap<(SiteId, StreamId), (u64, u64)>,
    /// The largest blocks, and how many there are in all.
    pub(super) blocks: Vec<Block>,
    pub(super) count: usize,
}

/// A block that is held.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: u64,
    pub(super) site: SiteId,
    pub(super) stream: StreamId,
    /// The step and the phase it was allocated in.
    pub(super) step: u32,
    pub(super) phase: PhaseKind,
}

/// A device's part.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) device: DeviceId,
    pub(super) peak_event: u64,
    /// When the step of the peak began and ended: nanoseconds, the end included. Rows of steps that are thinned out make it longer.
    pub(super) peak_step: (u64, u64),
    pub(super) points: Vec<Point>,
    /// The moment of an allocation that failed after the last step.
    pub(super) failed: Option<Point>,
    /// Names that the job set, each with the step that it was in.
    pub(super) marks: Vec<(u32, String)>,
    /// Nanoseconds since the step of the peak began, and bytes.
    pub(super) within: Vec<(u64, u64)>,
    pub(super) peak: Option<Closeup>,
    pub(super) end: Option<Closeup>,
}
