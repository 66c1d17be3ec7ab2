//! What was found: a block of lines for each leak, one for each note.

use super::super::held::{HeldBy, Holder, in_words};
use super::super::later::later;
use super::super::model::{Ended, Facts, Known, Process, because, fatal, remedy, used};
use super::super::style::{Ink, Style};
use super::super::units::{percent, plural, plural_f, size, size_f, thousands, whole_percents};
use super::phrase::{clause, current_rate, forecast};
use super::place::{MISSING, at_place, kept_at, kept_by, place, site, your_line};
use crate::detect::{Certainty, Finding, FindingSite, Severity};
use crate::event::Frame;
use crate::replay::{Cohort, SEVERAL, SiteKind};

/// Lines of all findings of a process: leaks numbered, then notes.
pub(super) fn lines(p: &Process<'_>, style: Style) -> Vec<String> {
    let all = each(p, style);
    let is_note = |i: &usize| p.findings.get(*i).is_some_and(|f| !f.grows() && f.suppressed_by.is_none());
    let (notes, mut told): (Vec<_>, Vec<_>) = all.into_iter().partition(|(i, _)| is_note(i));
    let more = notes.len().saturating_sub(NOTES);
    told.extend(notes.into_iter().take(NOTES));
    let mut out: Vec<String> = told.into_iter().flat_map(|(_, lines)| lines).collect();
    if more > 0 {
        out.extend(
            style.wrap("  note   ", &format!("{} more; --format json shows all", thousands(more as u64))),
        );
    }
    out
}

/// Whether the job could have been asked who holds what was found.
fn is_searchable(p: &Process<'_>, f: &Finding) -> bool {
    let has_ended = matches!(p.ended, Ended::Exit | Ended::Signal(_));
    Facts::of(p.replay).searches().is_some() && has_ended && f.kind.has_holder() && f.is_active_leak()
}

/// What the job says where it ended too early (`preload/src/probe/questions.rs`).
const CUT_SHORT: [&str; 2] = ["the job ended before the search did", "the job ended first"];
/// What is said then, and where no search began.
const NOT_SEARCHED: &str = "the job ended before strandline had looked for it";

/// Why it is not known who holds what was found; `None` where it is, and where nobody was to be asked.
pub(in crate::report) fn why_unknown<'h>(p: &Process<'_>, f: &Finding, held: &'h HeldBy) -> Option<&'h str> {
    match held {
        HeldBy::Skipped(why) if CUT_SHORT.contains(&why.as_str()) => Some(NOT_SEARCHED),
        HeldBy::NotFound(why) | HeldBy::Skipped(why) => Some(why),
        HeldBy::NotRun if is_searchable(p, f) => {
            Some(if p.damage.is_empty() { NOT_SEARCHED } else { MISSING })
        }
        HeldBy::NotRun | HeldBy::Found(_) => None,
    }
}

/// Each finding by its number in the process, with its lines: leaks, what is suppressed, notes.
pub(super) fn each(p: &Process<'_>, style: Style) -> Vec<(usize, Vec<String>)> {
    let all = || p.findings.iter().enumerate().map(|(i, f)| (i, f, p.known.get(i)));
    let mut out = Vec::new();
    for (n, (i, f, known)) in all().filter(|(_, f, _)| f.grows()).enumerate() {
        let mut lines = Vec::new();
        leak(&mut lines, p, f, known, n + 1, style);
        out.push((i, lines));
    }
    for (i, f, by) in all().filter_map(|(i, f, _)| Some((i, f, f.suppressed_by.as_ref()?))) {
        let site = site(p, f).map(|s| format!(" {}", at_place(p, &s))).unwrap_or_default();
        let (what, rate, now) = (f.headline(), rate(f), size(f.bytes_now));
        let text = format!("suppressed by {by}, so it is not counted: {what}{site}, {rate}, {now} now");
        out.push((i, style.wrap("  note   ", &text)));
    }
    for (i, f, known) in all().filter(|(_, f, _)| !f.grows() && f.suppressed_by.is_none()) {
        let mut lines = style.wrap("  note   ", &note(p, f, known));
        let stands = f.certainty == Certainty::Note && f.withdrawn_step.is_none();
        match known.and_then(|k| k.fix.as_ref()) {
            Some(fix) => {
                lines.extend(style.wrap("    fix    ", &fix.in_words()));
            }
            None if stands => {
                let tried = remedy(p, f, known).into_iter();
                lines.extend(tried.flat_map(|text| style.wrap("    try    ", &text)));
            }
            None => {}
        }
        out.push((i, lines));
    }
    out
}

/// Notes that are printed.
const NOTES: usize = 4;

/// Whether another process that was told has the same leak at the same line.
pub(super) fn is_told(told: &[&Process<'_>], p: &Process<'_>, f: &Finding) -> bool {
    let line = |p: &Process<'_>, f: &Finding| site(p, f).map(|s| (s.kind, s.frame.clone()));
    let here = line(p, f);
    told.iter()
        .any(|q| q.findings.iter().any(|g| g.is_active_leak() && g.kind == f.kind && line(q, g) == here))
}

/// How fast it grows: `8 MiB and 1 block a step`.
pub(in crate::report) fn rate(f: &Finding) -> String {
    let (bytes, per) = (size_f(f.bytes_per_step), f.grain.per());
    if f.is_rare() {
        return format!(
            "{} each time, {bytes} {per} on average",
            size_f(f.bytes_per_step * (1.0 / f.times_per_step()).round())
        );
    }
    if f.blocks_per_step < 1e-9 {
        return format!("{bytes} {per}");
    }
    format!("{bytes} and {} {per}", plural_f(f.blocks_per_step, "block"))
}

/// What it comes to, and what that leaves out.
fn now(f: &Finding) -> String {
    let now = format!("{} now", size(f.bytes_now));
    match f.not_counted {
        0 => now,
        1 => format!("{now}, not counting the last {}", f.grain.noun()),
        n => format!("{now}, not counting the last {}", plural(n.into(), f.grain.noun())),
    }
}

fn leak(out: &mut Vec<String>, p: &Process<'_>, f: &Finding, known: Option<&Known>, n: usize, style: Style) {
    let gpu = if used(p).count() > 1 { format!(" · GPU {}", f.device.0) } else { String::new() };
    let word = if f.certainty == Certainty::Leak { "LEAK" } else { "GROWING" };
    let head = format!("  {word} {n}  ");
    let text = format!("{} · {} · {}{gpu}", f.headline(), rate(f), now(f));
    let mut first = style.wrap(&head, &text);
    let ink = if f.severity == Severity::Alert { Ink::Bad } else { Ink::Doubt };
    if let Some(l) = first.first_mut() {
        *l = l.replacen(word, &style.paint(ink, word), 1);
    }
    out.append(&mut first);
    let mut say = |label: &str, text: &str| out.extend(style.wrap(&format!("    {label:11}"), text));
    if let Some(kept) = known.and_then(|k| k.kept_at.as_ref()) {
        say("kept at", &kept_at(p, kept));
    }
    if let Some(file) = known.and_then(|k| k.modified.as_ref()) {
        let file = your_line(p, &Frame { file: file.clone(), ..Frame::default() });
        say("kept at", &format!("unknown: {file} was modified after the run began, so it was not searched"));
    }
    for (kept, share) in known.into_iter().flat_map(|k| &k.kept_too) {
        say("", &format!("and {} of it at {}", percent(*share), kept_at(p, kept)));
    }
    allocated(p, f, &mut say);
    match known.map(|k| &k.held_by) {
        Some(HeldBy::Found(holders)) => held_by(holders, &mut say),
        // The statement was found without a holder, and says what keeps it.
        Some(_) if known.is_some_and(|k| k.kept_at.is_some()) => {}
        held => match held.and_then(|held| why_unknown(p, f, held)) {
            Some("") => say("held by", "unknown"),
            Some(why) => say("held by", &format!("unknown: {why}")),
            None => {}
        },
    }
    let because = because(p, f, known);
    if !because.is_empty() {
        say("because", because);
    }
    if let Some(recent) = current_rate(f) {
        say(
            "current",
            &format!(
                "{recent} {}; {} is the average since the growth began",
                f.grain.per(),
                size_f(f.bytes_per_step)
            ),
        );
    }
    if let Some((label, when)) = forecast(p, f).filter(|_| fatal(p, f).is_none()) {
        say(label, &when);
    }
    let later = later(p, f);
    if let Some((later, by)) = later.zip(p.by_end()) {
        say("later", &format!("{by}, {}", later.words()));
    }
    // What has ended by itself needs no advice.
    if later.is_some_and(|l| l.has_ended()) {
        return;
    }
    match known.and_then(|k| k.fix.as_ref()) {
        Some(fix) => say("fix", &fix.in_words()),
        None => remedy(p, f, known).into_iter().for_each(|text| say("try", &text)),
    }
}

/// Whether the line allocates on one side stream after another.
fn is_on_several(p: &Process<'_>, f: &Finding) -> bool {
    let is_it = |c: &Cohort| c.key.stream == SEVERAL && f.sites.first().is_some_and(|s| s.site == c.key.site);
    f.grows() && p.replay.cohorts().iter().any(is_it)
}

/// Who holds it, a line for each.
pub(super) fn held_by(holders: &[Holder], say: &mut dyn FnMut(&str, &str)) {
    for (i, text) in in_words(holders).iter().enumerate() {
        say(if i == 0 { "held by" } else { "" }, text);
    }
}

/// The line that allocated, the line of the user's that led there, and further lines with their shares.
pub(super) fn allocated(p: &Process<'_>, f: &Finding, say: &mut dyn FnMut(&str, &str)) {
    // What was freed has the stream that it waits for, not the one it was allocated on.
    let stream = match f.stream.filter(|_| f.kind.is_leak()) {
        Some(s) if s.side => format!(", side stream {}", s.id.0),
        Some(s) if s.handle.0 != 0 => format!(", stream {}", s.id.0),
        None if is_on_several(p, f) => ", on several streams".to_owned(),
        _ => String::new(),
    };
    let Some(s) = site(p, f) else {
        return say("allocated", &format!("at an unknown line{stream}"));
    };
    // Lines that are named, and the part of all others together: the figures add up.
    let named: Vec<&FindingSite> = f
        .sites
        .iter()
        .enumerate()
        .take(4)
        .filter(|(i, o)| *i == 0 || o.share >= 0.01)
        .map(|(_, o)| o)
        .collect();
    let others = f.sites.len() - named.len();
    let rest = (1.0 - named.iter().map(|o| o.share).sum::<f64>()).max(0.0);
    let shares: Vec<f64> = named.iter().map(|o| o.share).chain((others > 0).then_some(rest)).collect();
    let shares = whole_percents(&shares);
    let first = match f.sites.first() {
        Some(top) if top.share < 0.995 => format!("{} % {}", shares[0], at_place(p, &s)),
        _ => place(p, &s),
    };
    say("allocated", &format!("{first}{stream}"));
    if let Some(yours) = s.your_line.as_ref().filter(|y| **y != s.frame) {
        let reached = p.names.frames(s.stack).any(|f| f == yours);
        let is_called = reached || s.backward_stack.0 == 0;
        let how = if is_called && s.kind == SiteKind::Line {
            "reached from"
        } else {
            "in the backward pass started at"
        };
        say("", &format!("{how} {}", your_line(p, yours)));
    }
    for (other, share) in named.iter().zip(&shares).skip(1) {
        if let Some(s) = p.replay.site(other.site) {
            say("", &format!("{share} % {}", at_place(p, s)));
        }
    }
    if others > 0 {
        let share = match shares[named.len()] {
            0 => "less than 1 %".to_owned(),
            share => format!("{share} %"),
        };
        say("", &format!("{share} at {}", plural(others as u64, "more line")));
    }
}

fn note(p: &Process<'_>, f: &Finding, known: Option<&Known>) -> String {
    // Where no line is known, that is no news in a note.
    let named = site(p, f).filter(|s| f.kind.is_leak() || s.kind != SiteKind::Unknown);
    // One line that several streams pass through is a finding on each: without the stream, notes would read the same.
    let side = f.stream.filter(|s| s.side && f.kind.is_leak());
    let stream = side.map(|s| format!(", side stream {}", s.id.0)).unwrap_or_default();
    // Of several lines, the one that has most.
    let most = f.sites.first().filter(|s| s.share < 0.995);
    let most = most.map(|s| format!(", {} of it", percent(s.share))).unwrap_or_default();
    let grain = f.grain.noun();
    if let Some(until) = f.withdrawn_step {
        let (since, until) = (thousands(f.first_step.into()), thousands(until.into()));
        let freed = f
            .in_use_for()
            .map(|life| format!("; all of it was freed, each block after at most {}", plural(life, grain)));
        let end = if most.is_empty() { "" } else { "," };
        let place = named.as_ref().map(|s| format!("{most} allocated {}{stream}{end}", at_place(p, s)));
        return format!(
            "memory{} grew from {grain} {since} and had stopped growing by {grain} {until}{}",
            place.unwrap_or_default(),
            freed.unwrap_or_default()
        );
    }
    let place = named.as_ref().map(|s| {
        let by = match s.kind {
            SiteKind::Line => "",
            _ if most.is_empty() => ", allocated",
            _ => " allocated",
        };
        format!("{most}{by} {}{stream}", at_place(p, s))
    });
    let place = place.unwrap_or_default();
    let explain = because(p, f, known);
    let explain = match f.bound.as_ref().filter(|_| f.certainty == Certainty::Bounded) {
        Some(b) => {
            let whole = b.bytes.map(|b| format!(", at about {}", size(b))).unwrap_or_default();
            let when = b.at_step.map(|n| format!(" in {grain} {}", thousands(n.into()))).unwrap_or_default();
            let more = b.bytes.map(|b| b.saturating_sub(f.bytes_now)).filter(|more| *more > 0);
            let after = more.map(|b| format!(" (about {} more than now)", size(b))).unwrap_or_default();
            match f.room_below_bound(p.replay) {
                Some(room) => format!(
                    "its limit, {}, would be reached{when}{whole}, but this GPU has {} and would be full before that: set a smaller limit. {}",
                    b.source,
                    size(room),
                    clause(explain)
                ),
                None => format!(
                    "not a leak: the growth stops when {} is full{when}{whole}{after}; {explain}",
                    b.source
                ),
            }
        }
        None if f.sparse.is_some() => {
            format!("{explain}; this has happened too rarely to be reported as growth")
        }
        None if f.is_small() => {
            format!("{explain}; {} is too little to be reported as growth", size(f.bytes_now))
        }
        None => explain.to_owned(),
    };
    // What the explanation says is not said twice.
    let now = size(f.bytes_now);
    let now = (!explain.contains(&now)).then(|| format!("{now} now"));
    let pace = (f.bytes_per_step > 0.0).then(|| rate(f));
    let sizes: Vec<String> = pace.into_iter().chain(now).collect();
    let (sizes, explain) = match sizes.is_empty() {
        true => (String::new(), explain),
        false => (format!("{}. ", sizes.join(", ")), clause(&explain)),
    };
    let yours = named.as_ref().filter(|s| f.kind.is_leak() && s.kind == SiteKind::Line);
    let yours = yours.and_then(|s| s.your_line.as_ref().filter(|y| **y != s.frame));
    let yours = yours.map(|y| format!(", reached from {}", your_line(p, y))).unwrap_or_default();
    let kept = known.and_then(|known| kept_by(p, known)).map(|by| format!(", {by}")).unwrap_or_default();
    let bounded = if f.certainty == Certainty::Bounded { "BOUNDED: " } else { "" };
    format!("{bounded}{}{place}{yours}{kept}: {sizes}{explain}", f.headline()).trim_end().to_owned()
}
