//! The table of all events of a process, and the stacks that they name: read once more and written as they come, so that what is in memory
//! does not depend on how many there are.

use super::file::{File, Filling, Shape};
use crate::analyze::{Given, Judged};
use crate::error::Error;
use parquet::data_type::ByteArray;
use rustc_hash::{FxHashMap, FxHashSet};
use std::io::{self, Write};
use strandline::event::{Addr, Body, Bytes, DeviceId, Event, Names, Phase, StackId, StreamHandle};
use strandline::report::export::tables;

/// What an event says beside its kind, its time and its thread.
#[derive(Default)]
struct Said {
    device: Option<DeviceId>,
    stream: Option<StreamHandle>,
    addr: Option<Addr>,
    bytes: Option<Bytes>,
    rounded: Option<Bytes>,
    phase: Phase,
    stack: StackId,
    name: Option<u32>,
}

/// What an event says; of streams that on which it happens, of a change of streams the new one.
fn said(body: &Body) -> Said {
    let none = Said::default();
    match *body {
        Body::Alloc(b) | Body::FreeRequested(b) | Body::FreeCompleted(b) => Said {
            device: Some(b.device),
            stream: Some(b.stream),
            addr: Some(b.addr),
            bytes: Some(b.size),
            rounded: Some(b.rounded).filter(|n| n.0 > 0),
            phase: b.phase,
            stack: b.stack,
            ..none
        },
        Body::Segment { device, addr, size, stream, .. } => {
            Said { device: Some(device), stream: Some(stream), addr: Some(addr), bytes: Some(size), ..none }
        }
        Body::Report { device, addr, rounded, .. } => {
            Said { device: Some(device), addr: Some(addr), rounded: Some(rounded), ..none }
        }
        Body::Oom { device, requested, stream, stack, .. } => {
            Said { device: Some(device), stream: Some(stream), bytes: Some(requested), stack, ..none }
        }
        Body::Runtime { device, addr, size, stream, stack, .. } => Said {
            device: Some(device),
            stream: Some(stream),
            addr: Some(addr),
            bytes: Some(size).filter(|n| n.0 > 0),
            stack,
            ..none
        },
        Body::FreeWaits { device, addr, stream } => {
            Said { device: Some(device), stream: Some(stream), addr: Some(addr), ..none }
        }
        Body::RecordStream { addr, stream } => Said { stream: Some(stream), addr: Some(addr), ..none },
        Body::Scope { device, to, .. } => Said { device: Some(device), stream: Some(to), ..none },
        Body::StreamCreate { device, stream } => Said { device: Some(device), stream: Some(stream), ..none },
        Body::EventRecord { stream, .. }
        | Body::StreamWait { stream, .. }
        | Body::StreamDestroy(stream)
        | Body::StreamDone(stream)
        | Body::CaptureBegin(stream)
        | Body::CaptureEnd(stream) => Said { stream: Some(stream), ..none },
        Body::MemInfo { device, free, .. } => Said { device: Some(device), bytes: Some(free), ..none },
        Body::DeviceDone(device) => Said { device: Some(device), ..none },
        Body::Snapshot { active } => Said { bytes: Some(active), ..none },
        Body::Failed(fault) => {
            Said { device: Some(fault.device), stream: Some(fault.stream), stack: fault.stack, ..none }
        }
        Body::BackwardBegin { stack, .. } => Said { stack, ..none },
        Body::Mark { name, .. } => Said { name: Some(name), ..none },
        _ => none,
    }
}

/// Texts that come again and again, made once.
#[derive(Default)]
struct Texts {
    /// By where the name lies.
    kinds: FxHashMap<(usize, usize), ByteArray>,
    handles: FxHashMap<u64, ByteArray>,
    phases: FxHashMap<u8, ByteArray>,
    /// Near which of the steps' ends the last event was.
    near: usize,
}

/// Writes the events of a process, and says which stacks they name.
///
/// # Errors
/// The recording cannot be read again; what `fail` makes of what the sink says.
pub(super) fn write<W: Write + Send>(
    judged: &Judged,
    pid: Option<i64>,
    out: W,
    fail: impl Fn(io::Error) -> Error,
) -> Result<(W, u64, Vec<StackId>), Error> {
    let mut feed = judged.again()?;
    let mut file = File::new(out, &tables::EVENTS, Shape::Events).map_err(&fail)?;
    let (mut texts, mut stacks) = (Texts::default(), FxHashSet::default());
    while let Some((given, names)) = feed.next() {
        let Given::Events(events) = given else { continue };
        for event in events {
            let says = said(&event.body);
            if says.stack.0 != 0 {
                stacks.insert(says.stack);
            }
            file.row(|columns| fill(columns, judged, pid, event, &says, &mut texts, names)).map_err(&fail)?;
        }
    }
    let rows = file.rows();
    let mut stacks: Vec<StackId> = stacks.into_iter().collect();
    stacks.sort_unstable();
    file.end().map(|out| (out, rows, stacks)).map_err(fail)
}

/// The columns of [`tables::EVENTS`], in their order.
fn fill(
    columns: &mut [Filling],
    judged: &Judged,
    pid: Option<i64>,
    event: &Event,
    says: &Said,
    texts: &mut Texts,
    names: &Names,
) {
    let [of_pid, time, step, thread, kind, device, handle, address, bytes, rounded, phase, stack, name] =
        columns
    else {
        return;
    };
    let text = |of: &str| ByteArray::from(of.as_bytes().to_vec());
    let what = event.body.name();
    of_pid.int(pid);
    time.int(Some((judged.epoch_ns() + event.time.0).cast_signed() / 1000));
    step.int(judged.replay.step_near(event.time, &mut texts.near).map(i64::from));
    thread.int(Some(event.thread.0.into()));
    kind.text(Some(
        texts.kinds.entry((what.as_ptr().addr(), what.len())).or_insert_with(|| text(what)).clone(),
    ));
    device.int(says.device.map(|d| d.0.into()));
    handle.text(says.stream.map(|stream| {
        texts.handles.entry(stream.0).or_insert_with(|| text(&format!("0x{:x}", stream.0))).clone()
    }));
    address.int(says.addr.map(|a| a.0.cast_signed()));
    bytes.int(says.bytes.map(|n| n.0.cast_signed()));
    rounded.int(says.rounded.map(|n| n.0.cast_signed()));
    phase.text((says.phase != Phase::default()).then(|| {
        texts.phases.entry(says.phase.to_bits()).or_insert_with(|| text(&says.phase.words())).clone()
    }));
    stack.int(Some(says.stack.0).filter(|n| *n != 0).map(i64::from));
    name.text(says.name.and_then(|n| names.text(n)).map(text));
}

/// The frames of these stacks as rows, innermost first.
pub(super) fn frames<'n>(
    stacks: &'n [StackId],
    pid: Option<i64>,
    names: &'n Names,
) -> impl Iterator<Item = serde_json::Value> + 'n {
    stacks.iter().flat_map(move |stack| {
        names.frames(*stack).enumerate().map(move |(depth, frame)| {
            serde_json::json!({
                "pid": pid, "stack": stack.0, "depth": depth, "file": frame.file, "line": frame.line, "function": frame.function,
            })
        })
    })
}
