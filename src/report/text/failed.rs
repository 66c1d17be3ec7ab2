//! What failed: the first CUDA call that a broken context refused, and the last allocation that a device had no room for.

use super::super::model::{Facts, Process, tried};
use super::super::style::{Ink, Style};
use super::super::units::{plural, size, thousands};
use super::damage;
use super::headline::cuda_error;
use super::phrase::clause;
use super::place::{at_place, in_phase, line, place, stream, your_line};
use crate::detect::{Cause, Outcome, PostMortem, caught, post_mortem};
use crate::event::{Frame, is_generated};
use crate::replay::{Device, Holder, OomEvent, Scene, SiteKind};

/// Lines that are named as those that held memory at a failure.
const HOLDERS: usize = 3;

/// The call that first heard of a broken context.
pub(super) fn broken(p: &Process<'_>, style: Style) -> Vec<String> {
    let Some(f) = p.replay.failed() else { return Vec::new() };
    let site = p.replay.site(f.site).filter(|s| s.kind != SiteKind::Unknown);
    let place = site.map(|s| format!(" {}", at_place(p, s))).unwrap_or_default();
    let yours = site.and_then(|s| s.your_line.as_ref().filter(|y| **y != s.frame));
    let reached = yours.map(|y| format!(", reached from {}", your_line(p, y))).unwrap_or_default();
    let stream = f.stream.map(|s| format!(", stream {}", s.0)).unwrap_or_default();
    let text = format!(
        "{}{place}{reached}{stream}. This was the first call to fail; every later one failed too. The CUDA kernel that caused the error was launched earlier: run the job again with CUDA_LAUNCH_BLOCKING=1, and the call that launches this kernel will fail",
        clause(&cuda_error(p, f)),
    );
    style.wrap("  broken ", &text).into_iter().map(|l| style.paint(Ink::Bad, &l)).collect()
}

/// The last allocation that failed on a device: the question that an out-of-memory error leaves open.
pub(super) fn failed(p: &Process<'_>, d: &Device, style: Style) -> Vec<String> {
    let Some(o) = d.ooms.last() else { return Vec::new() };
    let scene = d.scene.as_ref().filter(|s| s.event == o.event);
    let went_on = caught(p.replay).is_some_and(|(device, _, _)| device == d.id);
    let went_on = if went_on { ". The job caught the error and went on" } else { "" };
    let m = post_mortem(p.replay, d.id);
    let is_cause = m.as_ref().is_some_and(|m| m.cause == Cause::Fragmentation);
    let is_verdict = p.verdict.outcome == Outcome::Oom && p.verdict.finding.is_none();
    let is_told = is_cause && is_verdict;
    let text = format!(
        "{} was requested in {} {}{}{}{}{}{}{went_on}",
        size(o.requested.0),
        p.replay.step_source().noun(),
        thousands(o.step.into()),
        phase(d, o),
        requested_by(p, o),
        segment(p, o),
        refused(o),
        scene.map(|s| pieces(p, o, s, is_told)).unwrap_or_default()
    );
    let mut out = style.wrap("  failed ", &text);
    let Some(m) = m else { return out };
    if let Some(c) = m.change {
        let noun = p.replay.step_source().noun();
        let before = match (size(c.start_before), size(c.peak_before)) {
            (start, peak) if start == peak => String::new(),
            (start, peak) => format!("; the previous {noun} began with {start} and peaked at {peak}"),
        };
        let text = format!(
            "it failed: this {noun} began with {} allocated and needed at least {}{before}",
            size(c.start),
            size(c.start.saturating_add(m.need))
        );
        out.extend(style.wrap("  before ", &text));
    }
    for (i, (_, text)) in in_use(p, o, scene, &m).iter().enumerate() {
        out.extend(style.wrap(if i == 0 { "  in use " } else { "         " }, text));
    }
    if is_verdict {
        out.extend(style.wrap("  try    ", m.remedy));
    }
    out
}

/// In which phase of the step, and of how many failures it is the last: ` (backward, the last of 3 failures)`.
fn phase(d: &Device, o: &OomEvent) -> String {
    let phase = in_phase(o.phase);
    let last = format!("the last of {}", plural(d.ooms.len() as u64, "failure"));
    match (d.ooms.len(), phase.strip_suffix(')')) {
        (1, _) => phase,
        (_, Some(phase)) => format!("{phase}, {last})"),
        (_, None) => format!(" ({last})"),
    }
}

/// The line that asked, or the library where no line did.
fn requested_by(p: &Process<'_>, o: &OomEvent) -> String {
    if let Some(s) = p.replay.site(o.site).filter(|s| o.call.is_some() && s.kind != SiteKind::Unknown) {
        return format!(" {}", at_place(p, s));
    }
    let outside_torch = |f: &&Frame| !f.file.contains("/site-packages/torch/") && !is_generated(&f.file);
    let asked = p.names.frames(o.stack).find(outside_torch).or_else(|| p.names.frames(o.stack).next());
    let line_of = |f: &Frame| {
        let is_installed = p.replay.is_installed(&f.file);
        format!(" at {}", if is_installed { line(p, f) } else { your_line(p, f) })
    };
    asked.map(line_of).unwrap_or_default()
}

/// A request takes a whole segment, and PyTorch's message has the size of that.
fn segment(p: &Process<'_>, o: &OomEvent) -> String {
    let tried = tried(p, o).filter(|t| size(t.0) != size(o.requested.0));
    let told =
        |t: u64| format!(" (PyTorch's message says {}, since it asks the driver for larger pieces)", size(t));
    tried.map(|t| told(t.0)).unwrap_or_default()
}

/// Who refused, and what there was.
fn refused(o: &OomEvent) -> String {
    let free = match o.free {
        Some(free) => format!("the card had {} free", size(free.0)),
        None => "free memory was not queried".to_owned(),
    };
    let allocated = size(o.allocated.0);
    match o.call {
        Some(_) => format!(", and CUDA refused; {free}, and the program had {allocated} allocated"),
        None => format!(
            "; {free}, and PyTorch had allocated {allocated} of the {} that it had reserved",
            size(o.reserved.0)
        ),
    }
}

/// What PyTorch's cache had that the request might have used, and why it could not.
fn pieces(p: &Process<'_>, o: &OomEvent, scene: &Scene, is_told: bool) -> String {
    if o.call.is_some() || scene.cached.0 == 0 || scene.largest >= o.requested {
        return String::new();
    }
    let largest = size(scene.largest.0);
    let usable = scene.cached.0.saturating_sub(scene.elsewhere.0);
    // Enough, had it been in one piece: a leak is then not all that is wrong. Where this is the verdict's cause, it is told there.
    if usable >= o.requested.0 && scene.largest.0 > 0 && !is_told {
        let is_joined =
            p.replay.meta()["alloc_conf"].as_str().is_some_and(|c| c.contains("expandable_segments:True"));
        let help = match is_joined {
            true => "",
            false => "; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets PyTorch join them",
        };
        return format!(
            "; {} was in PyTorch's cache, but in blocks of at most {largest}{help}",
            size(usable)
        );
    }
    match largest == size(o.requested.0) {
        true => format!(
            "; the largest free block in PyTorch's cache was {} too small",
            size(o.requested.0 - scene.largest.0)
        ),
        false => format!("; the largest free block in PyTorch's cache was {largest}"),
    }
}

/// Who had the memory when it failed, with its bytes, most first.
fn in_use(p: &Process<'_>, o: &OomEvent, scene: Option<&Scene>, m: &PostMortem) -> Vec<(u64, String)> {
    let holders = scene.map_or(&[][..], |s| &s.holders).iter().take(HOLDERS);
    let mut held: Vec<_> = holders.filter_map(|h| Some((h.bytes.0, holder(p, o, h)?))).collect();
    let early = scene.map_or(0, |s| s.before_recording.0);
    if early > 0 {
        let text = format!("{} allocated {}, by an unknown line", size(early), damage::early(p));
        held.push((early, text));
    }
    // What is not PyTorch's is told where it is more than any line has.
    let outside = m.outside.unwrap_or(0);
    if outside > held.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0) && o.call.is_none() {
        held.push((outside, format!("{} used outside of PyTorch, by {}", size(outside), m.outsiders())));
    }
    held.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    held
}

/// What a line has allocated on a stream, and since when.
fn holder(p: &Process<'_>, o: &OomEvent, h: &Holder) -> Option<String> {
    let site = p.replay.site(h.site)?;
    let grain = p.replay.step_source().noun();
    let own = h.of_this_step;
    // A snapshot may begin within the job: when what it has then was allocated is not known.
    let is_older = Facts::of(p.replay).number("first_step").is_some() && h.first_step == 1;
    let since = match is_older {
        true => format!("since {grain} 1 of the snapshot or earlier"),
        false => format!("since {grain} {}", thousands(h.first_step.into())),
    };
    let since = match h.first_step < o.step {
        false => format!("in this {grain}"),
        // What little is older is not what filled it.
        true if size(own.0) == size(h.bytes.0) => format!("in this {grain}"),
        true if own.0 > 0 => format!("{since} ({} of it in this {grain})", size(own.0)),
        true => since,
    };
    let side = p.replay.stream(h.stream).filter(|s| s.handle.0 != 0);
    let on = side.map(|_| format!(", {}", stream(p.replay, h.stream))).unwrap_or_default();
    let by = if site.kind == SiteKind::Line { "by " } else { "" };
    Some(format!("{} allocated {since} {by}{}{on}", size(h.bytes.0), place(p, site)))
}
