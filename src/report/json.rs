//! The report for programs: schema 1, as docs and CI scripts rely on it.
//!
//! Bytes and counts are integers, steps count from 1, and what is not known is `null`, never 0. Fields may be added; none
//! changes its meaning within a schema.

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::held::{HeldBy, in_words};
use super::later::later;
use super::model::{Facts, Known, Moment, Process, Report, because, capacity, fatal, remedy, tried};
use super::ranks::Ranks;
use crate::detect::{Finding, Outcome, post_mortem};
use crate::event::steps::StepSource;
use crate::event::{Bytes, Frame, RuntimeOp, total};
use crate::replay::anatomy::At;
use crate::replay::{Amount, Coverage, Device, Holder, OomEvent, Peak, Site};

/// Prints the report as one JSON object, indented, and a newline.
pub fn write(out: &mut impl Write, r: &Report<'_>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Whole(r))?;
    writeln!(out)
}

/// The report, and its processes: one after the other, for of a thousand they are not in memory together.
struct Whole<'a>(&'a Report<'a>);
struct Processes<'a>(&'a [Process<'a>]);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut all = s.serialize_map(None)?;
        for (name, value) in head(self.0).as_object().into_iter().flatten() {
            all.serialize_entry(name, value)?;
        }
        all.serialize_entry("processes", &Processes(&self.0.processes))?;
        all.end()
    }
}

impl Serialize for Processes<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.0.iter().map(process))
    }
}

/// What is said of the job as a whole.
pub(super) fn head(r: &Report<'_>) -> Value {
    // A process that the host killed is what a person must hear of first; the word for a program, and what a gate counts, is the
    // gravest verdict.
    let first = r.gravest();
    let job = r.job();
    json!({
        "schema": 1,
        "tool": format!("strandline {}", crate::VERSION),
        "verdict": job.outcome.name(),
        "reason": job.reason,
        "detectable_bytes_per_step": job.detectable.map(number),
        "worst_process": job.order.first(),
        "command": first.map(|p| Facts::of(p.replay).command()).filter(|c| !c.is_empty()),
        "ranks": Ranks::of(r).map(|ranks| ranks.value(r)),
    })
}

/// A process.
pub(super) fn process(p: &Process<'_>) -> Value {
    let f = Facts::of(p.replay);
    let r = p.replay;
    let level = p.replay.coverage();
    let counted = r.step_source() != StepSource::None;
    // Where no call was seen, none is not zero.
    let seen = level.name() != "none";
    let compared: u64 = r.devices().map(|d| d.compared).sum();
    let mut told = json!({
        "pid": f.number("pid"),
        "host": f.text("host"),
        "rank": f.number("rank"),
        "framework": f.text("framework"),
        "allocator": f.text("allocator"),
        "verdict": p.verdict.outcome.name(),
        "reason": p.verdict.reason,
        "detectable_bytes_per_step": p.verdict.detectable.map(number),
        "coverage": { "level": level.name(), "reason": f.coverage_reason(level) },
        "ended": p.ended.name(),
        "exit_status": r.exit_status(),
        "killed_by_host": p.killer.killed(),
        "failed_in": p.self_fault.as_ref().map(|f| f.place.as_str()),
        "step_source": r.step_source().name(),
        "steps": counted.then(|| r.steps()),
        "microbatches": counted.then(|| r.microbatches()),
        "events": r.events(),
        "events_lost": r.lost(),
        "accounting_drift_bytes": (compared > 0).then(|| r.accounting_drift().0),
        "damage": p.damage,
        "cost": {
            "step_time_fraction": p.cost.step_time_fraction,
            "host_bytes": p.cost.host.map(bytes),
            "disk_bytes": p.cost.disk.map(bytes),
            "probe": p.cost.probe.map(|c| json!({
                "questions": c.questions, "pauses": c.pauses, "objects": c.objects,
                "paused_seconds": c.paused as f64 / 1e9, "longest_seconds": c.longest as f64 / 1e9,
            })),
        },
        "failed_call": r.failed().map(|f| json!({
            "call": f.fault.name(), "status": f.fault.status, "explain": f.fault.words(), "device": f.fault.device.0,
            "stream": f.stream.map(|s| s.0), "step": f.step, "phase": f.phase.name(),
            "your_line": r.site(f.site).and_then(|s| s.your_line.as_ref()).map(frame),
            "frames": p.names.frames(f.fault.stack).map(frame).collect::<Vec<_>>(),
        })),
        "pinned_host": seen.then(|| amount(r.calls().pinned)),
        "managed": seen.then(|| amount(r.calls().managed)),
        "libraries": seen.then(|| r.calls().libraries.iter().map(|(name, a)| json!({
            "name": name,
            "bytes": a.now.0,
            "peak_bytes": a.peak.0,
        })).collect::<Vec<_>>()),
        "devices": r.devices().map(|d| device(p, d)).collect::<Vec<_>>(),
        "findings": p.findings.iter().enumerate().map(|(i, x)| finding(p, x, p.known.get(i))).collect::<Vec<_>>(),
    });
    if let Some(n) = p.at_step {
        told["at_step"] = json!(n);
    }
    if let Some(whole) = p.at_end() {
        told["at_end"] = json!({
            "steps": whole.replay.steps(), "verdict": whole.verdict.outcome.name(), "reason": whole.verdict.reason,
        });
    }
    told
}

fn amount(a: Amount) -> Value {
    json!({ "bytes": a.now.0, "peak_bytes": a.peak.0 })
}

fn bytes(b: Bytes) -> u64 {
    b.0
}

fn device(p: &Process<'_>, d: &Device) -> Value {
    let blocks = p.replay.coverage() == Coverage::Blocks;
    // Without block events, "allocated" was never seen: it is unknown, not 0.
    let seen = |b: Bytes| blocks.then_some(b.0);
    let reached = |k: &Peak| blocks && k.bytes.0 > 0;
    // The end is the last step's: what a job frees on its way out says nothing about it.
    let end = d.rows.last();
    let told = d.capacity.map(|c| c.source).or(capacity(p, d.id).map(|_| "program"));
    let reserved = end.map_or(d.reserved, |r| r.reserved).0;
    let libraries = total(p.replay.calls().on(d.id).iter().map(|(_, b)| b.0));
    let context = p.contexts.get(&d.id);
    // The failure says more than the peak, where there are both.
    let moment = [At::Event, At::Oom, At::Peak]
        .into_iter()
        .find_map(|at| p.anatomies.iter().find(|m| m.device == d.id && m.at == at));
    json!({
        "index": d.id.0,
        "name": Facts::of(p.replay).device_name(d.id),
        "capacity_bytes": capacity(p, d.id),
        // Less than the capacity where the job limits itself: what torch may reserve of it.
        "limit_bytes": p.replay.limit(d.id).map(|b| b.0),
        "free_source": told,
        "peak_allocated_bytes": seen(d.peak_allocated.bytes),
        "peak_reserved_bytes": d.peak_reserved.bytes.0,
        "peak_step": reached(&d.peak_allocated).then_some(d.peak_allocated.step),
        "peak_phase": reached(&d.peak_allocated).then_some(d.peak_allocated.phase.name()),
        "end_allocated_bytes": seen(end.map_or(d.allocated, |r| r.allocated)),
        "end_reserved_bytes": reserved,
        "anatomy": moment.map(|m| anatomy(p, m)),
        // What a context takes there, where it was measured (`strandline doctor --context`); null: it was not.
        "context": context.map(|c| json!({ "bytes": c.bytes.0, "driver": c.driver, "measured": c.measured })),
        // What has a name: what torch holds at the end, what libraries were seen to take, a context.
        "attributed_bytes": context.map(|c| reserved.saturating_add(libraries).saturating_add(c.bytes.0)),
        "libraries": p.replay.calls().on(d.id).into_iter().map(|(name, b)| json!({ "name": name, "bytes": b.0 })).collect::<Vec<_>>(),
        "oom": d.ooms.last().map(|o| oom(p, d, o)),
        "per_step": d.rows.iter().map(|r| json!({
            "step": r.step,
            "allocated_bytes": r.allocated.0,
            "reserved_bytes": r.reserved.0,
            "pending_bytes": r.pending.0,
            "peak_bytes": r.peak.0,
        })).collect::<Vec<_>>(),
    })
}

fn anatomy(p: &Process<'_>, m: &Moment) -> Value {
    let a = &m.anatomy;
    json!({
        "at": m.at.name(),
        "step": a.step,
        "weights": a.weights.0,
        "gradients": a.gradients.0,
        "optimizer": a.optimizer.0,
        "activations": a.activations.0,
        "temporaries": a.temporaries.0,
        "left_behind": a.left_behind.0,
        "growing": a.growing.0,
        "suppressed": a.suppressed.0,
        "peak_without_growth": a.peak_without.map(bytes),
        "other": a.other.0,
        "before_recording": a.before_recording.0,
        "pending": a.pending.0,
        "cached": a.cached.0,
        // A part of `libraries`, where those are known.
        "context": super::anatomy::context(p, m),
        "libraries": a.libraries.map(bytes),
        "seen_libraries": a.seen_libraries.iter().map(|(name, b)| json!({ "name": name, "bytes": b.0 })).collect::<Vec<_>>(),
        "other_processes": a.other_processes.map(bytes),
        "free": a.free.map(bytes),
    })
}

fn oom(p: &Process<'_>, d: &Device, o: &OomEvent) -> Value {
    let m = post_mortem(p.replay, d.id);
    // What a leak or growth has filled needs no other cause.
    let grown = p.verdict.finding.and_then(|i| p.findings.get(i));
    let filled = grown.is_some_and(|f| f.device == d.id && fatal(p, f).is_some());
    let filled = match p.verdict.outcome {
        Outcome::Leak => Some("leak"),
        Outcome::Growing if filled => Some("growing"),
        Outcome::Oom if filled => Some("suppressed"),
        _ => None,
    };
    let m = m.as_ref();
    let why = m.filter(|_| filled.is_none());
    let scene = d.scene.as_ref().filter(|s| s.event == o.event);
    let holder = |h: &Holder| {
        json!({
            "bytes": h.bytes.0,
            "blocks": h.blocks,
            "first_step": h.first_step,
            "this_step_bytes": h.of_this_step.0,
            "stream": h.stream.0,
            "line": p.replay.site(h.site).map(|s| frame(&s.frame)),
        })
    };
    json!({
        "cause": filled.or(why.map(|m| m.cause.name())),
        "explain": why.map(|m| m.in_words()),
        "remedy": why.map(|m| m.remedy),
        "microbatch": scene.map(|s| s.microbatch),
        "before_recording_bytes": scene.map(|s| s.before_recording.0),
        "largest_free_bytes": scene.map(|s| s.largest.0),
        "cached_bytes": scene.map(|s| s.cached.0),
        "cached_pieces": scene.map(|s| s.pieces),
        "cached_elsewhere_bytes": scene.map(|s| s.elsewhere.0),
        "step_need_bytes": m.map(|m| m.need),
        "median_step_need_bytes": m.and_then(|m| m.median_need),
        "outside_bytes": m.and_then(|m| m.outside),
        "other_processes_bytes": m.and_then(|m| m.other_processes),
        "step_before": m.and_then(|m| m.change).map(|c| json!({
            "start_bytes": c.start_before, "peak_bytes": c.peak_before, "start_bytes_now": c.start,
        })),
        "holders": scene.map(|s| s.holders.iter().map(holder).collect::<Vec<_>>()),
        "step": o.step,
        "phase": o.phase.name(),
        "requested_bytes": o.requested.0,
        "tried_to_allocate_bytes": tried(p, o).map(|b| b.0),
        "free_bytes": o.free.map(bytes),
        // The CUDA call that was refused, where no allocator of PyTorch's told of it.
        "call": o.call.map(call),
        "stream": p.replay.stream(o.stream).map(|s| s.id.0),
        "allocated_bytes": o.allocated.0,
        "reserved_bytes": o.reserved.0,
        "pending_bytes": o.pending.0,
        "frames": p.names.frames(o.stack).map(frame).collect::<Vec<_>>(),
    })
}

fn call(op: RuntimeOp) -> &'static str {
    match op {
        RuntimeOp::MallocAsync => "malloc-async",
        _ => "malloc",
    }
}

/// A finding of a process as the report has it, and what is known of it beyond the recording.
pub fn finding(p: &Process<'_>, f: &Finding, known: Option<&Known>) -> Value {
    let mut v = json!({
        "kind": f.kind.name(),
        "headline": f.headline(),
        "rate": super::text::rate(f),
        "certainty": f.certainty.name(),
        "evidence": f.evidence.iter().map(|e| json!({ "what": e.what, "value": number(e.value) })).collect::<Vec<_>>(),
        "bound": f.bound.as_ref().map(|b| json!({ "bytes": b.bytes, "at_step": b.at_step, "source": b.source })),
        "severity": f.severity.name(),
        "imminent": f.is_imminent(),
        "grain": f.grain.name(),
        "device": f.device.0,
        "stream": f.stream.map(|s| json!({
            "id": s.id.0, "handle": format!("0x{:x}", s.handle.0), "side": s.side, "epoch": s.epoch,
        })),
        "first_step": f.first_step,
        "detected_step": f.detected_step,
        "withdrawn_step": f.withdrawn_step,
        "bytes_per_step": number(f.bytes_per_step),
        "blocks_per_step": number(f.blocks_per_step),
        "current_bytes_per_step": number(f.current_bytes_per_step),
        "bytes_now": f.bytes_now,
        "blocks_now": f.blocks_now,
        "newest_steps_not_counted": f.not_counted,
        "with_others": f.with_others,
        "steps_to_oom": f.steps_to_oom.map(|s| forecast([s.low, s.mid, s.high])),
        "seconds_to_oom": f.seconds_to_oom.map(|s| forecast([s.low, s.mid, s.high])),
        "explain": because(p, f, known),
        "held_by": held_by(p, f, known),
        "kept_at": known.and_then(|k| k.kept_at.as_ref()).map(|k| json!({
            "file": k.file, "line": k.line, "source": k.source,
        })),
        // Other statements that keep good parts of the blocks, and their parts.
        "kept_too": known.map(|k| k.kept_too.iter().map(|(k, share)| json!({
            "file": k.file, "line": k.line, "source": k.source, "share": (share * 1e4).round() / 1e4,
        })).collect::<Vec<_>>()).unwrap_or_default(),
        "modified_source": known.and_then(|k| k.modified.as_ref()),
        "remedy": remedy(p, f, known),
        "suppressed_by": f.suppressed_by,
        "fix": known.and_then(|k| k.fix.as_ref()).map(|x| json!({ "known": x.known, "text": x.text })),
    });
    let sites = f.sites.iter().filter_map(|s| Some(site(p, &s.site(p.replay)?, s.share))).collect();
    if let Some(m) = v.as_object_mut() {
        m.insert("sites".into(), Value::Array(sites));
        if let Some(later) = later(p, f) {
            m.insert("at_end".into(), json!(later.name()));
        }
    }
    v
}

/// "Never" has no number.
fn forecast(until: [u64; 3]) -> Value {
    let [low, mid, high] = until.map(|n| (n != u64::MAX).then_some(n));
    json!({ "low": low, "mid": mid, "high": high })
}

/// Whole numbers as integers; what is no number is not known.
fn number(v: f64) -> Value {
    if v.is_finite() && v.fract() == 0.0 && v.abs() < 9e15 { json!(v as i64) } else { json!(v) }
}

fn held_by(p: &Process<'_>, f: &Finding, known: Option<&Known>) -> Value {
    const NOBODY: &str = "not looked up while the process ran";
    let held = known.map_or(&HeldBy::NotRun, |k| &k.held_by);
    let (status, holders) = match held {
        HeldBy::NotRun | HeldBy::Skipped(_) => ("not_run", &[][..]),
        HeldBy::NotFound(_) => ("not_found", &[][..]),
        HeldBy::Found(h) => ("found", h.as_slice()),
    };
    let nobody = (*held == HeldBy::NotRun).then_some(NOBODY);
    let reason = super::text::why_unknown(p, f, held).or(nobody);
    let details: Vec<Value> = holders.iter().map(|h| h.to_json()).collect();
    let words = in_words(holders);
    let holders: Vec<String> = holders.iter().map(|h| h.in_short()).collect();
    json!({ "status": status, "holders": holders, "words": words, "reason": reason.filter(|r| !r.is_empty()), "details": details })
}

fn site(p: &Process<'_>, s: &Site, share: f64) -> Value {
    let mut m = Map::new();
    m.insert("share".into(), json!((share * 1e4).round() / 1e4));
    m.insert("your_line".into(), s.your_line.as_ref().map_or(Value::Null, frame));
    // What runs on an autograd thread has no line; the frames behind it are those of whoever called backward.
    let node = s.node.iter().map(|n| json!({ "file": "<autograd>", "line": null, "function": n }));
    m.insert("frames".into(), node.chain(p.names.frames(s.stack).map(frame)).collect());
    if let Some(native) = p.native.get(&s.stack) {
        m.insert("native_frames".into(), native.frames.iter().map(frame).collect());
    }
    Value::Object(m)
}

/// A frame.
pub(super) fn frame(f: &Frame) -> Value {
    json!({ "file": f.file, "line": (f.line > 0).then_some(f.line), "function": f.function })
}
