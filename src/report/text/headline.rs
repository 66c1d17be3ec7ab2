//! The first line: what is the matter, in one sentence.

use super::super::model::{Facts, Process, Report};
use super::super::style::{Ink, Style};
use super::super::units::{count, plural, size, size_f};
use crate::detect::{Finding, GrainName, Outcome, PostMortem, StepsToOom, post_mortem};
use crate::replay::OomEvent;
use crate::replay::anatomy::At;

/// The first line, wrapped.
pub(super) fn lines(r: &Report<'_>, p: &Process<'_>, style: Style) -> Vec<String> {
    let phrase = word(p);
    let mut text = format!("{phrase}{}", sentence(p));
    if r.processes.len() > 1 {
        text.push(' ');
        text.push_str(&spread(r, p));
    }
    let mut lines = style.wrap("strandline: ", &text);
    if let Some(l) = lines.first_mut() {
        let ink = match p.verdict.outcome {
            _ if p.killed_by_host => Ink::Bad,
            Outcome::Leak | Outcome::Oom => Ink::Bad,
            Outcome::Warning | Outcome::Unknown => Ink::Doubt,
            Outcome::Clean => Ink::Good,
        };
        *l = l.replacen(phrase, &style.paint(ink, phrase), 1);
    }
    lines
}

/// The phrase of a process.
pub(super) fn word(p: &Process<'_>) -> &'static str {
    match p.verdict.outcome {
        _ if p.killed_by_host => "KILLED BY THE HOST",
        Outcome::Leak => "LEAK",
        Outcome::Warning => "LEAK, not certain yet",
        Outcome::Oom => "OUT OF MEMORY, NO LEAK",
        Outcome::Clean => "NO LEAK",
        Outcome::Unknown => "NOT JUDGED",
    }
}

/// `rank 1`, or the pid where there is no rank.
pub(super) fn short(p: &Process<'_>) -> String {
    let f = Facts::of(p.replay);
    match (f.number("rank"), f.number("pid")) {
        (Some(r), _) => format!("rank {r}"),
        (None, Some(pid)) => format!("pid {pid}"),
        (None, None) => "a process".to_owned(),
    }
}

/// `rank 1, pid 4712 on node7`.
pub(super) fn who(p: &Process<'_>) -> String {
    let f = Facts::of(p.replay);
    let mut text = short(p);
    if let (Some(_), Some(pid)) = (f.number("rank"), f.number("pid")) {
        text.push_str(&format!(", pid {pid}"));
    }
    if let Some(host) = f.text("host") {
        text.push_str(&format!(" on {host}"));
    }
    text
}

/// What follows the phrase, with its punctuation.
fn sentence(p: &Process<'_>) -> String {
    let reason = clause(&p.verdict.reason);
    if p.killed_by_host {
        let gpu = match p.verdict.outcome {
            Outcome::Leak | Outcome::Warning => format!(" On the GPU: {}.", growth(p).unwrap_or(reason)),
            Outcome::Oom => format!(" On the GPU: {reason}."),
            Outcome::Clean => " Nothing leaks on the GPU.".to_owned(),
            Outcome::Unknown => String::new(),
        };
        return format!(
            ". The machine ran out of memory (not the GPU), and its kernel ended {}.{gpu}",
            short(p)
        );
    }
    match p.verdict.outcome {
        Outcome::Leak => match filled(p) {
            Some(text) => format!(". {text}"),
            None => format!(". {}.", growth(p).unwrap_or(reason)),
        },
        Outcome::Warning => format!(". {}.", growth(p).unwrap_or(reason)),
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
    p.findings.iter().find(|f| f.is_active_leak())
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
        "It filled GPU {} at step {} ({}){}.",
        f.device.0,
        count(oom.step.into()),
        oom.phase.name(),
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

/// `The same on ranks 0 to 3.`, `Only on rank 2 of 4.`
fn spread(r: &Report<'_>, p: &Process<'_>) -> String {
    let phrase = word(p);
    let same: Vec<String> = r.processes.iter().filter(|q| word(q) == phrase).map(short).collect();
    let all = r.processes.len();
    match same.len() {
        n if n == all => format!("The same on all {all} processes."),
        1 => format!("That is {}, of {all} processes.", same[0]),
        n => format!("That is {n} of {all} processes."),
    }
}
