//! A time line as Chrome's trace events in JSON, which Perfetto reads: counters of memory, steps, backwards, optimizer steps,
//! streams, and what was found, at the step at which it was.

use super::timeline::{Lane, Slice, Timeline, Track};
use crate::detect::{Finding, GrainName};
use crate::event::{DeviceId, StreamHandle};
use crate::report::model::{Facts, Process, Report};
use crate::report::text::{failures, findings, place, stream};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Numbers of what is no thread: above every number that Linux gives to one.
const NO_THREAD: u64 = 1 << 22;

/// Prints the time lines of a report's processes, in their order, each with the Unix time in nanoseconds at which its clock was 0.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, report: &Report<'_>, lines: &[(Timeline, u64)]) -> io::Result<()> {
    let zero = lines.iter().map(|(_, epoch)| *epoch).min().unwrap_or(0);
    let left_out: u64 = lines.iter().map(|(t, _)| t.left_out).sum();
    let head = json!({
        "tool": format!("strandline {}", crate::VERSION),
        "unix_ns": zero,
        "slices_left_out": left_out,
    });
    write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{head},\"traceEvents\":[")?;
    let mut events = Events { out, first: true, pid: 0, shift: 0 };
    let mut pids: Vec<u64> = Vec::new();
    for (i, (p, (line, epoch))) in report.processes.iter().zip(lines).enumerate() {
        // Of several machines two processes may have one number.
        let pid = Facts::of(p.replay).number("pid").filter(|pid| !pids.contains(pid));
        events.pid = pid.unwrap_or(NO_THREAD + i as u64);
        events.shift = epoch - zero;
        pids.push(events.pid);
        process(&mut events, &report.name(p), p, line)?;
    }
    let end = events.out;
    writeln!(end, "\n]}}")
}

/// Where events go: one a line.
struct Events<'a, W> {
    out: &'a mut W,
    first: bool,
    pid: u64,
    /// Of the clock of this process against that of all.
    shift: u64,
}

impl<W: Write> Events<'_, W> {
    /// An event of this kind (`ph`) on a thread, at a time of the process's clock.
    fn event(&mut self, kind: &str, name: &str, tid: u64, time: u64, more: Value) -> io::Result<()> {
        let ts = (time + self.shift) as f64 / 1000.0;
        let mut event = json!({ "ph": kind, "name": name, "pid": self.pid, "tid": tid, "ts": ts });
        if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        self.out.write_all(if std::mem::take(&mut self.first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *self.out, &event).map_err(io::Error::from)
    }

    /// What a process or a thread is called.
    fn name(&mut self, what: &str, tid: u64, name: &str) -> io::Result<()> {
        self.event("M", what, tid, 0, json!({ "args": { "name": name } }))
    }

    fn counter(&mut self, name: &str, time: u64, args: Value) -> io::Result<()> {
        self.event("C", name, 0, time, json!({ "args": args }))
    }

    fn slice(&mut self, name: &str, tid: u64, from: u64, to: u64, args: Value) -> io::Result<()> {
        let dur = to.saturating_sub(from) as f64 / 1000.0;
        self.event("X", name, tid, from, json!({ "dur": dur, "args": args }))
    }

    fn instant(&mut self, name: &str, tid: u64, time: u64, args: Value) -> io::Result<()> {
        self.event("i", name, tid, time, json!({ "s": "t", "args": args }))
    }
}

/// What is drawn above the threads of a process.
const STEPS: u64 = NO_THREAD;
const FOUND: u64 = NO_THREAD + 1;
const NAMED: u64 = NO_THREAD + 2;

fn process<W: Write>(e: &mut Events<'_, W>, name: &str, p: &Process<'_>, t: &Timeline) -> io::Result<()> {
    e.name("process_name", 0, name)?;
    for (tid, name) in [(STEPS, "steps"), (FOUND, "found"), (NAMED, "phases and marks")] {
        e.name("thread_name", tid, name)?;
    }
    for (tid, name) in t.threads.values() {
        e.name("thread_name", u64::from(*tid), name)?;
    }
    for (device, lane) in &t.lanes {
        counters(e, p, t, *device, lane)?;
    }
    let noun = p.replay.step_source().noun();
    for (step, from, to) in &t.steps {
        e.slice(&format!("{noun} {step}"), STEPS, *from, *to, json!({}))?;
    }
    for (number, slice) in t.slices.iter().enumerate() {
        one(e, p, t, slice, number)?;
    }
    found(e, p, t)
}

fn counters<W: Write>(
    e: &mut Events<'_, W>,
    p: &Process<'_>,
    t: &Timeline,
    device: DeviceId,
    lane: &Lane,
) -> io::Result<()> {
    let gpu = format!("GPU {}", device.0);
    let waits = lane.points.iter().any(|x| x[3] > 0);
    for [time, allocated, reserved, pending] in lane.points.iter().copied() {
        e.counter(&format!("{gpu} allocated"), time, json!({ "bytes": allocated }))?;
        e.counter(&format!("{gpu} reserved"), time, json!({ "bytes": reserved }))?;
        if waits {
            e.counter(&format!("{gpu} waiting to be freed"), time, json!({ "bytes": pending }))?;
        }
    }
    for [time, used] in lane.driver.iter().copied() {
        e.counter(&format!("{gpu} used (driver)"), time, json!({ "bytes": used }))?;
    }
    for (i, site) in t.lines.iter().enumerate().filter_map(|(i, id)| Some((i, p.replay.site(*id)?))) {
        let name = format!("{gpu}: {}", place(p, site));
        let mut last = 0;
        for (time, bytes) in lane.by_line.iter().filter_map(|(time, all)| Some((*time, *all.get(i)?))) {
            if bytes != last {
                e.counter(&name, time, json!({ "bytes": bytes }))?;
            }
            last = bytes;
        }
    }
    Ok(())
}

fn one<W: Write>(
    e: &mut Events<'_, W>,
    p: &Process<'_>,
    t: &Timeline,
    slice: &Slice,
    number: usize,
) -> io::Result<()> {
    let tid = |thread| {
        t.threads.get(&thread).map_or(NO_THREAD + 16 + u64::from(thread.0), |(tid, _)| (*tid).into())
    };
    match (&slice.track, slice.to) {
        (Track::Thread(thread), Some(to)) => e.slice(&slice.name, tid(*thread), slice.from, to, json!({})),
        (Track::Named, Some(to)) => e.slice(&slice.name, NAMED, slice.from, to, json!({})),
        (_, None) => e.instant(&slice.name, NAMED, slice.from, json!({})),
        (Track::Stream(device, handle), Some(to)) => {
            // Several threads may have the same stream: such slices overlap, and have a number of their own.
            let name = format!("GPU {}, {}", device.0, stream_name(p, *device, *handle));
            let thread = t.threads.get(&slice.thread).map(|(_, name)| name.as_str());
            let with = json!({ "cat": "stream", "id": number, "args": { "thread": thread } });
            e.event("b", &name, tid(slice.thread), slice.from, with.clone())?;
            e.event("e", &name, tid(slice.thread), to, with)
        }
    }
}

fn stream_name(p: &Process<'_>, device: DeviceId, handle: StreamHandle) -> String {
    let known = p.replay.streams().iter().find(|s| s.device == device && s.handle == handle);
    known.map_or_else(|| format!("stream 0x{:x}", handle.0), |s| stream(p.replay, s.id))
}

/// What was found, when it was first said; what failed, when it did.
fn found<W: Write>(e: &mut Events<'_, W>, p: &Process<'_>, t: &Timeline) -> io::Result<()> {
    for told in findings(p) {
        let Some(f) = p.findings.get(told.index) else { continue };
        let args = json!({ "kind": f.kind.name(), "certainty": f.certainty.name(), "report": told.body });
        e.instant(&told.head, FOUND, said_at(t, f), args)?;
    }
    let said = failures(p);
    for o in p.replay.devices().flat_map(|d| &d.ooms) {
        e.instant("out of memory", FOUND, o.time.0, json!({ "report": said }))?;
    }
    Ok(())
}

/// The end of the mark at which a finding was first said.
fn said_at(t: &Timeline, f: &Finding) -> u64 {
    let ends: Vec<(u32, u64)> = match f.grain {
        GrainName::Microbatch => t.microbatches.clone(),
        GrainName::Step | GrainName::Tick | GrainName::Iteration => {
            t.steps.iter().map(|(n, _, to)| (*n, *to)).collect()
        }
    };
    let at = ends.iter().find(|(n, _)| *n >= f.detected_step).or(ends.last());
    at.map_or(0, |(_, time)| *time)
}
