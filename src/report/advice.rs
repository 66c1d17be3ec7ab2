//! What would lower a peak, in words and as JSON.

use super::model::Process;
use super::style::Style;
use super::text::{in_step, place};
use super::units::{plural, size, thousands};
use crate::advise::Advice;
use crate::detect::{Outcome, final_oom};
use crate::event::{DeviceId, total};
use crate::replay::{Peak, PhaseKind};
use serde_json::{Value, json};

/// What would lower the peak of a device.
#[derive(Clone, Debug)]
pub struct Advised {
    /// Which device.
    pub device: DeviceId,
    /// Its peak.
    pub peak: Peak,
    /// Changes that would lower it, the most first; each alone.
    pub all: Vec<Advice>,
    /// Events are missing from the recording.
    pub partial: bool,
}

impl Advised {
    /// Lines for people.
    pub fn text(&self, p: &Process<'_>, style: Style) -> String {
        let during = match self.peak.phase {
            PhaseKind::Unknown => "",
            PhaseKind::Forward => ", in the forward pass",
            PhaseKind::Backward => ", in the backward pass",
            PhaseKind::Optimizer => ", in the optimizer",
            PhaseKind::Evaluation => ", under no_grad",
        };
        let when = match in_step(p, self.peak.step) {
            none if none.starts_with('(') => format!("; {}", none.trim_matches(['(', ')'])),
            step => format!(", {step}"),
        };
        let peak = format!("the peak of GPU {} ({}{during}{when})", self.device.0, size(self.peak.bytes.0));
        if self.all.is_empty() {
            let apart = if self.grown(p) > 0 { "apart from stopping the growth, " } else { "" };
            let what = format!(
                "NO ADVICE: {apart}strandline knows no change that would lower {peak} by 2 % or more."
            );
            let failed = p.verdict.outcome == Outcome::Oom && self.grown(p) == 0;
            let see = "`strandline report` says why the allocation failed, and what to try";
            let see = if failed { style.wrap("  next   ", see) } else { Vec::new() };
            let first = style.wrap("strandline: ", &what);
            let lines = [first, self.failed(p, style), self.grows(p, style), see, self.missing(style)];
            return lines.concat().join("\n") + "\n";
        }
        let things = plural(self.all.len() as u64, "change");
        let each = if self.all.len() > 1 { "each of " } else { "" };
        let mut lines = style.wrap("strandline: ", &format!("ADVICE: {each}{things} would lower {peak}."));
        lines.extend(self.failed(p, style));
        lines.extend(self.grows(p, style));
        for (n, a) in self.all.iter().enumerate() {
            let saved = a.peak.0.saturating_sub(a.without.0);
            let blocks = plural(a.blocks as u64, "block");
            let what = format!("{} {}", size(a.bytes.0), a.info.seen.replace("{blocks}", &blocks));
            lines.extend(style.wrap(&format!("  {:<7}", n + 1), &what));
            let place = p.replay.site(a.site).map(|s| place(p, s)).unwrap_or_default();
            lines.extend(style.wrap("    where  ", place.trim_start_matches("by ")));
            lines.extend(style.wrap("    change ", a.info.change));
            // What is left of the peak is less than what there is at another moment.
            let why = if saved < a.bytes.0 { ", because another moment is the peak then" } else { "" };
            let without =
                format!("{} instead of {}: {} less{why}", size(a.without.0), size(a.peak.0), size(saved));
            lines.extend(style.wrap("    peak   ", &without));
        }
        lines.extend(self.missing(style));
        lines.join("\n") + "\n"
    }

    /// Bytes that have grown, which may be most of the peak.
    fn grown(&self, p: &Process<'_>) -> u64 {
        let grown = p.findings.iter().filter(|f| f.device == self.device && f.grows());
        total(grown.map(|f| f.bytes_now))
    }

    /// What was requested when memory ran out is in no peak; whether one of the changes alone makes room for it.
    fn failed(&self, p: &Process<'_>, style: Style) -> Vec<String> {
        let Some((_, o)) = final_oom(p.replay).filter(|(device, _)| *device == self.device) else {
            return Vec::new();
        };
        let needed = o.allocated.0.saturating_add(o.requested.0);
        let saved = self.all.iter().map(|a| a.peak.0.saturating_sub(a.without.0)).max();
        let room = p.replay.usable(self.device).filter(|room| needed > room.0);
        let has = room.map(|room| format!(", and the job can use {}", size(room.0))).unwrap_or_default();
        let is_too_little =
            room.zip(saved).is_some_and(|(room, saved)| needed.saturating_sub(saved) > room.0);
        let what = format!(
            "memory ran out in {} {}, which needed {} in all{has}{}",
            p.replay.step_source().noun(),
            thousands(o.step.into()),
            size(needed),
            if is_too_little { ": none of these changes alone makes room for that" } else { "" }
        );
        style.wrap("  failed ", &what)
    }

    /// What grows is no matter of advice.
    fn grows(&self, p: &Process<'_>, style: Style) -> Vec<String> {
        let bytes = self.grown(p);
        let what = format!(
            "stop the growth: {} has accumulated; `strandline report` says which line allocates it",
            size(bytes)
        );
        if bytes > 0 { style.wrap("  first  ", &what) } else { Vec::new() }
    }

    /// What is said where the recording is not whole.
    fn missing(&self, style: Style) -> Vec<String> {
        if !self.partial {
            return Vec::new();
        }
        let what = "events are missing from this recording, so more memory could be saved than is shown here";
        style.wrap("  note     ", what)
    }

    /// For programs.
    pub fn json(&self, p: &Process<'_>) -> Value {
        let one = |a: &Advice| {
            let site = p.replay.site(a.site);
            let yours = site.and_then(|s| s.your_line.as_ref());
            let frame = site.map(|s| &s.frame).filter(|f| !f.file.is_empty());
            json!({
                "kind": a.info.name, "bytes": a.bytes.0, "blocks": a.blocks, "peak_bytes": a.peak.0,
                "peak_without_bytes": a.without.0, "saved_bytes": a.peak.0.saturating_sub(a.without.0),
                "file": frame.map(|f| &f.file), "line": frame.map(|f| f.line), "your_file": yours.map(|f| &f.file),
                "your_line": yours.map(|f| f.line), "change": a.info.change,
            })
        };
        json!({
            "device": self.device.0, "peak_allocated_bytes": self.peak.bytes.0, "peak_step": self.peak.step,
            "peak_phase": self.peak.phase.name(), "partial": self.partial, "advice": self.all.iter().map(one).collect::<Vec<_>>(),
        })
    }
}
