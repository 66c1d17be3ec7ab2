//! Whether a snapshot is one that every reader can show: memory_viz in each of its views, and `_memory_viz.py`.
//!
//! Each rule here is something that one of them breaks on, or silently shows wrong. The history is replayed backwards
//! from the final state, event by event, exactly as memory_viz's "Allocator State History" does it.

#![allow(dead_code, reason = "every test binary uses its own part")]

use std::collections::{BTreeMap, BTreeSet};

mod history;

use history::{Event, Live, Segment, replay_backwards};

use strandline::report::snapshot::unpickle::{Limits, Tree, Value, read};

/// Opcodes that memory_viz implements.
const KNOWN_OPCODES: &[u8] = b"\x80\x95.(}])aesuldt\x85\x86\x87N\x88\x89JKM\x8aG\x8cXqrhj\x94";
/// Most items one APPENDS may carry: JavaScript passes them as arguments of one call.
const LONGEST_BATCH: usize = 100_000;
/// Actions that are about a block.
const BLOCK_ACTIONS: [&str; 3] = ["alloc", "free_requested", "free_completed"];
/// Actions that are about a segment.
const SEGMENT_ACTIONS: [&str; 4] = ["segment_alloc", "segment_free", "segment_map", "segment_unmap"];

/// Every rule that the snapshot breaks, as sentences; empty for a valid one.
pub(crate) fn validate(tree: &Tree) -> Vec<String> {
    let mut c = Check { tree, wrong: Vec::new() };
    c.opcodes();
    c.top();
    c.wrong
}

/// Fails for bytes that are no snapshot, or that break a rule.
#[track_caller]
pub(crate) fn must_be_valid(pickle: &[u8]) {
    let tree = read(pickle, &Limits::default()).expect("a pickle");
    assert_eq!(validate(&tree), Vec::<String>::new(), "memory_viz and _memory_viz.py open it");
}

/// Checks that are still needed after this many faults are not worth their paper.
const ENOUGH: usize = 50;

struct Check<'a> {
    tree: &'a Tree,
    wrong: Vec<String>,
}

impl Check<'_> {
    fn say(&mut self, what: String) {
        if self.wrong.len() < ENOUGH {
            self.wrong.push(what);
        }
    }

    fn opcodes(&mut self) {
        let p = self.tree.protocol;
        if !(2..=4).contains(&p) {
            self.say(format!("pickle protocol {p}: memory_viz reads 2 to 4"));
        }
        let unknown: Vec<u8> = self.tree.opcodes().filter(|op| !KNOWN_OPCODES.contains(op)).collect();
        if !unknown.is_empty() {
            self.say(format!("opcodes {unknown:x?} are unknown to memory_viz"));
        }
        let n = self.tree.longest_batch;
        if n > LONGEST_BATCH {
            self.say(format!("{n} items in one batch overflow memory_viz's stack"));
        }
    }

    fn top(&mut self) {
        let root = self.tree.root();
        if self.tree.dict(root).is_none() {
            return self.say("the snapshot is no dict".into());
        }
        let segments = self.list_of(root, "segments");
        let traces = self.list_of(root, "device_traces");
        self.annotations(root);
        if self.tree.get(root, "allocator_settings").and_then(|v| self.tree.dict(v)).is_none() {
            self.say("allocator_settings is no dict".into());
        }
        let mut by_device: BTreeMap<i128, (Vec<Segment>, Vec<Live>)> = BTreeMap::new();
        for (i, &s) in segments.iter().enumerate() {
            let Some((device, segment, blocks)) = self.segment(i, s) else { continue };
            let d = by_device.entry(device).or_default();
            let end = d.0.last().map_or(0, |s| s.address.saturating_add(s.size));
            if segment.address < end {
                self.say(format!(
                    "segment {i} at {:#x} is not sorted, or overlaps the one before",
                    segment.address
                ));
            }
            d.0.push(segment);
            d.1.extend(blocks);
        }
        for &device in by_device.keys() {
            if usize::try_from(device).is_ok_and(|d| d < traces.len()) {
                continue;
            }
            self.say(format!("device {device} has segments, but no entry in device_traces"));
        }
        self.categories(&traces);
        for (device, &trace) in traces.iter().enumerate() {
            let (segments, blocks) = by_device.remove(&(device as i128)).unwrap_or_default();
            self.trace(device, trace, segments, blocks);
        }
    }

    fn list_of(&mut self, v: Value, key: &str) -> Vec<Value> {
        match self.tree.get(v, key).and_then(|l| self.tree.list(l)) {
            Some(l) => l,
            None => {
                self.say(format!("{key} is no list"));
                Vec::new()
            }
        }
    }

    fn int(&self, v: Value, key: &str) -> Option<i128> {
        match self.tree.get(v, key)? {
            Value::Int(i) => Some(i),
            _ => None,
        }
    }

    fn text(&self, v: Value, key: &str) -> Option<&str> {
        self.tree.get(v, key).and_then(|t| self.tree.text(t))
    }

    /// An address or size: 0 and more, below 2^64.
    fn unsigned(&mut self, v: Value, key: &str, place: &str) -> Option<u64> {
        let n = self.int(v, key).and_then(|i| u64::try_from(i).ok());
        if n.is_none() {
            self.say(format!("{place}: {key} is missing or no unsigned 64-bit integer"));
        }
        n
    }

    fn frames(&mut self, v: Value, place: &str) {
        let Some(list) = self.tree.get(v, "frames") else { return };
        let Some(frames) = self.tree.list(list) else {
            return self.say(format!("{place}: frames is no list"));
        };
        let whole = |f: &&Value| {
            self.text(**f, "filename").is_some()
                && self.text(**f, "name").is_some()
                && self.int(**f, "line").is_some()
        };
        if frames.iter().filter(whole).count() < frames.len() {
            self.say(format!("{place}: a frame lacks filename, name or line"));
        }
    }

    /// Stream handles are signed 64-bit integers.
    fn stream(&mut self, v: Value, place: &str) -> i128 {
        match self.int(v, "stream") {
            Some(s) if i64::try_from(s).is_ok() => s,
            _ => {
                self.say(format!("{place}: stream is no signed 64-bit integer"));
                0
            }
        }
    }

    fn pool(&mut self, v: Value, key: &str, place: &str) {
        let Some(p) = self.tree.get(v, key) else { return };
        let pair = self.tree.tuple(p).or_else(|| self.tree.list(p));
        let pair = pair.is_some_and(|t| t.len() == 2 && t.iter().all(|m| matches!(m, Value::Int(_))));
        if !pair {
            self.say(format!("{place}: {key} is no pair of integers"));
        }
    }

    fn segment(&mut self, i: usize, s: Value) -> Option<(i128, Segment, Vec<Live>)> {
        let place = format!("segment {i}");
        let address = self.unsigned(s, "address", &place)?;
        let total = self.unsigned(s, "total_size", &place)?;
        let device = self.int(s, "device").unwrap_or(-1);
        let stream = self.stream(s, &place);
        self.frames(s, &place);
        self.pool(s, "segment_pool_id", &place);
        if !matches!(self.text(s, "segment_type"), Some("large" | "small")) {
            self.say(format!("{place}: segment_type is neither large nor small"));
        }
        if !matches!(self.tree.get(s, "is_expandable"), None | Some(Value::Bool(_))) {
            self.say(format!("{place}: is_expandable is no truth value"));
        }
        let add = u64::saturating_add;
        let (mut allocated, mut active, mut requested, mut at) = (0u64, 0u64, 0u64, address);
        let mut live = Vec::new();
        for (j, b) in self.list_of(s, "blocks").into_iter().enumerate() {
            let place = format!("{place}, block {j}");
            let size = self.unsigned(b, "size", &place)?;
            let asked = self.unsigned(b, "requested_size", &place)?;
            if self.unsigned(b, "address", &place)? != at {
                self.say(format!("{place} does not begin where the one before ends ({at:#x})"));
            }
            self.frames(b, &place);
            if self.tree.get(b, "frames").is_none() {
                self.say(format!("{place} has no frames, and memory_viz then distrusts its requested_size"));
            }
            let state = self.text(b, "state").map(str::to_owned);
            let inactive = match state.as_deref() {
                Some("active_allocated") => {
                    allocated = add(allocated, size);
                    live.push(Live { address: at, pending: false });
                    false
                }
                Some("active_pending_free") => {
                    live.push(Live { address: at, pending: true });
                    false
                }
                Some("inactive") => true,
                other => {
                    self.say(format!("{place}: state {other:?}"));
                    false
                }
            };
            if !inactive {
                active = add(active, size);
                requested = add(requested, asked);
                if asked > size {
                    self.say(format!("{place}: more requested ({asked}) than its size ({size})"));
                }
            }
            if size == 0 {
                self.say(format!("{place} is empty"));
            }
            at = at.saturating_add(size);
        }
        if at != address.saturating_add(total) {
            self.say(format!("{place}: blocks cover {} of {total} bytes", at - address));
        }
        for (key, sum) in
            [("allocated_size", allocated), ("active_size", active), ("requested_size", requested)]
        {
            if self.unsigned(s, key, &place)? != sum {
                self.say(format!("{place}: {key} is not the {sum} bytes of its blocks"));
            }
        }
        Some((device, Segment { address, size: total, stream }, live))
    }

    /// Where any trace entry has a category, one must be `unknown`, or memory_viz throws while loading.
    fn categories(&mut self, traces: &[Value]) {
        let all = traces.iter().filter_map(|&t| self.tree.list(t)).flatten();
        let mut any = false;
        for e in all {
            match self.text(e, "category") {
                Some("unknown") => return,
                Some(_) => any = true,
                None => {}
            }
        }
        if any {
            self.say("there are categories, but none is 'unknown': memory_viz throws".into());
        }
    }

    fn annotations(&mut self, root: Value) {
        let Some(v) = self.tree.get(root, "external_annotations") else { return };
        let Some(list) = self.tree.list(v) else { return self.say("external_annotations is no list".into()) };
        let mut open: BTreeMap<(String, i128), i64> = BTreeMap::new();
        for (i, &a) in list.to_vec().iter().enumerate() {
            let (Some(name), Some(device)) = (self.text(a, "name").map(str::to_owned), self.int(a, "device"))
            else {
                self.say(format!("annotation {i} lacks a name or a device"));
                continue;
            };
            if self.int(a, "time_us").is_none() {
                self.say(format!("annotation {i} has no time"));
            }
            let depth = open.entry((name, device)).or_default();
            match self.text(a, "stage") {
                Some("START") => *depth += 1,
                Some("END") if *depth > 0 => *depth -= 1,
                other => {
                    let other = other.map(str::to_owned);
                    self.say(format!("annotation {i}: stage {other:?} without a START before"));
                }
            }
        }
    }

    fn trace(&mut self, device: usize, trace: Value, segments: Vec<Segment>, blocks: Vec<Live>) {
        let Some(entries) = self.tree.list(trace) else {
            return self.say(format!("device_traces[{device}] is no list"));
        };
        let mut events = Vec::with_capacity(entries.len());
        let mut before = 0;
        // Where each address that is in use was allocated, in the direction of time.
        let mut alive: BTreeMap<u64, usize> = BTreeMap::new();
        for (i, &e) in entries.iter().enumerate() {
            let place = format!("device {device}, entry {i}");
            let Some(event) = self.entry(e, &place, &mut before) else { continue };
            match event.action {
                "alloc" => {
                    if let Some(j) = alive.insert(event.addr, i) {
                        self.say(format!(
                            "{place}: {:#x} was handed out at entry {j} and not freed",
                            event.addr
                        ));
                    }
                }
                "free_completed" => drop(alive.remove(&event.addr)),
                _ => {}
            }
            events.push(event);
        }
        let held: BTreeSet<u64> = blocks.iter().map(|b| b.address).collect();
        for (addr, i) in alive {
            if !held.contains(&addr) {
                self.say(format!(
                    "device {device}, entry {i}: {addr:#x} is never freed, but in no segment at the end"
                ));
            }
        }
        if let Err(what) = replay_backwards(&events, segments, blocks) {
            self.say(format!("device {device}, {what}"));
        }
    }

    fn entry(&mut self, e: Value, place: &str, before: &mut i128) -> Option<Event> {
        let known = BLOCK_ACTIONS.iter().chain(&SEGMENT_ACTIONS).chain(&["snapshot", "oom"]);
        let Some(action) = self.text(e, "action").and_then(|a| known.copied().find(|k| *k == a)) else {
            self.say(format!("{place}: action {:?}", self.text(e, "action")));
            return None;
        };
        let stream = self.stream(e, place);
        let size = self.unsigned(e, "size", place)?;
        let addr = self.unsigned(e, if action == "oom" { "device_free" } else { "addr" }, place)?;
        self.frames(e, place);
        self.pool(e, "pool_id", place);
        match self.int(e, "time_us") {
            Some(t) if t < *before => self.say(format!("{place}: time goes back by {} µs", *before - t)),
            Some(t) => *before = t,
            None => self.say(format!("{place} has no time, shown as an invalid date")),
        }
        Some(Event { action, addr, size, stream })
    }
}
