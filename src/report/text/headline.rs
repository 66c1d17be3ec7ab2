//! The first line: what is the matter, in one sentence.

use super::super::model::{Process, Report};
use super::super::style::Style;
use super::super::units::{count, plural, size, size_f};
use super::found::in_phase;
use crate::detect::{Finding, GrainName, Outcome, PostMortem, SelfFault, StepsToOom, post_mortem};
use crate::replay::OomEvent;
use crate::replay::anatomy::At;

/// The first line, wrapped.
pub(super) fn lines(r: &Report<'_>, p: &Process<'_>, style: Style) -> Vec<String> {
    let (phrase, ink) = p.phrase();
    let mut text = format!("{phrase}{}", sentence(r, p));
    if r.processes.len() > 1 {
        text.push(' ');
        text.push_str(&spread(r, p));
    }
    let mut lines = style.wrap("strandline: ", &text);
    if let Some(l) = lines.first_mut() {
        *l = l.replacen(phrase, &style.paint(ink, phrase), 1);
    }
    lines
}

/// What follows the phrase, with its punctuation.
fn sentence(r: &Report<'_>, p: &Process<'_>) -> String {
    let reason = clause(&p.verdict.reason);
    let gpu = || match p.verdict.outcome {
        Outcome::Leak | Outcome::Growing => format!(" On the GPU: {}.", growth(p).unwrap_or(reason.clone())),
        Outcome::Oom => format!(" On the GPU: {reason}."),
        Outcome::Clean => " Nothing leaks on the GPU.".to_owned(),
        Outcome::Unknown => String::new(),
    };
    if let Some(fault @ SelfFault { place, signal, .. }) = &p.self_fault {
        return format!(
            " in {place}: a thread of {} was in that code of strandline's when the process died of {signal}. {}.{}",
            r.name(p),
            clause(&fault.advice()),
            gpu()
        );
    }
    if p.killed_by_host {
        return format!(
            ". The machine ran out of memory (not the GPU), and its kernel ended {}.{}",
            r.name(p),
            gpu()
        );
    }
    match p.verdict.outcome {
        Outcome::Leak => match filled(p) {
            Some(text) => format!(". {text}"),
            None => format!(". {}.", growth(p).unwrap_or(reason)),
        },
        Outcome::Growing => format!(". {}.", growth(p).unwrap_or(reason)),
        Outcome::Oom => match why(p) {
            Some(m) => format!(" ({}). {}.", m.short, clause(&m.explain)),
            None if reason.is_empty() => ".".to_owned(),
            None => format!(". {reason}."),
        },
        Outcome::Clean if reason.is_empty() => ".".to_owned(),
        Outcome::Clean => format!(". {reason}."),
        Outcome::Unknown if reason.is_empty() => ".".to_owned(),
        Outcome::Unknown => format!(" ({}).", p.verdict.reason.trim_end_matches('.')),
    }
}

/// Why memory ran out, on the device where it did last.
fn why(p: &Process<'_>) -> Option<PostMortem> {
    let device =
        p.replay.devices().filter(|d| !d.ooms.is_empty()).max_by_key(|d| d.ooms.last().map(|o| o.time))?;
    post_mortem(p.replay, device.id)
}

/// A reason as a sentence: a capital, no full stop.
pub(super) fn clause(reason: &str) -> String {
    let mut c = reason.trim().trim_end_matches('.').chars();
    c.next().map_or_else(String::new, |first| first.to_uppercase().chain(c).collect())
}

fn leak<'p>(p: &'p Process<'_>) -> Option<&'p Finding> {
    let is_suppressed = |i: usize| p.known.get(i).is_some_and(|k| k.suppressed_by.is_some());
    p.findings.iter().enumerate().find(|(i, f)| f.is_active_leak() && !is_suppressed(*i)).map(|(_, f)| f)
}

/// The failed allocation that a leak ended in.
pub(super) fn fatal<'p>(p: &'p Process<'_>, f: &Finding) -> Option<&'p OomEvent> {
    p.replay.device(f.device)?.ooms.iter().find(|o| f.grain != GrainName::Step || o.step >= f.first_step)
}

/// Where the leak has filled the device.
fn filled(p: &Process<'_>) -> Option<String> {
    let f = leak(p)?;
    let oom = fatal(p, f)?;
    let without = p.anatomies.iter().find(|m| m.device == f.device && m.at == At::Oom).map(|m| {
        let a = &m.anatomy;
        format!("; without it the job peaks at {}", size(a.allocated.0.saturating_sub(a.left_behind.0)))
    });
    Some(format!(
        "It filled GPU {} at {} {}{}{}.",
        f.device.0,
        p.replay.step_source().noun(),
        count(oom.step.into()),
        in_phase(oom.phase),
        without.unwrap_or_default()
    ))
}

/// The current rate, where it is another one than that of the whole run.
pub(super) fn lately(f: &Finding) -> Option<String> {
    let recent = f.current_bytes_per_step;
    ((recent - f.bytes_per_step).abs() > 0.2 * f.bytes_per_step.abs()).then(|| size_f(recent))
}

/// How fast it grows, and what comes of it.
fn growth(p: &Process<'_>) -> Option<String> {
    let f = leak(p)?;
    let grain = f.grain.noun();
    let mut text = format!(
        "{} more every {grain} since {grain} {} on GPU {}",
        size_f(f.bytes_per_step),
        count(f.first_step.into()),
        f.device.0
    );
    if let Some(lately) = lately(f) {
        text.push_str(&format!(", lately {lately}"));
    }
    if let Some(when) = f.steps_to_oom {
        text.push_str(&format!(", which is full in {}", forecast(when, grain)));
    }
    Some(text)
}

/// `about 62 steps (54 to 89)`.
pub(super) fn forecast(when: StepsToOom, grain: &str) -> String {
    let about = if when.mid == u64::MAX {
        "a time that cannot be told".to_owned()
    } else {
        format!("about {}", plural(when.mid.min(i64::MAX as u64) as i64, grain))
    };
    match (when.low, when.high) {
        (l, h) if l == h => about,
        (l, u64::MAX) => format!("{about} ({} at the earliest; it may level off before)", count(l)),
        (l, h) => format!("{about} ({} to {})", count(l), count(h)),
    }
}

/// `The same on all 4 processes.`, `That is rank 2, of 4 processes.`
fn spread(r: &Report<'_>, p: &Process<'_>) -> String {
    let phrase = p.phrase_beside();
    let all = r.processes.len();
    match r.processes.iter().filter(|q| q.phrase_beside() == phrase).count() {
        n if n == all => format!("The same on all {all} processes."),
        1 => format!("That is {}, of {all} processes.", r.name(p)),
        n => format!("That is {n} of {all} processes."),
    }
}
