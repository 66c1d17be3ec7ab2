//! The table of all events of a process, and the stacks that they name: read once more and written as they come, in files of a bounded length,
//! so that what is in memory does not depend on how many there are.

use super::file::{File, Filling, Shape};
use crate::analyze::{Feed, Given, Judged};
use crate::error::Error;
use parquet::data_type::ByteArray;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use std::io::{self, Write};
use strandline::event::{Addr, Body, Bytes, DeviceId, Event, Phase, StackId, StreamHandle};
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

/// What makes rows of events, with the texts that come again and again made once.
struct Rows<'j> {
    judged: &'j Judged,
    pid: Option<i64>,
    /// By where the name lies.
    kinds: FxHashMap<(usize, usize), ByteArray>,
    handles: FxHashMap<u64, ByteArray>,
    phases: FxHashMap<u8, ByteArray>,
    /// Near which of the steps' ends the last event was.
    near: usize,
    /// The stacks that events name.
    stacks: FxHashSet<StackId>,
}

/// The events of a process that are still to be written.
pub(super) struct Events<'j> {
    feed: Feed,
    rows: Rows<'j>,
    /// Those that had been read when a file was full.
    held: Vec<Event>,
}

impl<'j> Events<'j> {
    /// # Errors
    /// The recording cannot be read again.
    pub(super) fn of(judged: &'j Judged, pid: Option<i64>) -> Result<Events<'j>, Error> {
        let rows = Rows {
            judged,
            pid,
            kinds: FxHashMap::default(),
            handles: FxHashMap::default(),
            phases: FxHashMap::default(),
            near: 0,
            stacks: FxHashSet::default(),
        };
        Ok(Events { feed: judged.again()?, rows, held: Vec::new() })
    }

    /// Writes a file of the next events, which ends soon after `most` rows: the index of a file is in memory until it ends. Also how many
    /// there were, and whether more follow.
    ///
    /// # Errors
    /// What the sink says.
    pub(super) fn write<W: Write + Send>(&mut self, out: W, most: u64) -> io::Result<(W, u64, bool)> {
        let mut file = File::new(out, &tables::EVENTS, Shape::Events)?;
        self.rows.push(&std::mem::take(&mut self.held), &mut file)?;
        while let Some((given, _)) = self.feed.next() {
            let Given::Events(events) = given else { continue };
            if file.rows() >= most {
                self.held = events.to_vec();
                break;
            }
            self.rows.push(events, &mut file)?;
        }
        let rows = file.rows();
        Ok((file.end()?, rows, !self.held.is_empty()))
    }

    /// The frames of the stacks that the events named, as rows.
    pub(super) fn frames(self) -> impl Iterator<Item = Value> + use<'j> {
        let Rows { judged, pid, stacks, .. } = self.rows;
        let mut stacks: Vec<StackId> = stacks.into_iter().collect();
        stacks.sort_unstable();
        stacks.into_iter().flat_map(move |stack| {
            // Innermost first.
            judged.read.names.frames(stack).enumerate().map(move |(depth, frame)| {
                json!({
                    "pid": pid, "stack": stack.0, "depth": depth, "file": frame.file, "line": frame.line, "function": frame.function,
                })
            })
        })
    }
}

impl Rows<'_> {
    fn push<W: Write + Send>(&mut self, events: &[Event], file: &mut File<W>) -> io::Result<()> {
        events.iter().try_for_each(|event| {
            let says = said(&event.body);
            if says.stack.0 != 0 {
                self.stacks.insert(says.stack);
            }
            file.row(|columns| self.fill(columns, event, &says))
        })
    }

    /// The columns of [`tables::EVENTS`], in their order.
    fn fill(&mut self, columns: &mut [Filling], event: &Event, says: &Said) {
        let [of_pid, time, step, thread, kind, device, handle, address, size, rounded, phase, stack, name] =
            columns
        else {
            return;
        };
        let text = |of: &str| ByteArray::from(of.as_bytes().to_vec());
        // There are few of these, and every row has some: what is there for good is not counted with each.
        let lasting = |of: &str| bytes::Bytes::from_static(Box::leak(of.as_bytes().into())).into();
        let (judged, what) = (self.judged, event.body.name());
        of_pid.int(self.pid);
        time.int(Some((judged.epoch_ns() + event.time.0).cast_signed() / 1000));
        step.int(judged.replay.step_near(event.time, &mut self.near).map(i64::from));
        thread.int(Some(event.thread.0.into()));
        kind.text(Some(
            self.kinds
                .entry((what.as_ptr().addr(), what.len()))
                .or_insert_with(|| bytes::Bytes::from_static(what.as_bytes()).into())
                .clone(),
        ));
        device.int(says.device.map(|d| d.0.into()));
        handle.text(says.stream.map(|stream| {
            self.handles.entry(stream.0).or_insert_with(|| lasting(&format!("0x{:x}", stream.0))).clone()
        }));
        address.int(says.addr.map(|a| a.0.cast_signed()));
        size.int(says.bytes.map(|n| n.0.cast_signed()));
        rounded.int(says.rounded.map(|n| n.0.cast_signed()));
        phase.text((says.phase != Phase::default()).then(|| {
            self.phases.entry(says.phase.to_bits()).or_insert_with(|| lasting(&says.phase.words())).clone()
        }));
        stack.int(Some(says.stack.0).filter(|n| *n != 0).map(i64::from));
        name.text(says.name.and_then(|n| judged.read.names.text(n)).map(text));
    }
}
