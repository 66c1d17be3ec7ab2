//! A snapshot as a recording: what it holds, and how its entries are read.

use super::super::unpickle::{Items, Tree, Value};
use crate::event::{
    Addr, Block, Body, Bytes, DeviceId, Item, Names, Phase, PoolId, SegmentOp, StackId, StreamHandle,
};
use crate::replay::PhaseKind;
use rustc_hash::FxHashMap;

/// A snapshot as a recording.
#[derive(Debug, Default)]
pub struct Imported {
    /// What comes before the events.
    pub items: Vec<Item>,
    /// Stacks.
    pub names: Names,
    /// Unix time in microseconds at which its clock is 0.
    pub epoch_us: u64,
    /// Entries that were not understood, and are left out.
    pub strange: u64,
    pub(super) entries: Entries,
    pub(super) steps: Vec<Step>,
    /// What blocks were rounded to that are in use at the end, by device and entry.
    pub(super) rounded: FxHashMap<(DeviceId, u32), Bytes>,
}
/// The entries of the history, as they lie in the snapshot.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) tree: Tree,
    /// A list of entries for each device.
    pub(super) traces: Vec<Value>,
    /// Stacks, by the numbers of their lists of frames.
    pub(super) stacks: FxHashMap<u32, StackId>,
    /// Some stack has frames.
    pub(super) with_frames: bool,
}

impl Entries {
    pub(super) fn devices(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (0..self.traces.len()).map_while(|d| u8::try_from(d).ok().map(DeviceId))
    }

    pub(super) fn of(&self, device: DeviceId) -> Option<Items<'_>> {
        self.tree.items(*self.traces.get(usize::from(device.0))?)
    }

    pub(super) fn int(&self, v: Value, key: &str) -> Option<i128> {
        match self.tree.get(v, key)? {
            Value::Int(i) => Some(i),
            _ => None,
        }
    }

    pub(super) fn unsigned(&self, v: Value, key: &str) -> Option<u64> {
        u64::try_from(self.int(v, key)?).ok()
    }

    pub(super) fn text(&self, v: Value, key: &str) -> &str {
        self.tree.get(v, key).and_then(|t| self.tree.text(t)).unwrap_or_default()
    }

    pub(super) fn list(&self, v: Value, key: &str) -> impl Iterator<Item = Value> + '_ {
        self.tree.get(v, key).and_then(|l| self.tree.items(l)).into_iter().flat_map(|l| l.iter())
    }

    /// Signed in the file.
    pub(super) fn stream(&self, v: Value) -> StreamHandle {
        StreamHandle(self.int(v, "stream").and_then(|s| i64::try_from(s).ok()).unwrap_or(0) as u64)
    }

    pub(super) fn pool(&self, v: Value, key: &str) -> PoolId {
        let pair = self.tree.get(v, key).and_then(|p| self.tree.items(p));
        let number =
            |v: Option<Value>| if let Some(Value::Int(i)) = v { u64::try_from(i).unwrap_or(0) } else { 0 };
        match pair.filter(|p| p.len() == 2) {
            Some(pair) => PoolId(number(pair.get(0)), number(pair.get(1))),
            None => PoolId::DEFAULT,
        }
    }

    pub(super) fn line(&self, frame: Value) -> u32 {
        self.unsigned(frame, "line").and_then(|l| u32::try_from(l).ok()).unwrap_or(0)
    }

    /// The number of its list of frames.
    pub(super) fn frames(&self, v: Value) -> Option<u32> {
        match self.tree.get(v, "frames")? {
            Value::List(number) => Some(number),
            _ => None,
        }
    }

    pub(super) fn stack(&self, v: Value) -> StackId {
        self.frames(v).and_then(|n| self.stacks.get(&n)).copied().unwrap_or(StackId(0))
    }

    /// What was running at an entry, as a snapshot of ours tells it: `step 35 · backward · default stream`.
    pub(super) fn told_phase(&self, device: DeviceId, number: u32) -> Option<Phase> {
        let e = self.of(device)?.get(number as usize)?;
        let mut words = self.text(e, "user_metadata").split(" · ");
        words.next()?.strip_prefix("step ")?.parse::<u32>().ok()?;
        let told: Vec<&str> = words.collect();
        let has = |phase: PhaseKind| told.contains(&phase.name());
        let (backward, optimizer) = (has(PhaseKind::Backward), has(PhaseKind::Optimizer));
        Some(Phase { backward, optimizer, no_grad: has(PhaseKind::Evaluation), ..Phase::default() })
    }

    /// What an entry says; `None` where it is not understood.
    pub(super) fn entry(&self, device: DeviceId, e: Value) -> Option<Body> {
        let action = self.text(e, "action");
        let size = Bytes(self.unsigned(e, "size")?);
        let (stream, pool) = (self.stream(e), self.pool(e, "pool_id"));
        if action == "oom" {
            let (free, stack) = (Bytes(self.unsigned(e, "device_free")?), self.stack(e));
            return Some(Body::Oom { device, requested: size, free, stream, stack });
        }
        let addr = Addr(self.unsigned(e, "addr")?);
        let segment = |op| Some(Body::Segment { op, device, addr, size, stream, pool });
        let block = Block { device, addr, size, stream, pool, ..Block::default() };
        match action {
            "alloc" => Some(Body::Alloc(Block { stack: self.stack(e), ..block })),
            "free_requested" => Some(Body::FreeRequested(block)),
            "free_completed" | "free" => Some(Body::FreeCompleted(block)),
            "segment_alloc" => segment(SegmentOp::Alloc),
            "segment_free" => segment(SegmentOp::Free),
            "segment_map" => segment(SegmentOp::Map),
            "segment_unmap" => segment(SegmentOp::Unmap),
            "snapshot" => Some(Body::Snapshot { active: size }),
            _ => None,
        }
    }
}

/// The beginning or end of an optimizer's call, or the end of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Unix time in microseconds.
    pub(super) time: u64,
    pub(super) body: Body,
}
