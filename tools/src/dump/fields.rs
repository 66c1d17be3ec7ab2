//! An item as a name and its fields, in one order for text and JSON. Bytes are numbers, addresses are `0x…` texts.

use serde_json::{Map, Value, json};
use strandline::event::{Addr, Block, Body, Event, Item, Names, RuntimeOp, SegmentOp, StackId, StreamHandle};

/// A line of a dump.
pub(super) type Fields = Map<String, Value>;

/// The line of an item; `None` for what only helps to read others.
pub(super) fn of(item: &Item, names: &Names) -> Option<Fields> {
    let mut f = Fields::new();
    match item {
        Item::Event(event) => of_event(event, names, &mut f),
        Item::Meta(facts) => {
            put(&mut f, "what", "meta");
            put(&mut f, "facts", facts.clone());
        }
        Item::Checkpoint(c) => {
            at(&mut f, c.time.0, "checkpoint");
            put(&mut f, "steps", c.steps);
            put(&mut f, "microbatches", c.microbatches);
            put(&mut f, "events", c.events);
            put(&mut f, "lost", c.lost);
            put(&mut f, "blocks", c.blocks.len());
            put(&mut f, "segments", c.segments.len());
        }
        Item::Driver(d) => {
            at(&mut f, d.time.0, "driver");
            put(&mut f, "device", d.device.0);
            put(&mut f, "total", d.total.0);
            put(&mut f, "free", d.free.0);
            put(&mut f, "process", d.process.map(|b| b.0));
        }
        Item::Thread(t) => {
            put(&mut f, "what", "thread");
            put(&mut f, "thread", t.thread.0);
            put(&mut f, "tid", t.tid);
            put(&mut f, "name", t.name.as_str());
            put(&mut f, "autograd", t.autograd);
        }
        Item::Dropped(d) => {
            at(&mut f, d.from.0, "dropped");
            put(&mut f, "records", d.records);
            put(&mut f, "to_ns", d.to.0);
            put(&mut f, "first_step", d.first_step);
            put(&mut f, "last_step", d.last_step);
        }
        Item::End(time) => at(&mut f, time.0, "end"),
        Item::Stack(_) | Item::Name(_) => return None,
        _ => put(&mut f, "what", "unknown"),
    }
    Some(f)
}

fn put(f: &mut Fields, name: &str, value: impl Into<Value>) {
    f.insert(name.to_string(), value.into());
}

fn at(f: &mut Fields, nanos: u64, what: &str) {
    put(f, "t_ns", nanos);
    put(f, "what", what);
}

fn hex(value: u64) -> Value {
    json!(format!("{value:#x}"))
}

fn of_event(event: &Event, names: &Names, f: &mut Fields) {
    // The name and the thread come first and the rest follows: a place is kept for the name.
    at(f, event.time.0, "");
    put(f, "thread", event.thread.0);
    let what = of_body(&event.body, names, f);
    put(f, "what", what);
}

fn block(f: &mut Fields, block: &Block, names: &Names) {
    put(f, "device", block.device.0);
    put(f, "addr", hex(block.addr.0));
    put(f, "size", block.size.0);
    put(f, "rounded", block.rounded.0);
    put(f, "stream", hex(block.stream.0));
    if block.pool.is_private() {
        put(f, "pool", format!("{}.{}", block.pool.0, block.pool.1));
    }
    let phases = [
        (block.phase.backward, "backward"),
        (block.phase.optimizer, "optimizer"),
        (block.phase.no_grad, "no_grad"),
        (block.phase.collector, "collector"),
        (block.phase.capture, "capture"),
    ];
    let phases: Vec<&str> = phases.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    if !phases.is_empty() {
        put(f, "phase", phases.join("+"));
    }
    if let Some(totals) = block.totals {
        put(f, "allocated", totals.allocated.0);
        put(f, "reserved", totals.reserved.0);
    }
    stack(f, block.stack, names);
}

/// The stack's number and its innermost frame.
fn stack(f: &mut Fields, id: StackId, names: &Names) {
    if id.0 != 0 {
        put(f, "stack", id.0);
        if let Some(frame) = names.frames(id).next() {
            put(f, "at", format!("{}:{}", frame.file, frame.line));
            put(f, "in", frame.function.as_str());
        }
    }
}

fn on(f: &mut Fields, addr: Addr, size: u64, stream: StreamHandle) {
    put(f, "addr", hex(addr.0));
    put(f, "size", size);
    put(f, "stream", hex(stream.0));
}

/// Fills the fields; returns the event's name.
fn of_body(body: &Body, names: &Names, f: &mut Fields) -> &'static str {
    match body {
        Body::Alloc(b) => {
            block(f, b, names);
            "alloc"
        }
        Body::FreeRequested(b) => {
            block(f, b, names);
            "free_requested"
        }
        Body::FreeCompleted(b) => {
            block(f, b, names);
            "free_completed"
        }
        Body::Segment { op, device, addr, size, stream, pool } => {
            put(f, "device", device.0);
            on(f, *addr, size.0, *stream);
            if pool.is_private() {
                put(f, "pool", format!("{}.{}", pool.0, pool.1));
            }
            match op {
                SegmentOp::Alloc => "segment_alloc",
                SegmentOp::Free => "segment_free",
                SegmentOp::Map => "segment_map",
                SegmentOp::Unmap => "segment_unmap",
            }
        }
        Body::Report { device, addr, rounded, allocated, totals } => {
            put(f, "device", device.0);
            put(f, "addr", hex(addr.0));
            put(f, "rounded", rounded.0);
            put(f, "handed_out", *allocated);
            put(f, "allocated", totals.allocated.0);
            put(f, "reserved", totals.reserved.0);
            "report"
        }
        Body::Oom { device, requested, free, stream, stack: id } => {
            put(f, "device", device.0);
            put(f, "requested", requested.0);
            put(f, "free", free.0);
            put(f, "stream", hex(stream.0));
            stack(f, *id, names);
            "oom"
        }
        Body::Snapshot { active } => {
            put(f, "active", active.0);
            "snapshot"
        }
        Body::Runtime { op, device, addr, size, stream, stack: id } => {
            put(f, "device", device.0);
            on(f, *addr, size.0, *stream);
            if id.0 != 0 {
                stack(f, *id, names);
            }
            if addr.0 == 0 {
                put(f, "refused", true);
            }
            runtime(*op)
        }
        Body::MemInfo { device, free, total } => {
            put(f, "device", device.0);
            put(f, "free", free.0);
            put(f, "total", total.0);
            "mem_info"
        }
        Body::Failed(fault) => {
            put(f, "call", fault.name());
            put(f, "status", fault.status);
            put(f, "device", fault.device.0);
            put(f, "stream", hex(fault.stream.0));
            stack(f, fault.stack, names);
            "failed"
        }
        Body::Gap { lost } => {
            put(f, "lost", *lost);
            "gap"
        }
        other => of_stream(other, names, f),
    }
}

fn runtime(op: RuntimeOp) -> &'static str {
    match op {
        RuntimeOp::Malloc => "cudaMalloc",
        RuntimeOp::Free => "cudaFree",
        RuntimeOp::MallocAsync => "cudaMallocAsync",
        RuntimeOp::FreeAsync => "cudaFreeAsync",
        RuntimeOp::HostAlloc => "cudaHostAlloc",
        RuntimeOp::HostFree => "cudaFreeHost",
        RuntimeOp::MallocManaged => "cudaMallocManaged",
    }
}

/// Streams, events and steps.
fn of_stream(body: &Body, names: &Names, f: &mut Fields) -> &'static str {
    let stream = |f: &mut Fields, s: &StreamHandle| put(f, "stream", hex(s.0));
    match body {
        Body::Scope { device, from, to } => {
            put(f, "device", device.0);
            put(f, "from", hex(from.0));
            put(f, "to", hex(to.0));
            "scope"
        }
        Body::StreamCreate { device, stream: s } => {
            put(f, "device", device.0);
            stream(f, s);
            "stream_create"
        }
        Body::StreamDestroy(s) => {
            stream(f, s);
            "stream_destroy"
        }
        Body::EventRecord { event, stream: s } => {
            put(f, "event", hex(event.0));
            stream(f, s);
            "event_record"
        }
        Body::EventDestroy(event) => {
            put(f, "event", hex(event.0));
            "event_destroy"
        }
        Body::StreamWait { stream: s, event } => {
            stream(f, s);
            put(f, "event", hex(event.0));
            "stream_wait"
        }
        Body::StreamDone(s) => {
            stream(f, s);
            "stream_done"
        }
        Body::EventDone(event) => {
            put(f, "event", hex(event.0));
            "event_done"
        }
        Body::DeviceDone(device) => {
            put(f, "device", device.0);
            "device_done"
        }
        Body::FreeWaits { device, addr, stream: s } => {
            put(f, "device", device.0);
            put(f, "addr", hex(addr.0));
            stream(f, s);
            "free_waits"
        }
        Body::RecordStream { addr, stream: s } => {
            put(f, "addr", hex(addr.0));
            stream(f, s);
            "record_stream"
        }
        Body::CaptureBegin(s) => {
            stream(f, s);
            "capture_begin"
        }
        Body::CaptureEnd(s) => {
            stream(f, s);
            "capture_end"
        }
        other => of_step(other, names, f),
    }
}

fn of_step(body: &Body, names: &Names, f: &mut Fields) -> &'static str {
    match body {
        Body::OptimizerBegin(id) => {
            put(f, "optimizer", *id);
            "optimizer_begin"
        }
        Body::OptimizerEnd(id) => {
            put(f, "optimizer", *id);
            "optimizer_end"
        }
        Body::BackwardBegin { stack: id, nested } => {
            put(f, "nested", *nested);
            stack(f, *id, names);
            "backward_begin"
        }
        Body::BackwardEnd { nested } => {
            put(f, "nested", *nested);
            "backward_end"
        }
        Body::ScalerUpdate => "scaler_update",
        Body::ManualStep(n) => {
            put(f, "step", *n);
            "step"
        }
        Body::Mark { name, phase } => {
            put(f, "name", names.text(*name));
            if *phase { "phase" } else { "mark" }
        }
        _ => "unknown",
    }
}
