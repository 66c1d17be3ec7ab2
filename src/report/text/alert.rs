//! What is said while a job runs: that a device fills up, when it will be full and because of which line; and that it has
//! stopped.

use super::super::held::{HeldBy, in_words};
use super::super::model::{Facts, Known, Process};
use super::super::processes::Namesakes;
use super::super::style::{Ink, Style};
use super::super::units::{duration, plural, rounded, seconds, size, size_f, thousands};
use super::place::{kept_at, kept_by_at, place, site, your_line};
use crate::detect::{Certainty, Finding, GrainName, SecondsToOom, may_be_loading};
use crate::event::Frame;

/// How many processes of a job a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Those that it was found in.
    pub found: usize,
    /// Those that run.
    pub all: usize,
    /// Which of these have the rank of the one that is told, too.
    pub namesakes: Namesakes,
}

/// The one line that a chat shows: `GPU 0 full at step 19 (18-20), in 2.5 min: leak at activation_offloading.py:430`; what is not told from
/// a buffer that fills is `growth`. Where the statement that keeps it is known, that is the place: ``leak kept by `hist.append(loss)` at leak.py:11``.
pub fn headline(p: &Process<'_>, f: &Finding, known: Option<&Known>, spread: Spread) -> String {
    let ranks = match spread {
        Spread { all: 0 | 1, .. } => String::new(),
        Spread { found, all, namesakes } => {
            let name = Facts::of(p.replay).name(namesakes);
            format!(" ({found} of {all} processes; worst {name})")
        }
    };
    let what = what(p, f);
    let kept = known.and_then(kept_by);
    let place = kept.unwrap_or_else(|| format!("at {}", file(p, f)));
    format!("GPU {} {}: {what} {place}{ranks}", f.device.0, full(p, f))
}

/// The block of lines that announces a finding of a process. The first begins with `strandline: ALERT` and is not wrapped, so that
/// a search of a log finds the place with it.
pub fn alert(
    p: &Process<'_>,
    f: &Finding,
    known: Option<&Known>,
    spread: Spread,
    style: Style,
) -> Vec<String> {
    let mut out =
        vec![format!("strandline: {} {}", style.paint(Ink::Bad, "ALERT"), headline(p, f, known, spread))];
    let mut say = |label: &str, text: &str| out.extend(style.wrap(&format!("  {label:7}"), text));
    if let Some(kept) = known.and_then(|k| k.kept_at.as_ref()) {
        say("kept", &kept_at(p, kept));
    }
    say("as of", &as_of(p, f));
    if let Some(s) = site(p, f) {
        let stream =
            f.stream.filter(|s| s.side && f.kind.is_leak()).map(|s| format!(", on side stream {}", s.id.0));
        say("where", &format!("{}{}", place(p, &s), stream.unwrap_or_default()));
        if let Some(yours) = s.your_line.as_ref().filter(|y| **y != s.frame) {
            say("", &format!("reached from {}", your_line(p, yours)));
        }
    }
    if let Some(HeldBy::Found(holders)) = known.map(|k| &k.held_by) {
        in_words(holders).iter().for_each(|text| say("held", text));
    }
    if let Some(fix) = known.and_then(|k| k.fix.as_ref()) {
        say("fix", &fix.in_words());
    }
    out
}

/// The lines that say who holds what was announced before that was known. The first begins with `strandline: HOLDER` and is not wrapped.
pub fn held(p: &Process<'_>, f: &Finding, known: &Known, style: Style) -> Vec<String> {
    let by = kept_by(known).map(|by| format!(" is {by}")).unwrap_or_default();
    let (gpu, place) = (f.device.0, file(p, f));
    let mut out =
        vec![format!("strandline: HOLDER FOUND: the memory that {place} allocated on GPU {gpu}{by}")];
    if let HeldBy::Found(holders) = &known.held_by {
        in_words(holders).iter().for_each(|text| out.extend(style.wrap("  held   ", text)));
    }
    out
}

/// The line that takes an announcement back.
pub fn withdrawn(p: &Process<'_>, f: &Finding) -> String {
    let at = f.withdrawn_step.map(|n| format!(" at {} {}", f.grain.noun(), thousands(n.into())));
    let stay = match f.bytes_now {
        0 => "all of it has been freed".to_owned(),
        bytes => format!("{} of it is still allocated", size(bytes)),
    };
    let (gpu, file, at) = (f.device.0, file(p, f), at.unwrap_or_default());
    if let Some(life) = f.in_use_for() {
        let life = plural(life, f.grain.noun());
        return format!(
            "WITHDRAWN, the alert on GPU {gpu}: the memory that {file} allocated was freed after all{at}; it lived for up to {life}"
        );
    }
    format!("WITHDRAWN, the alert on GPU {gpu}: the memory that {file} allocated stopped growing{at}; {stay}")
}

/// Steps from now on within which a forecast is told to the step.
const EXACT: u64 = 1000;

/// `full at step 19 (18-20), in 2.5 min`; `not full before step 60 (in 8 min), because the growth slows down`.
fn full(p: &Process<'_>, f: &Finding) -> String {
    let fills = || format!("fills up, {} more {}", size_f(f.current_bytes_per_step), f.grain.per());
    let Some(when) = f.steps_to_oom.filter(|w| w.mid != u64::MAX) else { return fills() };
    // Alone it would take longer than the device lasts.
    if p.findings.iter().any(|other| is_sooner(other, f)) {
        return format!("{}; another leak will fill the GPU sooner", fills());
    }
    let done = u64::from(marks(p, f));
    // Near ones are told to the step.
    let number =
        |n: u64| thousands(if n < EXACT { done.saturating_add(n) } else { rounded(done.saturating_add(n)) });
    let at = |n: u64| format!("{} {}", f.grain.noun(), number(n));
    let time = |of: fn(SecondsToOom) -> u64| {
        let left = f.seconds_to_oom.map(of).filter(|s| *s != u64::MAX);
        left.map(|s| format!(", in {}", seconds(s))).unwrap_or_default()
    };
    let mid = format!("full at {}", at(when.mid));
    match (when.low, when.high) {
        (low, high) if low == high => format!("{mid}{}", time(|s| s.mid)),
        (low, u64::MAX) => {
            let time = time(|s| s.low);
            let time = time.strip_prefix(", ").map(|time| format!(" ({time})")).unwrap_or_default();
            format!("not full before {}{time}, because the growth slows down", at(low))
        }
        (low, high) => {
            format!("{mid} ({}-{}){}", number(low), number(high), time(|s| s.mid))
        }
    }
}

/// What is not told from a buffer that fills is no leak, and what may be a model that is loaded may end with it.
fn what(p: &Process<'_>, f: &Finding) -> &'static str {
    match f.certainty {
        Certainty::Leak => "leak",
        _ if may_be_loading(p.replay, f.device) => "growth before the first step",
        _ => "growth",
    }
}

/// Whether another leak fills the same device before this one would.
fn is_sooner(other: &Finding, f: &Finding) -> bool {
    let mid = |f: &Finding| f.steps_to_oom.map_or(u64::MAX, |w| w.mid);
    other.is_active_leak() && (other.device, other.grain) == (f.device, f.grain) && mid(other) < mid(f)
}

/// Marks of the finding's grain that have passed.
fn marks(p: &Process<'_>, f: &Finding) -> u32 {
    if f.grain == GrainName::Microbatch { p.replay.microbatches() } else { p.replay.steps() }
}

/// `step 6 (at 48 s) · peak 19.2 GiB of the 22.9 GiB it can use · grows by 300 MiB a step since step 1`. Who reads it may read it later.
fn as_of(p: &Process<'_>, f: &Finding) -> String {
    let mut parts = vec![format!("{} {}", f.grain.noun(), thousands(marks(p, f).into()))];
    if f.grain != GrainName::Tick {
        parts[0].push_str(&format!(" (at {})", duration(p.replay.time().0)));
    }
    if let Some(d) = p.replay.device(f.device) {
        let usable = p.replay.usable(d.id);
        let word = if usable.is_some() && usable == p.replay.limit(d.id) { "may" } else { "can" };
        let usable = usable.map(|u| format!(" of the {} it {word} use", size(u.0))).unwrap_or_default();
        parts.push(format!("peak {}{usable}", size(d.peak_allocated.bytes.0)));
    }
    let since = format!("{} {}", f.grain.noun(), thousands(f.first_step.into()));
    parts.push(format!("grows by {} {} since {since}", size_f(f.current_bytes_per_step), f.grain.per()));
    if f.certainty != Certainty::Leak && may_be_loading(p.replay, f.device) {
        parts.push("loading a model looks the same".to_owned());
    }
    parts.join(" · ")
}

/// ``kept by `hist.append(loss)` at leak.py:11``; `None` where no statement is known.
fn kept_by(known: &Known) -> Option<String> {
    kept_by_at(known, |kept| file_of(&kept.frame()))
}

fn file(p: &Process<'_>, f: &Finding) -> String {
    let frame = site(p, f).map(|s| s.frame).filter(|frame| !frame.file.is_empty());
    frame.map_or_else(|| "an unknown line".to_owned(), |frame| file_of(&frame))
}

/// `activation_offloading.py:430`.
fn file_of(frame: &Frame) -> String {
    let name = frame.file.rsplit('/').next().unwrap_or(&frame.file);
    if frame.line == 0 { name.to_owned() } else { format!("{name}:{}", frame.line) }
}
