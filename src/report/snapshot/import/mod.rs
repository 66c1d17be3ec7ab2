//! The other way: a snapshot that PyTorch wrote (2.1 and newer), as the items of a recording.
//!
//! A snapshot is the end of a history. What was there before its first entry follows from the state it ends in, by going back;
//! steps follow from the optimizers that torch annotates, or from the steps that our own snapshots tell. The entries themselves stay
//! in the tree that was read, and become events one by one as they are asked for: a history may be larger as events than as a file.

mod history;
mod imported;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::unpickle::{Tree, Value};
use crate::event::{
    Addr, Block, Body, Bytes, Checkpoint, DeviceId, DeviceTotals, Frame, Item, LiveBlock, OpenSegment,
    StackId, make_json_printable, total,
};
pub use history::Cursor;
use history::{State, start};
pub use imported::Imported;
use imported::{Entries, Step};

/// Reads a snapshot.
///
/// # Errors
/// It is none: what is missing.
pub fn import(tree: Tree) -> Result<Imported, String> {
    let root = tree.root();
    let list = |key: &str| tree.get(root, key).filter(|v| tree.items(*v).is_some());
    // `memory_snapshot()` gives the bare list of segments.
    let (segments, traces) = match tree.items(root) {
        Some(all) if all.is_empty() || all.iter().any(|s| tree.get(s, "blocks").is_some()) => (root, None),
        Some(_) => return Err("it is not a PyTorch snapshot: it is a list, but not one of segments".into()),
        None => {
            let segments =
                list("segments").ok_or("it is not a PyTorch snapshot: it has no list of segments")?;
            (segments, list("device_traces"))
        }
    };
    let traces = traces.and_then(|t| tree.items(t)).map(|t| t.iter().take(256).collect()).unwrap_or_default();
    let entries = Entries { tree, traces, ..Entries::default() };
    let mut import = Import {
        segments,
        frames: FxHashMap::default(),
        stacks: FxHashMap::default(),
        with_python: false,
        out: Imported { entries, ..Imported::default() },
    };
    import.with_python = import.has_python();
    import.facts();
    let mut devices = import.segments();
    for device in import.out.entries.devices() {
        import.stacks_of(device);
        import.out.go_back(device, devices.entry(device).or_default(), &mut import.rounded(device));
    }
    import.checkpoint(devices);
    import.steps(root);
    let mut out = import.out;
    out.epoch_us = out.soonest(&mut Cursor::default()).map_or(0, |(time, _)| time);
    Ok(out)
}

struct Import {
    segments: Value,
    /// Frames by the numbers of their dicts: torch tells each once.
    frames: FxHashMap<u32, u32>,
    /// Stacks by a hash of their frames.
    stacks: FxHashMap<u64, StackId>,
    /// Some stack has Python frames: then native ones are left out.
    with_python: bool,
    out: Imported,
}

impl Import {
    /// Whether any stack has a Python frame.
    fn has_python(&self) -> bool {
        let t = &self.out.entries;
        let entries = t.traces.iter().filter_map(|trace| t.tree.items(*trace)).flat_map(|l| l.iter());
        let segments = t.tree.items(self.segments).into_iter().flat_map(|l| l.iter());
        let mut frames =
            entries.chain(segments.flat_map(|s| t.list(s, "blocks"))).flat_map(|e| t.list(e, "frames"));
        frames.any(|f| !is_native(t.text(f, "filename"), t.line(f), t.text(f, "name")))
    }

    fn facts(&mut self) {
        let t = &self.out.entries;
        let settings = t.tree.get(t.tree.root(), "allocator_settings");
        let conf = settings.map_or("", |s| t.text(s, "PYTORCH_CUDA_ALLOC_CONF"));
        let mut facts = serde_json::json!({ "framework": "torch (its own snapshot)", "allocator": "native", "alloc_conf": conf, "steps": "snapshot" });
        make_json_printable(&mut facts);
        self.out.items.push(Item::Meta(facts));
    }

    /// Takes the stack of an entry or block, if it is not known.
    fn take_stack(&mut self, v: Value) {
        let t = &self.out.entries;
        let Some(number) = t.frames(v).filter(|n| !t.stacks.contains_key(n)) else { return };
        let mut frames = Vec::new();
        for f in t.tree.items(Value::List(number)).into_iter().flat_map(|l| l.iter()) {
            let (file, line, function) = (t.text(f, "filename"), t.line(f), t.text(f, "name"));
            // By default torch tells native frames too, the allocator's own first: nobody's line would be told from another's.
            if self.with_python && is_native(file, line, function) {
                continue;
            }
            let names = &mut self.out.names;
            let mut add = || names.add_frame(Frame { file: file.into(), line, function: function.into() });
            frames.push(match f {
                Value::Dict(number) => *self.frames.entry(number).or_insert_with(add),
                _ => add(),
            });
        }
        let mut hasher = FxHasher::default();
        frames.hash(&mut hasher);
        let hash = hasher.finish();
        let known = self.stacks.get(&hash).copied().filter(|id| *self.out.names.stack(*id) == *frames);
        let id = match known {
            _ if frames.is_empty() => StackId(0),
            Some(known) => known,
            None => {
                let id = StackId(self.out.names.stack_count() as u32 + 1);
                self.stacks.insert(hash, id);
                self.out.entries.with_frames = true;
                self.out.names.add_stack_of(id, frames);
                self.out.items.push(Item::Stack(id));
                id
            }
        };
        self.out.entries.stacks.insert(number, id);
    }

    /// Takes the stacks of a device's entries, and counts those that are not understood.
    fn stacks_of(&mut self, device: DeviceId) {
        let count = self.out.entries.of(device).map_or(0, |l| l.len());
        for at in 0..count {
            let t = &self.out.entries;
            let Some(e) = t.of(device).and_then(|l| l.get(at)) else { continue };
            match t.text(e, "action") {
                "alloc" | "oom" => self.take_stack(e),
                "annotate" => continue,
                _ => {}
            }
            self.out.strange += u64::from(self.out.entries.entry(device, e).is_none());
        }
    }

    /// The state at the end.
    fn segments(&mut self) -> BTreeMap<DeviceId, State> {
        let mut devices: BTreeMap<DeviceId, State> = BTreeMap::new();
        let count = self.out.entries.tree.items(self.segments).map_or(0, |l| l.len());
        for at in 0..count {
            let Some(s) = self.out.entries.tree.items(self.segments).and_then(|l| l.get(at)) else {
                continue;
            };
            self.segment(s, &mut devices);
        }
        devices
    }

    fn segment(&mut self, s: Value, devices: &mut BTreeMap<DeviceId, State>) {
        let t = &self.out.entries;
        let device = t.unsigned(s, "device").and_then(|d| u8::try_from(d).ok()).map(DeviceId);
        let (Some(device), Some(addr), Some(size)) =
            (device, t.unsigned(s, "address"), t.unsigned(s, "total_size"))
        else {
            self.out.strange += 1;
            return;
        };
        let (stream, pool) = (t.stream(s), t.pool(s, "segment_pool_id"));
        let expandable = t.tree.get(s, "is_expandable") == Some(Value::Bool(true));
        let open = OpenSegment { device, addr: Addr(addr), size: Bytes(size), stream, pool, expandable };
        let state = devices.entry(device).or_default();
        state.segments.insert(addr, open);
        // Before 2.1 blocks did not tell their addresses; they lie one after the other.
        let mut next = addr;
        let blocks = t.tree.get(s, "blocks");
        let count = blocks.and_then(|b| t.tree.items(b)).map_or(0, |l| l.len());
        for index in 0..count {
            let t = &self.out.entries;
            let Some(b) = blocks.and_then(|b| t.tree.items(b)?.get(index)) else { continue };
            let size = t.unsigned(b, "size").unwrap_or(0);
            let at = t.unsigned(b, "address").unwrap_or(next);
            next = at.saturating_add(size);
            let standing = t.text(b, "state");
            if !standing.starts_with("active") || size == 0 {
                continue;
            }
            let pending = standing != "active_allocated";
            let requested = Bytes(t.unsigned(b, "requested_size").unwrap_or(size));
            self.take_stack(b);
            let stack = self.out.entries.stack(b);
            let block = Block {
                device,
                addr: Addr(at),
                size: requested,
                rounded: Bytes(size),
                stream,
                pool,
                stack,
                ..Block::default()
            };
            state.blocks.insert(at, LiveBlock { block, pending, ..start() });
        }
    }

    /// What blocks of a device were rounded to is told of those that are in use at the end.
    fn rounded(&self, device: DeviceId) -> FxHashMap<Addr, Bytes> {
        let t = &self.out.entries;
        let of_device =
            |s: &Value| t.unsigned(*s, "device").and_then(|d| u8::try_from(d).ok()) == Some(device.0);
        let segments = t.tree.items(self.segments).into_iter().flat_map(|l| l.iter()).filter(of_device);
        let block = |b: Value| {
            let is_used = t.text(b, "state").starts_with("active");
            is_used.then_some((Addr(t.unsigned(b, "address")?), Bytes(t.unsigned(b, "size")?)))
        };
        segments.flat_map(|s| t.list(s, "blocks")).filter_map(block).collect()
    }

    /// The state before the history.
    fn checkpoint(&mut self, devices: BTreeMap<DeviceId, State>) {
        let mut c = Checkpoint::default();
        for (device, state) in devices {
            let sum = |pending: bool| {
                let blocks = state.blocks.values().filter(|b| b.pending == pending);
                Bytes(total(blocks.map(|b| b.block.rounded.0)))
            };
            let (allocated, pending) = (sum(false), sum(true));
            let reserved = Bytes(total(state.segments.values().map(|s| s.size.0)));
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
        self.out.items.push(Item::Checkpoint(Box::new(c)));
    }

    /// Optimizers, as torch annotates them; in a snapshot of ours, the steps themselves.
    fn steps(&mut self, root: Value) {
        let t = &self.out.entries;
        let mut optimizers: FxHashMap<&str, u32> = FxHashMap::default();
        let mut steps = Vec::new();
        let mut last = 0;
        for a in t.list(root, "external_annotations") {
            let (name, stage) = (t.text(a, "name"), t.text(a, "stage"));
            let Some(time) = t.unsigned(a, "time_us") else { continue };
            if name.starts_with("Optimizer.step#") {
                let next = optimizers.len() as u32;
                let number = *optimizers.entry(name).or_insert(next);
                let body = if stage == "START" { Body::OptimizerBegin } else { Body::OptimizerEnd };
                steps.push(Step { time, body: body(number.into()) });
            } else if let Some(n) = name.strip_prefix("step ").and_then(|n| n.parse::<u32>().ok())
                && stage == "END"
                && n > last
            {
                // Told for each device.
                last = n;
                steps.push(Step { time, body: Body::ManualStep(n.into()) });
            }
        }
        steps.sort_by_key(|s| s.time);
        // Where the history begins after the first step, what was there before it is not only what was built before the training.
        if let Some(Step { body: Body::ManualStep(first @ 2..), .. }) = steps.first()
            && let Some(Item::Meta(facts)) = self.out.items.first_mut()
        {
            facts["trained_before"] = true.into();
            // Steps are counted anew.
            facts["first_step"] = (*first).into();
        }
        self.out.steps = steps;
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
