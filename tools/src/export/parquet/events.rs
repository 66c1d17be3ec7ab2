//! The table of all events of a process, and the stacks that they name: read once more and written as they come, in files of a bounded length,
//! so that what is in memory does not depend on how many there are.

use super::file::{File, Filling, Shape};
use crate::analyze::{Feed, Given, Judged};
use crate::error::Error;
use rustc_hash::FxHashSet;
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

/// Rows that are made at a time, so that what they say stays in the processor's nearest cache.
const AT_A_TIME: usize = 128;

/// What makes rows of events.
struct Rows<'j> {
    judged: &'j Judged,
    pid: Option<i64>,
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
        let rows = Rows { judged, pid, near: 0, stacks: FxHashSet::default() };
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
    fn push<W: Write + Send>(&mut self, mut events: &[Event], file: &mut File<W>) -> io::Result<()> {
        while !events.is_empty() {
            let (now, later) = events.split_at(events.len().min(AT_A_TIME).min(file.room()));
            let says: Vec<Said> = now.iter().map(|event| said(&event.body)).collect();
            self.stacks.extend(says.iter().map(|s| s.stack).filter(|stack| stack.0 != 0));
            file.extend(now.len(), |columns| self.fill(columns, now, &says))?;
            events = later;
        }
        Ok(())
    }

    /// The columns of [`tables::EVENTS`], in their order.
    fn fill(&mut self, columns: &mut [Filling], events: &[Event], says: &[Said]) {
        let [of_pid, time, step, thread, kind, device, handle, address, size, rounded, phase, stack, name] =
            columns
        else {
            return;
        };
        let (judged, pid) = (self.judged, self.pid);
        let (names, epoch) = (&judged.read.names, judged.epoch_ns());
        of_pid.repeated(events.iter().map(|_| pid));
        time.all(events.iter().map(|e| (epoch + e.time.0).cast_signed() / 1000));
        step.some(events.iter().map(|e| judged.replay.step_near(e.time, &mut self.near).map(i64::from)));
        thread.repeated(events.iter().map(|e| Some(e.thread.0.into())));
        // A name is known by where it lies.
        let key = |what: &str| (what.as_ptr().addr() as u64) << 8 | what.len() as u64;
        kind.texts(events.iter().map(|e| e.body.name()).map(|what| Some((key(what), what))), str::to_owned);
        device.repeated(says.iter().map(|s| s.device.map(|d| d.0.into())));
        handle.texts(says.iter().map(|s| s.stream.map(|of| (of.0, of.0))), |of| format!("0x{of:x}"));
        address.repeated(says.iter().map(|s| s.addr.map(|a| a.0.cast_signed())));
        size.repeated(says.iter().map(|s| s.bytes.map(|n| n.0.cast_signed())));
        rounded.repeated(says.iter().map(|s| s.rounded.map(|n| n.0.cast_signed())));
        let of = |s: &Said| (s.phase != Phase::default()).then(|| (s.phase.to_bits().into(), s.phase));
        phase.texts(says.iter().map(of), |of| of.words());
        stack.repeated(says.iter().map(|s| Some(s.stack.0).filter(|n| *n != 0).map(i64::from)));
        let named = |n| Some((u64::from(n), names.text(n)?));
        name.texts(says.iter().map(|s| s.name.and_then(named)), str::to_owned);
    }
}
