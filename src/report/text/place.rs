//! Where something is, in words: the line of a finding, a path that is short, the statement that keeps blocks.

use super::super::files::short_path;
use super::super::held::{HeldBy, KeptAt};
use super::super::model::{Ended, Facts, Known, Process};
use super::super::units::thousands;
use crate::detect::{Finding, final_oom};
use crate::event::{Frame, StreamId};
use crate::replay::{PhaseKind, Replay, SEVERAL, Site, SiteKind};

/// What stands for the frames of a stack that has none.
pub(in crate::report) const NO_FRAME: &str = "no Python frame is known";

/// Why something is not known that a whole recording may tell.
pub(super) const MISSING: &str = "part of the recording is missing";

/// The line with the largest share of a finding.
pub(in crate::report) fn site(p: &Process<'_>, f: &Finding) -> Option<Site> {
    f.sites.first()?.site(p.replay)
}

/// `in step 3`; `after step 60, the last one` where a job went on when its last step had ended; `in step 61, where memory ran out` where it ran out of
/// memory; `(no step ended)`.
pub(in crate::report) fn in_step(p: &Process<'_>, step: u32) -> String {
    let (noun, steps) = (p.replay.step_source().noun(), p.replay.steps());
    match steps > 0 && step > steps && p.replay.ended().is_some() {
        true if final_oom(p.replay).is_some() => {
            format!("in {noun} {}, where memory ran out", thousands(step.into()))
        }
        true => format!("after {noun} {}, the last one", thousands(steps.into())),
        false if steps == 0 && p.ended != Ended::Running => format!("(no {noun} ended)"),
        false => format!("in {noun} {}", thousands(step.into())),
    }
}

/// A site in words, within a sentence.
pub(super) fn at_place(p: &Process<'_>, s: &Site) -> String {
    let at = if s.kind == SiteKind::Line { "at " } else { "" };
    format!("{at}{}", place(p, s))
}

/// A site in words.
pub(in crate::report) fn place(p: &Process<'_>, s: &Site) -> String {
    match s.kind {
        SiteKind::Line if s.your_line.as_ref() == Some(&s.frame) => your_line(p, &s.frame),
        SiteKind::Line => line(p, &s.frame),
        SiteKind::Backward => {
            let by = s.node.as_ref().map(|n| format!("by {n} ")).unwrap_or_default();
            let is_yours = s.your_line.as_ref() == Some(&s.frame);
            let line = if is_yours { your_line(p, &s.frame) } else { line(p, &s.frame) };
            format!("{by}in the backward pass started at {line}")
        }
        SiteKind::Native => match p.native.get(&s.stack).and_then(|n| n.frames.get(n.reached)) {
            Some(f) if f.line > 0 => format!("by {} ({})", f.function, line(p, f)),
            Some(f) => by(f),
            None => by(&s.frame),
        },
        SiteKind::Unknown if has_no_stacks(p) && Facts::of(p.replay).is_none("python") => {
            "at an unknown line (there is no Python in this process, and native stacks were not recorded)"
                .to_owned()
        }
        SiteKind::Unknown if has_no_stacks(p) => {
            "at an unknown line (--stacks none: no stacks were recorded)".to_owned()
        }
        SiteKind::Unknown if !p.damage.is_empty() => format!("at an unknown line ({MISSING})"),
        SiteKind::Unknown => "by native code (no Python line is known)".to_owned(),
    }
}

/// A native function in words; where it has no name, the library that its offset is in.
fn by(f: &Frame) -> String {
    let library = f.file.rsplit('/').next().unwrap_or_default();
    match f.function.starts_with('+') {
        true => format!("by native code at {library}{}", f.function),
        false => format!("by {}", f.function),
    }
}

fn has_no_stacks(p: &Process<'_>) -> bool {
    Facts::of(p.replay).text("stacks") == Some("none")
}

/// `trl/models/activation_offloading.py:430 in unpack_tensor_with_streams`; of a method, with its class.
pub(in crate::report) fn line(p: &Process<'_>, f: &Frame) -> String {
    let name = f.function.rsplit("<locals>.").next().filter(|n| is_name(n));
    format!("{}{}", at_line(p, f), name.map(|n| format!(" in {n}")).unwrap_or_default())
}

/// The same as a label of a frame, with as little as tells it: `model.py:40 forward`.
pub(in crate::report) fn label(p: &Process<'_>, f: &Frame) -> String {
    let name = f.function.rsplit('.').next().filter(|n| is_name(n));
    format!("{}{}", at_line(p, f), name.map(|n| format!(" {n}")).unwrap_or_default())
}

fn is_name(function: &str) -> bool {
    !function.is_empty() && function != "<module>"
}

fn at_line(p: &Process<'_>, f: &Frame) -> String {
    let file = short_path(&f.file, &Facts::of(p.replay).folders());
    let at = if f.line == 0 { String::new() } else { format!(":{}", f.line) };
    format!("{file}{at}")
}

/// The same of a line of the user's own; a name that `--share` has folded says that already.
pub(in crate::report) fn your_line(p: &Process<'_>, f: &Frame) -> String {
    let line = line(p, f);
    if line.starts_with("your/") { line } else { format!("your {line}") }
}

/// `your leak.py:11: hist.append(loss)`.
pub(super) fn kept_at(p: &Process<'_>, kept: &KeptAt) -> String {
    format!("{}: {}", your_line(p, &kept.frame()), kept.source)
}

/// Less of the blocks than this is a part of them.
const MOST: f64 = 0.5;

/// The same within a sentence: ``kept by `hist.append(loss)` at leak.py:11``; `None` where no statement is known.
pub(super) fn kept_by(p: &Process<'_>, known: &Known) -> Option<String> {
    kept_by_at(known, |kept| line(p, &kept.frame()))
}

/// The same with other words for the place.
pub(super) fn kept_by_at(known: &Known, place: impl FnOnce(&KeptAt) -> String) -> Option<String> {
    let kept = known.kept_at.as_ref()?;
    let is_part = match &known.held_by {
        HeldBy::Found(holders) => holders.first().is_some_and(|h| h.share_to_tell() < MOST),
        _ => false,
    };
    let part = if is_part { "partly " } else { "" };
    Some(format!("{part}kept by `{}` at {}", kept.source, place(kept)))
}

/// A stream in words: `side stream 3`.
pub fn stream(replay: &Replay, id: StreamId) -> String {
    match replay.stream(id).map_or(0, |s| s.handle.0) {
        _ if id == SEVERAL => "several streams".to_owned(),
        0 => "default stream".to_owned(),
        _ if replay.is_side(id) => format!("side stream {}", id.0),
        _ => format!("stream {}", id.0),
    }
}

/// ` (forward)`; nothing where no phase is known.
pub(super) fn in_phase(phase: PhaseKind) -> String {
    match phase {
        PhaseKind::Unknown => String::new(),
        // A forward in a function of autograd's looks the same.
        PhaseKind::Evaluation => " (under no_grad)".to_owned(),
        phase => format!(" ({})", phase.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_told_with_its_library() {
        let by =
            |function: &str| by(&Frame { file: "/lib/libx.so.6".into(), line: 0, function: function.into() });
        assert_eq!(by("+0x10"), "by native code at libx.so.6+0x10");
        assert_eq!((&*by("f()"), &*by("operator+")), ("by f()", "by operator+"));
    }
}
