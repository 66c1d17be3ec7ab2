//! The other way: a snapshot that PyTorch wrote (2.1 and newer), as the items of a recording.
//!
//! A snapshot is the end of a history. What was there before its first entry follows from the state it ends in, by going back;
//! steps follow from the optimizers that torch annotates, or from the steps that our own snapshots tell.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::unpickle::{Tree, Value};
use crate::event::{
    Addr, Block, Body, Bytes, Checkpoint, DeviceId, DeviceTotals, Event, Frame, Item, LiveBlock, Names,
    Nanos, OpenSegment, Phase, PoolId, SegmentOp, StackId, StreamHandle, ThreadId,
};

/// A snapshot as a recording.
#[derive(Debug, Default)]
pub struct Imported {
    /// What comes before the events.
    pub items: Vec<Item>,
    /// The history.
    pub events: Vec<Event>,
    /// Stacks.
    pub names: Names,
    /// Unix time in microseconds at which its clock is 0.
    pub epoch_us: u64,
    /// Entries that were not understood, and are left out.
    pub strange: u64,
}

/// Reads a snapshot.
///
/// # Errors
/// It is none: what is missing.
pub fn import(tree: &Tree) -> Result<Imported, String> {
    let root = tree.root();
    // `memory_snapshot()` gives the bare list of segments.
    let (segments, traces) = match tree.list(root) {
        Some(list) if list.is_empty() || list.iter().any(|&s| tree.get(s, "blocks").is_some()) => {
            (list, &[][..])
        }
        Some(_) => return Err("it is no snapshot of PyTorch's: it is a list, and not one of segments".into()),
        None => {
            let list = |key: &str| tree.get(root, key).and_then(|v| tree.list(v));
            let segments =
                list("segments").ok_or("it is no snapshot of PyTorch's: it has no list of segments")?;
            (segments, list("device_traces").unwrap_or_default())
        }
    };
    let mut import = Import {
        tree,
        stacks: FxHashMap::default(),
        known: FxHashMap::default(),
        out: Imported::default(),
        with_frames: false,
        with_python: false,
    };
    import.with_python = import.has_python(segments, traces);
    let mut devices: BTreeMap<DeviceId, State> = BTreeMap::new();
    for &s in segments {
        import.segment(s, &mut devices);
    }
    let mut timed: Vec<(u64, usize, Event)> = Vec::new();
    for (device, &trace) in traces.iter().enumerate() {
        let Ok(device) = u8::try_from(device).map(DeviceId) else { break };
        let entries = import.trace(device, tree.list(trace).unwrap_or_default());
        let state = devices.entry(device).or_default();
        entries.iter().rev().for_each(|(_, body)| state.undo(body));
        timed.extend(entries.into_iter().map(|(time, body)| (time, 1, event(body))));
    }
    timed.extend(import.steps(root).into_iter().map(|(time, body)| (time, 0, event(body))));
    timed.sort_by_key(|&(time, rank, _)| (time, rank));
    import.out.epoch_us = timed.first().map_or(0, |t| t.0);
    import.finish(devices, timed)
}

fn event(body: Body) -> Event {
    Event { time: Nanos(0), thread: ThreadId(0), body }
}

/// What is in use on a device.
#[derive(Default)]
struct State {
    segments: BTreeMap<u64, OpenSegment>,
    blocks: BTreeMap<u64, LiveBlock>,
}

struct Import<'a> {
    tree: &'a Tree,
    stacks: FxHashMap<Value32, StackId>,
    known: FxHashMap<Vec<Frame>, StackId>,
    out: Imported,
    with_frames: bool,
    /// Some stack has Python frames: then native ones are left out.
    with_python: bool,
}

/// The number of a list of frames.
type Value32 = u32;

impl Import<'_> {
    fn int(&self, v: Value, key: &str) -> Option<i128> {
        match self.tree.get(v, key)? {
            Value::Int(i) => Some(i),
            _ => None,
        }
    }

    fn unsigned(&self, v: Value, key: &str) -> Option<u64> {
        u64::try_from(self.int(v, key)?).ok()
    }

    fn text(&self, v: Value, key: &str) -> &str {
        self.tree.get(v, key).and_then(|t| self.tree.text(t)).unwrap_or_default()
    }

    /// Signed in the file.
    fn stream(&self, v: Value) -> StreamHandle {
        StreamHandle(self.int(v, "stream").and_then(|s| i64::try_from(s).ok()).unwrap_or(0) as u64)
    }

    fn pool(&self, v: Value, key: &str) -> PoolId {
        let pair = self.tree.get(v, key).and_then(|p| self.tree.tuple(p).or(self.tree.list(p)));
        let number = |v: &Value| if let Value::Int(i) = v { u64::try_from(*i).unwrap_or(0) } else { 0 };
        match pair {
            Some([a, b]) => PoolId(number(a), number(b)),
            _ => PoolId::DEFAULT,
        }
    }

    fn line(&self, frame: Value) -> u32 {
        self.unsigned(frame, "line").and_then(|l| u32::try_from(l).ok()).unwrap_or(0)
    }

    fn stack(&mut self, v: Value) -> StackId {
        let Some(Value::List(number)) = self.tree.get(v, "frames") else { return StackId(0) };
        if let Some(&known) = self.stacks.get(&number) {
            return known;
        }
        let frames = self.tree.list(Value::List(number)).unwrap_or_default();
        let frame = |&f: &Value| Frame {
            file: self.text(f, "filename").into(),
            line: self.line(f),
            function: self.text(f, "name").into(),
        };
        // By default torch tells native frames too, the allocator's own first: nobody's line would be told from another's.
        let wanted = |f: &Frame| !self.with_python || !is_native(&f.file, f.line, &f.function);
        let frames: Vec<Frame> = frames.iter().map(frame).filter(wanted).collect();
        self.with_frames |= !frames.is_empty();
        let next = StackId(self.known.len() as u32 + 1);
        let id = match self.known.get(&frames) {
            _ if frames.is_empty() => StackId(0),
            Some(&known) => known,
            None => next,
        };
        if id == next {
            self.known.insert(frames.clone(), id);
            self.out.names.add_stack(id, frames);
            self.out.items.push(Item::Stack(id));
        }
        self.stacks.insert(number, id);
        id
    }

    /// Whether any stack has a Python frame.
    fn has_python(&self, segments: &[Value], traces: &[Value]) -> bool {
        let list = |v: Value, key| self.tree.get(v, key).and_then(|l| self.tree.list(l)).unwrap_or_default();
        let entries = traces.iter().flat_map(|&t| self.tree.list(t).unwrap_or_default());
        let blocks = segments.iter().flat_map(|&s| list(s, "blocks"));
        let mut frames = entries.chain(blocks).flat_map(|&e| list(e, "frames"));
        frames.any(|&f| !is_native(self.text(f, "filename"), self.line(f), self.text(f, "name")))
    }

    fn segment(&mut self, s: Value, devices: &mut BTreeMap<DeviceId, State>) {
        let device = self.unsigned(s, "device").and_then(|d| u8::try_from(d).ok()).map(DeviceId);
        let (Some(device), Some(addr), Some(size)) =
            (device, self.unsigned(s, "address"), self.unsigned(s, "total_size"))
        else {
            self.out.strange += 1;
            return;
        };
        let (stream, pool) = (self.stream(s), self.pool(s, "segment_pool_id"));
        let expandable = self.tree.get(s, "is_expandable") == Some(Value::Bool(true));
        let open = OpenSegment { device, addr: Addr(addr), size: Bytes(size), stream, pool, expandable };
        devices.entry(device).or_default().segments.insert(addr, open);
        let blocks = self.tree.get(s, "blocks").and_then(|b| self.tree.list(b)).unwrap_or_default();
        // Before 2.1 blocks did not tell their addresses; they lie one after the other.
        let mut next = addr;
        for &b in blocks {
            let size = self.unsigned(b, "size").unwrap_or(0);
            let at = self.unsigned(b, "address").unwrap_or(next);
            next = at.saturating_add(size);
            let state = self.text(b, "state").to_owned();
            if !state.starts_with("active") || size == 0 {
                continue;
            }
            let block = Block {
                device,
                addr: Addr(at),
                size: Bytes(self.unsigned(b, "requested_size").unwrap_or(size)),
                rounded: Bytes(size),
                stream,
                pool,
                stack: self.stack(b),
                ..Block::default()
            };
            let live = LiveBlock { block, pending: state != "active_allocated", ..start() };
            devices.entry(device).or_default().blocks.insert(at, live);
        }
    }

    /// The entries of a device that are understood, with their times, which never go back.
    fn trace(&mut self, device: DeviceId, entries: &[Value]) -> Vec<(u64, Body)> {
        let mut out = Vec::with_capacity(entries.len());
        let mut time = 0;
        for &e in entries {
            time = time.max(self.unsigned(e, "time_us").unwrap_or(0));
            match self.entry(device, e) {
                Some(body) => out.push((time, body)),
                None => self.out.strange += u64::from(self.text(e, "action") != "annotate"),
            }
        }
        out
    }

    fn entry(&mut self, device: DeviceId, e: Value) -> Option<Body> {
        let action = self.text(e, "action").to_owned();
        let size = Bytes(self.unsigned(e, "size")?);
        let (stream, pool) = (self.stream(e), self.pool(e, "pool_id"));
        if action == "oom" {
            let (free, stack) = (Bytes(self.unsigned(e, "device_free")?), self.stack(e));
            return Some(Body::Oom { device, requested: size, free, stream, stack });
        }
        let addr = Addr(self.unsigned(e, "addr")?);
        let segment = |op| Some(Body::Segment { op, device, addr, size, stream, pool });
        let mut block = Block { device, addr, size, stream, pool, ..Block::default() };
        match action.as_str() {
            "alloc" => {
                block.stack = self.stack(e);
                Some(Body::Alloc(block))
            }
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

    /// Optimizers, as torch annotates them; in a snapshot of ours, the steps themselves.
    fn steps(&self, root: Value) -> Vec<(u64, Body)> {
        let list =
            self.tree.get(root, "external_annotations").and_then(|a| self.tree.list(a)).unwrap_or_default();
        let mut optimizers: Vec<&str> = Vec::new();
        let mut out = Vec::new();
        let mut last = 0;
        for &a in list {
            let (name, stage) = (self.text(a, "name"), self.text(a, "stage"));
            let Some(time) = self.unsigned(a, "time_us") else { continue };
            if name.starts_with("Optimizer.step#") {
                let known = optimizers.iter().position(|o| *o == name);
                let number = known.unwrap_or(optimizers.len()) as u64;
                if known.is_none() {
                    optimizers.push(name);
                }
                out.push((
                    time,
                    if stage == "START" { Body::OptimizerBegin(number) } else { Body::OptimizerEnd(number) },
                ));
            } else if let Some(n) = name.strip_prefix("step ").and_then(|n| n.parse::<u32>().ok())
                && stage == "END"
                && n > last
            {
                // Told for each device.
                last = n;
                out.push((time, Body::ManualStep(u64::from(n))));
            }
        }
        out
    }

    fn finish(
        mut self,
        devices: BTreeMap<DeviceId, State>,
        timed: Vec<(u64, usize, Event)>,
    ) -> Result<Imported, String> {
        let settings = self.tree.get(self.tree.root(), "allocator_settings");
        let conf = settings.map_or("", |s| self.text(s, "PYTORCH_CUDA_ALLOC_CONF")).to_owned();
        let facts = serde_json::json!({ "framework": "torch (its own snapshot)", "allocator": "native", "alloc_conf": conf });
        self.out.items.insert(0, Item::Meta(facts));
        // What a block was rounded to is told of those that are in use at the end.
        let mut known: FxHashMap<(DeviceId, Addr), Bytes> = FxHashMap::default();
        let mut c = Checkpoint::default();
        for (device, state) in devices {
            let sum = |f: &dyn Fn(&LiveBlock) -> bool| {
                Bytes(
                    state
                        .blocks
                        .values()
                        .filter(|b| f(b))
                        .map(|b| b.block.rounded.0)
                        .fold(0, u64::saturating_add),
                )
            };
            let (allocated, pending) = (sum(&|b| !b.pending), sum(&|b| b.pending));
            let reserved = Bytes(state.segments.values().map(|s| s.size.0).fold(0, u64::saturating_add));
            c.devices.push(DeviceTotals {
                device,
                allocated,
                reserved,
                pending,
                peak_allocated: allocated,
                peak_step: 1,
                peak_reserved: reserved,
                ..DeviceTotals::default()
            });
            c.segments.extend(state.segments.into_values());
            c.blocks.extend(state.blocks.into_values());
        }
        for s in self
            .tree
            .list(self.tree.get(self.tree.root(), "segments").unwrap_or(Value::None))
            .unwrap_or_default()
        {
            let device = self
                .unsigned(*s, "device")
                .and_then(|d| u8::try_from(d).ok())
                .map(DeviceId)
                .unwrap_or_default();
            for b in self.tree.get(*s, "blocks").and_then(|b| self.tree.list(b)).unwrap_or_default() {
                if let (Some(addr), Some(size)) = (self.unsigned(*b, "address"), self.unsigned(*b, "size")) {
                    known.insert((device, Addr(addr)), Bytes(size));
                }
            }
        }
        self.out.items.push(Item::Checkpoint(Box::new(c)));
        let mut in_optimizer = 0u32;
        let mut events: Vec<Event> = Vec::with_capacity(timed.len());
        for (time, _, mut e) in timed {
            e.time = Nanos((time - self.out.epoch_us).saturating_mul(1000));
            match &mut e.body {
                Body::OptimizerBegin(_) => in_optimizer += 1,
                Body::OptimizerEnd(_) => in_optimizer = in_optimizer.saturating_sub(1),
                Body::Alloc(b) => {
                    // On autograd's own threads there is no Python to be seen.
                    let backward = self.with_frames && b.stack == StackId(0);
                    b.phase = Phase { optimizer: in_optimizer > 0, backward, ..Phase::default() };
                }
                _ => {}
            }
            events.push(e);
        }
        // From the end: the last allocation of an address is the one that is in use.
        for e in events.iter_mut().rev() {
            if let Body::Alloc(b) = &mut e.body
                && let Some(size) = known.remove(&(b.device, b.addr)).filter(|s| *s >= b.size)
            {
                b.rounded = size;
            }
        }
        self.out.events = events;
        Ok(self.out)
    }
}

/// Whether a frame is not Python's: symbolizers give a source file, an object file, a library or program with an offset, or
/// nothing, and often no line; and C++ has names that Python has not.
fn is_native(file: &str, line: u32, function: &str) -> bool {
    const ENDINGS: [&str; 13] =
        ["c", "cc", "cpp", "cxx", "cu", "cuh", "h", "hpp", "hxx", "S", "rs", "o", "so"];
    let ending = file.rsplit_once('.').map_or("", |(_, ending)| ending);
    matches!(file, "" | "??")
        || matches!(function, "" | "??" | "_start")
        || function.contains("::")
        || ENDINGS.contains(&ending)
        || file.contains(".so.")
        || (line == 0 && ending != "py" && !file.starts_with('<'))
}

/// In use before the history: since the first step, for all that is known.
fn start() -> LiveBlock {
    LiveBlock { step: 1, microbatch: 1, ..LiveBlock::default() }
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
