//! An item as a name and its fields, in one order for text and JSON. Bytes are numbers, addresses are `0x…` texts.

use serde_json::{Map, Value, json};
use strandline::event::{Block, Body, Item, Names, PoolId, StackId, Totals};

/// A line of a dump.
pub(super) type Fields = Map<String, Value>;

/// The line of an item; `None` for what only helps to read others.
pub(super) fn of_item(item: &Item, names: &Names) -> Option<Fields> {
    let at = |nanos: u64, what: &str, more: Value| with(json!({ "t_ns": nanos, "what": what }), more);
    Some(fields(match item {
        Item::Event(event) => {
            let more = of_event(&event.body, names);
            at(event.time.0, event.body.name(), with(json!({ "thread": event.thread.0 }), more))
        }
        Item::Meta(facts) => json!({ "what": "meta", "facts": facts }),
        Item::Checkpoint(c) => at(
            c.time.0,
            "checkpoint",
            json!({
                "steps": c.steps, "microbatches": c.microbatches, "events": c.events, "lost": c.lost,
                "blocks": c.blocks.len(), "segments": c.segments.len(),
            }),
        ),
        Item::Driver(d) => {
            let process = d.process.map(|b| b.0);
            let more =
                json!({ "device": d.device.0, "total": d.total.0, "free": d.free.0, "process": process });
            at(d.time.0, "driver", more)
        }
        Item::Thread(t) => json!({
            "what": "thread", "thread": t.thread.0, "tid": t.tid, "name": t.name, "autograd": t.autograd,
        }),
        Item::Dropped(d) => at(
            d.from.0,
            "dropped",
            json!({ "records": d.records, "to_ns": d.to.0, "first_step": d.first_step, "last_step": d.last_step }),
        ),
        Item::End(time) => at(time.0, "end", Value::Null),
        Item::Stack(_) | Item::Name(_) => return None,
        _ => json!({ "what": "unknown" }),
    }))
}

fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}

/// Both, in this order.
fn with(first: Value, more: Value) -> Value {
    let mut all = fields(first);
    all.extend(fields(more));
    Value::Object(all)
}

fn hex(value: u64) -> Value {
    json!(format!("{value:#x}"))
}

fn pool(pool: PoolId) -> Value {
    if pool.is_private() { json!({ "pool": format!("{}.{}", pool.0, pool.1) }) } else { Value::Null }
}

fn block(b: &Block, names: &Names) -> Value {
    let first = json!({
        "device": b.device.0, "addr": hex(b.addr.0), "size": b.size.0, "rounded": b.rounded.0,
        "stream": hex(b.stream.0),
    });
    let phase = match b.phase.words() {
        words if words.is_empty() => Value::Null,
        words => json!({ "phase": words }),
    };
    let totals = b.totals.map_or(Value::Null, totals);
    [pool(b.pool), phase, totals, stack(b.stack, names)].into_iter().fold(first, with)
}

fn totals(t: Totals) -> Value {
    json!({ "allocated": t.allocated.0, "reserved": t.reserved.0 })
}

/// The stack's number and its innermost frame.
fn stack(id: StackId, names: &Names) -> Value {
    let frame = names.frames(id).next().filter(|_| id.0 != 0);
    let frame = frame.map(|f| json!({ "at": format!("{}:{}", f.file, f.line), "in": f.function }));
    if id.0 == 0 { Value::Null } else { with(json!({ "stack": id.0 }), frame.unwrap_or_default()) }
}

/// The fields of an event.
fn of_event(body: &Body, names: &Names) -> Value {
    match body {
        Body::Alloc(b) | Body::FreeRequested(b) | Body::FreeCompleted(b) => block(b, names),
        Body::Segment { device, addr, size, stream, pool: p, .. } => {
            let place = json!({
                "device": device.0, "addr": hex(addr.0), "size": size.0, "stream": hex(stream.0),
            });
            with(place, pool(*p))
        }
        Body::Report { device, addr, rounded, allocated, totals: t } => {
            let block = json!({
                "device": device.0, "addr": hex(addr.0), "rounded": rounded.0, "handed_out": allocated,
            });
            with(block, totals(*t))
        }
        Body::Oom { device, requested, free, stream, stack: id } => {
            let request = json!({
                "device": device.0, "requested": requested.0, "free": free.0, "stream": hex(stream.0),
            });
            with(request, stack(*id, names))
        }
        Body::Snapshot { active } => json!({ "active": active.0 }),
        Body::Runtime { device, addr, size, stream, stack: id, .. } => {
            let call = json!({
                "device": device.0, "addr": hex(addr.0), "size": size.0, "stream": hex(stream.0),
            });
            let refused = if addr.0 == 0 { json!({ "refused": true }) } else { Value::Null };
            with(with(call, stack(*id, names)), refused)
        }
        Body::MemInfo { device, free, total } => {
            json!({ "device": device.0, "free": free.0, "total": total.0 })
        }
        Body::Failed(fault) => {
            let call = json!({
                "call": fault.name(), "status": fault.status, "device": fault.device.0,
                "stream": hex(fault.stream.0),
            });
            with(call, stack(fault.stack, names))
        }
        Body::Gap { lost } => json!({ "lost": lost }),
        Body::Scope { device, from, to } => {
            json!({ "device": device.0, "from": hex(from.0), "to": hex(to.0) })
        }
        Body::StreamCreate { device, stream } => json!({ "device": device.0, "stream": hex(stream.0) }),
        Body::EventRecord { event, stream } => json!({ "event": hex(event.0), "stream": hex(stream.0) }),
        Body::StreamWait { stream, event } => json!({ "stream": hex(stream.0), "event": hex(event.0) }),
        Body::EventDestroy(event) | Body::EventDone(event) => json!({ "event": hex(event.0) }),
        Body::StreamDestroy(stream)
        | Body::StreamDone(stream)
        | Body::CaptureBegin(stream)
        | Body::CaptureEnd(stream) => json!({ "stream": hex(stream.0) }),
        Body::DeviceDone(device) => json!({ "device": device.0 }),
        Body::FreeWaits { device, addr, stream } => {
            json!({ "device": device.0, "addr": hex(addr.0), "stream": hex(stream.0) })
        }
        Body::RecordStream { addr, stream } => json!({ "addr": hex(addr.0), "stream": hex(stream.0) }),
        Body::OptimizerBegin(id) | Body::OptimizerEnd(id) => json!({ "optimizer": id }),
        Body::BackwardBegin { stack: id, nested } => with(json!({ "nested": nested }), stack(*id, names)),
        Body::BackwardEnd { nested } => json!({ "nested": nested }),
        Body::ManualStep(n) => json!({ "step": n }),
        Body::Mark { name, .. } => json!({ "name": names.text(*name) }),
        _ => Value::Null,
    }
}
