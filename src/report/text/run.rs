//! How the run went, and how much of it was seen.

use super::super::model::{Ended, Facts, Process};
use super::super::style::{Ink, Style};
use super::super::units::{duration, percent, plural, size, thousands};
use super::damage;
use super::ended::signal;
use super::place::line;
use crate::event::steps::{Iterations, StepSource};
use crate::replay::{Amount, Coverage};

/// The lines.
pub(super) fn lines(p: &Process<'_>, style: Style) -> Vec<String> {
    let mut out = style.wrap("  run    ", &run(p));
    // Of a past moment it is not known.
    if let Some(text) = cost(p).filter(|_| p.at_step.is_none()) {
        out.extend(style.wrap("  cost   ", &text));
    }
    if let Some(text) = beside(p) {
        out.extend(style.wrap("  also   ", &text));
    }
    for text in doubts(p) {
        let lines = style.wrap("  unseen ", &text);
        out.extend(lines.into_iter().map(|l| style.paint(Ink::Doubt, &l)));
    }
    out
}

fn run(p: &Process<'_>) -> String {
    let r = p.replay;
    let mut parts = vec![steps(p)];
    if let Some(n) = p.at_step {
        let ran_out = p.whole.iter().flat_map(|w| w.replay.devices()).find_map(|d| d.ooms.first());
        let later = ran_out.filter(|o| o.step > n).map(|o| thousands(o.step.into()));
        let noun = r.step_source().noun();
        let later = later.map_or_else(String::new, |n| format!("; memory ran out in {noun} {n}"));
        parts.push(format!("as of {noun} {}{later}", thousands(n.into())));
    }
    // Where steps are backwards, each has one microbatch, and a last step that failed has begun one more: not worth a word.
    if r.microbatches() > r.steps() + 1 {
        parts.push(plural(r.microbatches().into(), "backward pass"));
    }
    parts.extend((r.time().0 > 0).then(|| duration(r.time().0)));
    let is_snapshot = Facts::of(r).text("steps") == Some("snapshot");
    let mut events = match p.damage.is_empty() {
        true if is_snapshot => format!("{} in the snapshot", plural(r.events(), "event")),
        true => format!("{} recorded, {} lost", plural(r.events(), "event"), thousands(r.lost())),
        false => format!("{} read", plural(r.events(), "event")),
    };
    if r.coverage() == Coverage::Blocks && p.damage.is_empty() && !is_snapshot {
        let compared: u64 = r.devices().map(|d| d.compared).sum();
        events.push_str(&match compared {
            0 => "; sizes not compared with PyTorch's own counters".to_owned(),
            _ if r.accounting_drift().0 == 0 => "; sizes add up to PyTorch's own counters".to_owned(),
            _ => format!("; sizes differ from PyTorch's own counters by {}", size(r.accounting_drift().0)),
        });
    }
    parts.push(events);
    match p.ended {
        Ended::Signal(n) => parts.push(format!("ended by {}", signal(n))),
        Ended::Running => parts.push("still running".to_owned()),
        Ended::Stopped => parts.push("the program stopped the recording".to_owned()),
        Ended::Exit | Ended::Unknown => {}
    }
    parts.join(" · ")
}

/// Memory of other kinds than torch's blocks, largest libraries first.
fn beside(p: &Process<'_>) -> Option<String> {
    const LIBRARIES: usize = 5;
    const LEAST_PINNED: u64 = 1 << 20;
    let calls = p.replay.calls();
    let amount = |what: &str, a: Amount| {
        let most = if a.peak > a.now { format!(" ({} at most)", size(a.peak.0)) } else { String::new() };
        (a.peak.0 > 0).then(|| format!("{what} {}{most}", size(a.now.0)))
    };
    let mut libraries = calls.libraries.clone();
    libraries.sort_by_key(|(_, a)| std::cmp::Reverse(a.peak));
    let pinned = Some(calls.pinned).filter(|a| a.peak.0 >= LEAST_PINNED);
    let of_host =
        [pinned.and_then(|a| amount("pinned host memory", a)), amount("managed memory", calls.managed)];
    let of_libraries: Vec<String> =
        libraries.iter().take(LIBRARIES).filter_map(|(name, a)| amount(name, *a)).collect();
    let of_libraries =
        (!of_libraries.is_empty()).then(|| format!("taken directly from CUDA: {}", of_libraries.join(", ")));
    let parts: Vec<String> = of_host.into_iter().chain([of_libraries]).flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

fn steps(p: &Process<'_>) -> String {
    let n = p.replay.steps().into();
    let by = match p.replay.step_source() {
        StepSource::Optimizer => "each ends with optimizer.step()",
        StepSource::Backward => "each ends with backward()",
        StepSource::Manual => {
            let asked = Facts::of(p.replay).text("steps").unwrap_or_default();
            let by = match (asked.strip_prefix("every:"), asked.strip_prefix("nvtx:")) {
                (Some(seconds), _) => format!("one every {seconds} s"),
                (_, Some(range)) => format!("one for each NVTX range \"{range}\""),
                _ if asked == "snapshot" => match Facts::of(p.replay).number("first_step") {
                    Some(first) => format!(
                        "as marked in the snapshot; step 1 here is step {} of the job",
                        thousands(first)
                    ),
                    None => "as marked in the snapshot".to_owned(),
                },
                _ => "each ends with strandline.step()".to_owned(),
            };
            return format!("{} ({by})", plural(n, "step"));
        }
        StepSource::Time => {
            return format!("{} with GPU memory in use (no training steps were seen)", plural(n, "second"));
        }
        StepSource::Iteration => {
            let is_after = p.replay.iterations().is_some_and(|of| of.after.is_some());
            let steps = if is_after {
                "counted after the training, which took less time"
            } else {
                "no training steps were seen"
            };
            return format!("{} ({steps}{})", plural(n, "iteration"), begins(p));
        }
        StepSource::None => return "no step ended".to_owned(),
    };
    // What was asked for, and never came.
    let asked = Facts::of(p.replay).text("steps").unwrap_or_default();
    let instead = match asked.strip_prefix("nvtx:") {
        Some(range) => format!("; no NVTX range \"{range}\" ended"),
        None if asked == "manual" => {
            "; --steps manual, but the job never called strandline.step()".to_owned()
        }
        None => String::new(),
    };
    format!("{} ({by}{instead})", plural(n, "step"))
}

/// What an iteration begins with.
fn begins(p: &Process<'_>) -> String {
    let Some(Iterations { stack, .. }) = p.replay.iterations() else { return String::new() };
    let own = p.names.frames(stack).find(|f| !p.replay.is_installed(&f.file));
    own.or(p.names.frames(stack).next()).map_or_else(String::new, |f| {
        format!(
            "; each begins with an allocation at {}, and iteration 1 is everything before the first of them",
            line(p, f)
        )
    })
}

/// What the time that recording took is a part of.
fn time_of(p: &Process<'_>) -> &'static str {
    match p.replay.step_source() {
        StepSource::Time | StepSource::Iteration | StepSource::None => "the job's time",
        _ => "step time",
    }
}

fn cost(p: &Process<'_>) -> Option<String> {
    let c = &p.cost;
    let parts: Vec<String> = [
        c.step_time_fraction.map(|f| format!("{} of {}", percent(f), time_of(p))),
        c.host.map(|b| format!("{} host memory", size(b.0))),
        // Known without measuring: the shim never allocates on the device.
        (c.host.is_some() || c.step_time_fraction.is_some()).then(|| "0 bytes of GPU memory".to_owned()),
        c.disk.map(|b| format!("{} on disk", size(b.0))),
        c.probe.filter(|c| c.pauses > 0).map(|c| {
            let ms = |ns: u64| thousands(ns.div_ceil(1_000_000));
            let (paused, longest) = (ms(c.paused), ms(c.longest));
            format!("{paused} ms to find the objects that hold memory, in pauses of at most {longest} ms")
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// What was not seen. Blind is not clean, and says so.
fn doubts(p: &Process<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let reason = Facts::of(p.replay).coverage_reason(p.replay.coverage());
    let why = reason.map(|r| format!(": {r}")).unwrap_or_default();
    match p.replay.coverage() {
        Coverage::Blocks => out.extend(reason.map(str::to_owned)),
        Coverage::Segments => out.push(format!(
            "the blocks inside the allocator's segments{why}. Only the allocator's total is known, so leaks cannot be judged"
        )),
        // None of its events can be read, which is said.
        Coverage::None if !p.damage.is_empty() && p.replay.events() == 0 => {}
        Coverage::None => out.push(format!("everything: no use of GPU memory by this process was seen{why}")),
    }
    // What is missing in a damaged file is said there.
    if p.replay.lost() > 0 && p.damage.is_empty() {
        out.push(format!("{} lost while recording", plural(p.replay.lost(), "event")));
    }
    if let Some(n) = Facts::of(p.replay).number("stacks_undefined").filter(|&n| n > 0) {
        out.push(format!("the stacks of {}, because the table of stacks was full", plural(n, "allocation")));
    }
    for d in p.replay.devices() {
        if d.unverified_blocks > 0 {
            out.push(format!(
                "whether {} ({}) on GPU {} were freed, since events after their allocation are missing: they are not judged",
                plural(d.unverified_blocks, "block"),
                size(d.unverified.0),
                d.id.0
            ));
        }
        // As much of it as was still there at the moment that the table shows, where that is more than is left.
        let shown = p.anatomies.iter().filter(|m| m.device == d.id).map(|m| m.anatomy.before_recording.0);
        let early = shown.fold(d.before_recording.0, u64::max);
        if early > 0 {
            out.push(format!(
                "the lines that allocated {} on GPU {} {}",
                size(early),
                d.id.0,
                damage::early(p)
            ));
        }
    }
    let contradictions = p.replay.inconsistencies();
    if !p.damage.is_empty() && !contradictions.is_empty() {
        let times = plural(contradictions.iter().map(|i| i.count).sum(), "time");
        out.push(format!(
            "some events: those on both sides of what is missing contradict each other {times}"
        ));
        return out;
    }
    for i in contradictions {
        let times = if i.count == 1 { "once".to_owned() } else { plural(i.count, "time") };
        out.push(format!(
            "some events, because the recording contradicts itself {times}: {} ({})",
            i.what, i.first
        ));
    }
    out
}
