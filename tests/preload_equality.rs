//! The recording against PyTorch's own memory history of the same run: every event, in order, with its stack.
//!
//! torch is the oracle: action, address, size and stream of each event in each device's order; the frames of each
//! allocation; the totals after each event; the peak.

mod support;

use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use strandline::event::{Addr, Block, Body, DeviceId, Event, SegmentOp, StackId, Totals};
use support::{Folder, Job, Recording, python, python_3_13};

/// An event as torch's history has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    action: String,
    addr: u64,
    size: u64,
    stream: u64,
}

type Frames = Vec<(String, u32, String)>;

/// torch's side of one device.
#[derive(Default)]
struct Oracle {
    steps: Vec<Step>,
    frames: Vec<Frames>,
    totals: HashMap<String, u64>,
}

fn oracle(path: &Path) -> Vec<Oracle> {
    let text = std::fs::read_to_string(path).expect("torch's history");
    let mut devices: Vec<Oracle> = Vec::new();
    for row in text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON lines")) {
        let number = |k: &str| row[k].as_u64().unwrap_or_else(|| panic!("{k} of {row}"));
        let device = number("device") as usize;
        if devices.len() <= device {
            devices.resize_with(device + 1, Oracle::default);
        }
        let o = &mut devices[device];
        if row["totals"] == true {
            let keys = ["allocated", "reserved", "peak_allocated", "peak_reserved"];
            o.totals = keys.iter().map(|k| (k.to_string(), number(k))).collect();
            continue;
        }
        let action = row["action"].as_str().expect("an action").to_string();
        o.steps.push(Step { action, addr: number("addr"), size: number("size"), stream: number("stream") });
        let frame = |f: &Value| {
            let text = |i: usize| f[i].as_str().expect("text").to_string();
            (text(0), f[1].as_u64().expect("a line") as u32, text(2))
        };
        o.frames.push(row["frames"].as_array().expect("frames").iter().map(frame).collect());
    }
    devices
}

/// Our side: the event as torch would have written it, and its stack.
fn step(e: &Event) -> Option<(DeviceId, Step, Option<StackId>)> {
    let block = |action: &str, b: &Block| {
        let s = Step { action: action.into(), addr: b.addr.0, size: b.size.0, stream: b.stream.0 };
        (b.device, s, (action == "alloc").then_some(b.stack))
    };
    Some(match &e.body {
        Body::Alloc(b) => block("alloc", b),
        Body::FreeRequested(b) => block("free_requested", b),
        Body::FreeCompleted(b) => block("free_completed", b),
        Body::Segment { op, device, addr, size, stream, .. } => {
            let action = match op {
                SegmentOp::Alloc => "segment_alloc",
                SegmentOp::Free => "segment_free",
                SegmentOp::Map => "segment_map",
                SegmentOp::Unmap => "segment_unmap",
            };
            (*device, Step { action: action.into(), addr: addr.0, size: size.0, stream: stream.0 }, None)
        }
        Body::Oom { device, requested, free, stream, .. } => {
            (*device, Step { action: "oom".into(), addr: free.0, size: requested.0, stream: stream.0 }, None)
        }
        _ => return None,
    })
}

/// Own sums on one device, held against what torch said after each event.
#[derive(Default)]
struct Sums {
    allocated: u64,
    reserved: u64,
    peak_allocated: u64,
    peak_reserved: u64,
    live: HashMap<Addr, u64>,
    compared: usize,
}

impl Sums {
    #[track_caller]
    fn feed(&mut self, body: &Body) {
        let mut said: Option<Totals> = None;
        match body {
            Body::Alloc(b) => {
                self.live.insert(b.addr, b.rounded.0);
                self.allocated += b.rounded.0;
                said = b.totals;
            }
            Body::FreeRequested(b) => {
                let rounded =
                    self.live.remove(&b.addr).unwrap_or_else(|| panic!("free of unknown block {b:?}"));
                self.allocated -= rounded;
                said = b.totals;
            }
            Body::FreeCompleted(b) => said = b.totals,
            Body::Report { addr, rounded, allocated, totals, .. } => {
                if *allocated && let Some(known @ 0) = self.live.get_mut(addr) {
                    *known = rounded.0;
                    self.allocated += rounded.0;
                }
                said = Some(*totals);
            }
            Body::Segment { op: SegmentOp::Alloc | SegmentOp::Map, size, .. } => self.reserved += size.0,
            Body::Segment { size, .. } => self.reserved -= size.0,
            _ => {}
        }
        if let Some(t) = said {
            assert_eq!((self.allocated, self.reserved), (t.allocated.0, t.reserved.0), "drift at {body:?}");
            self.compared += 1;
        }
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }
}

fn device_of(body: &Body) -> Option<DeviceId> {
    match body {
        Body::Report { device, .. } => Some(*device),
        other => other.allocator_device(),
    }
}

/// torch writes `co_name`, we the qualified name, which ends in it.
fn as_torch_names(frames: Frames) -> Frames {
    let last = |f: String| f.rsplit('.').next().unwrap_or_default().to_string();
    frames.into_iter().map(|(file, line, function)| (file, line, last(function))).collect()
}

/// Runs a case and compares everything; the recording goes back for more.
#[track_caller]
fn equal(case: &str, env: &[(&str, &str)], devices: u32) -> (Recording, usize) {
    equal_with(python(), case, env, devices)
}

/// As [`equal`], with a certain Python.
#[track_caller]
fn equal_with(with: &Path, case: &str, env: &[(&str, &str)], devices: u32) -> (Recording, usize) {
    let folder = Folder::new(case);
    let history = folder.join("history.jsonl");
    let arguments = [case.as_ref(), history.as_os_str()];
    let job = Job::python_at(&folder, with, "tests/python/equality.py", &arguments);
    let job = env.iter().fold(job.devices(devices), |j, (k, v)| j.env(k, v));
    let ran = job.run_imported().succeeded();
    assert_eq!(ran.theirs(), "", "the job's own stderr");
    let recording = Recording::read(&ran.recording()).whole();
    let oracles = oracle(&history);
    assert_eq!(oracles.len(), devices as usize);
    let mut compared = 0;
    for (device, o) in oracles.iter().enumerate() {
        let device = DeviceId(device as u8);
        let ours: Vec<_> = recording.events.iter().filter_map(step).filter(|s| s.0 == device).collect();
        assert!(
            ours.len() >= o.steps.len(),
            "{device:?}: {} events, torch has {}",
            ours.len(),
            o.steps.len()
        );
        for (i, ((want, frames), (_, got, stack))) in o.steps.iter().zip(&o.frames).zip(&ours).enumerate() {
            assert_eq!(got, want, "{case}: event {i} of {device:?}");
            if let Some(stack) = stack {
                assert_eq!(
                    &as_torch_names(recording.frames(*stack)),
                    frames,
                    "{case}: stack of event {i} of {device:?}"
                );
            }
        }
        compared += o.steps.len();
        totals(&recording, device, o);
    }
    (recording, compared)
}

/// Own sums equal torch's at every event that torch reported, and peaks and ends equal its statistics.
#[track_caller]
fn totals(recording: &Recording, device: DeviceId, o: &Oracle) {
    let mut sums = Sums::default();
    let mut steps = 0;
    let mut at_end = (0, 0, 0, 0);
    for e in recording.events.iter().filter(|e| device_of(&e.body) == Some(device)) {
        steps += usize::from(step(e).is_some());
        sums.feed(&e.body);
        if steps <= o.steps.len() {
            at_end = (sums.allocated, sums.reserved, sums.peak_allocated, sums.peak_reserved);
        }
    }
    let stat = |k: &str| o.totals[k];
    let torch = (stat("allocated"), stat("reserved"), stat("peak_allocated"), stat("peak_reserved"));
    assert_eq!(at_end, torch, "statistics of {device:?}");
    assert_eq!(sums.compared > 0, !o.steps.is_empty(), "nothing was compared");
}

#[test]
fn plain_training() {
    let (recording, compared) = equal("plain", &[], 1);
    assert!(compared > 400, "{compared}");
    assert_eq!(recording.count(|b| matches!(b, Body::OptimizerEnd(_))), 6);
    assert_eq!(recording.count(|b| matches!(b, Body::BackwardEnd { nested: false })), 6);
    assert_eq!(recording.fact("step_hooks"), "pending");
    assert_eq!(recording.fact("allocator"), "native");
    assert_eq!(recording.fact("coverage")["level"], "blocks");
    let framework = recording.fact("framework").as_str().expect("a framework");
    assert!(framework.starts_with("torch 2."), "{framework}");
    assert_eq!(recording.fact("ended"), "exit");
    assert!(recording.fact("devices")[0]["capacity_bytes"].as_u64().is_some_and(|b| b > 1 << 30));
}

/// A transformer of twelve layers, a loader made of generators, an async program, a deep recursion: whole stacks.
#[test]
fn every_kind_of_frame() {
    every_kind_of_frame_with(python());
}

/// The same where frames are found by what Python says of itself.
#[test]
fn every_kind_of_frame_on_python_3_13() {
    if let Some(python) = python_3_13() {
        every_kind_of_frame_with(&python);
    }
}

fn every_kind_of_frame_with(python: &Path) {
    let (recording, compared) = equal_with(python, "every_kind_of_frame", &[], 1);
    assert!(compared > 2500, "{compared}");
    let depth = |e: &Event| match &e.body {
        Body::Alloc(b) => recording.frames(b.stack).len(),
        _ => 0,
    };
    assert!(recording.events.iter().map(depth).max() > Some(700));
}

#[test]
fn side_streams_with_deferred_frees() {
    let (recording, _) = equal("side_streams", &[], 1);
    let waits = recording.count(|b| matches!(b, Body::FreeWaits { .. }));
    let recorded = recording.count(|b| matches!(b, Body::RecordStream { .. }));
    assert_eq!((waits, recorded), (40, 40), "each block is freed while another stream uses it");
    assert!(recording.count(|b| matches!(b, Body::Scope { .. })) >= 80);
}

#[test]
fn expandable_segments() {
    let (recording, _) = equal("expandable", &[("PYTORCH_ALLOC_CONF", "expandable_segments:True")], 1);
    assert!(recording.count(|b| matches!(b, Body::Segment { op: SegmentOp::Unmap, .. })) > 0);
}

#[test]
fn graph_capture_with_a_private_pool() {
    captures_a_graph("", SegmentOp::Alloc);
}

#[test]
fn graph_capture_in_expandable_segments() {
    captures_a_graph("expandable_segments:True", SegmentOp::Map);
}

#[track_caller]
fn captures_a_graph(conf: &str, grows: SegmentOp) {
    let (recording, _) = equal("capture", &[("PYTORCH_ALLOC_CONF", conf)], 1);
    let private = |b: &Body| matches!(b, Body::Alloc(b) if b.pool.is_private());
    assert!(recording.count(private) > 5);
    let captured = |b: &Body| matches!(b, Body::Alloc(b) if b.phase.capture);
    assert!(recording.count(captured) > 0);
    let captures = |b: &Body| matches!(b, Body::CaptureBegin(_) | Body::CaptureEnd(_));
    assert_eq!(recording.count(captures), 2);
    let of_graphs =
        |b: &Body| matches!(b, Body::Segment { op, pool, .. } if *op == grows && pool.is_private());
    assert!(recording.count(of_graphs) > 0);
}

#[test]
fn eight_threads_on_two_devices() {
    let (recording, compared) = equal("threads", &[], 2);
    assert!(compared > 4000, "{compared}");
    let mut threads: Vec<u16> = recording.events.iter().map(|e| e.thread.0).collect();
    threads.sort_unstable();
    threads.dedup();
    assert!(threads.len() >= 8, "{threads:?}");
}

#[test]
fn out_of_memory_and_retry() {
    let (recording, _) = equal("oom", &[], 1);
    assert_eq!(recording.count(|b| matches!(b, Body::Oom { .. })), 2);
    assert!(
        recording.count(|b| matches!(b, Body::Segment { op: SegmentOp::Free, .. })) > 0,
        "the cache was freed"
    );
    assert!(recording.count(|b| matches!(b, Body::MemInfo { .. })) > 0);
}
