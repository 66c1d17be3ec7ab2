//! The report as a whole: its parts in their order, of one process or of several.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use super::super::model::{Ended, Facts, Process, Report, used};
use super::super::processes::Row;
use super::super::ranks::Ranks;
use super::super::style::{Ink, Style};
use super::super::table::{Align, Table};
use super::super::units::{plural, size, thousands};
use super::ended::{killed, signal};
use super::{damage, failed, filled, found, headline, run, series};
use crate::event::steps::StepSource;
use crate::replay::anatomy::At;

/// Prints the report.
pub fn write(out: &mut impl Write, r: &Report<'_>, style: Style) -> io::Result<()> {
    style.print(out, &lines(r, style))
}

fn lines(r: &Report<'_>, style: Style) -> Vec<String> {
    let mut out = Vec::new();
    out.extend(headline::lines(r, style));
    let Some(first) = r.lead() else {
        last(&mut out, r, style);
        return out;
    };
    out.extend(headline::growing(r).iter().flat_map(|text| style.wrap("  means  ", text)));
    processes(&mut out, r, style);
    for (i, sentence) in Ranks::of(r).iter().flat_map(|ranks| ranks.sentences(r)).enumerate() {
        out.extend(style.wrap(if i == 0 { "  ranks  " } else { "         " }, &style.shown(&sentence)));
    }
    let mut told: Vec<&Process<'_>> = Vec::new();
    for p in std::iter::once(first).chain(r.processes.iter().filter(|p| !std::ptr::eq(*p, first))) {
        let news = told.is_empty()
            || p.replay.failed().is_some()
            || p.findings.iter().any(|f| f.is_active_leak() && !found::is_told(&told, p, f));
        if !news {
            continue;
        }
        if r.processes.len() > 1 {
            let facts = Facts::of(p.replay);
            let host = facts.text("host").map(|host| format!(" on {host}"));
            out.push(format!("  {}{}", facts.who(), host.unwrap_or_default()));
        }
        process(&mut out, p, style);
        told.push(p);
    }
    let mut silent = r.processes.iter().filter(|p| !told.iter().any(|t| std::ptr::eq(*t, *p))).peekable();
    if silent.peek().is_some() {
        let has_found = |p: &Process<'_>| p.findings.iter().any(|f| f.is_active_leak());
        let (many, found) = silent.fold((0, false), |(n, found), p| (n + 1, found || has_found(p)));
        let what = if found { "nothing else" } else { "nothing" };
        let text = match many {
            1 => format!("{what} was found in the other process (--format json has its figures)"),
            n => format!(
                "{what} was found in the other {} (--format json has their figures)",
                plural(n, "process")
            ),
        };
        out.extend(style.wrap("  others ", &text));
    }
    last(&mut out, r, style);
    out
}

/// What failed on each device, and what held its memory then: the lines of the report, without their breaks.
pub fn failures(p: &Process<'_>) -> Vec<String> {
    let style = Style { width: usize::MAX, ..Style::default() };
    p.replay.devices().flat_map(|d| failed::failed(p, d, style)).map(|l| l.trim_end().to_owned()).collect()
}

fn process(out: &mut Vec<String>, p: &Process<'_>, style: Style) {
    out.extend(damage::lines(p, style));
    for m in &p.anatomies {
        out.extend(filled::lines(p, m, style));
    }
    for d in p.replay.devices() {
        let table = p.anatomies.iter().any(|m| m.device == d.id && m.at != At::Event);
        let k = &d.peak_allocated;
        // The event that tells of a step's end may be a peak itself.
        let is_seen = p.at_step.is_none_or(|n| k.step <= n);
        if !table && is_seen && k.bytes.0 > 0 {
            let text = format!(
                "{} allocated on GPU {} in {} {}, {} reserved",
                size(k.bytes.0),
                d.id.0,
                p.replay.step_source().noun(),
                thousands(k.step.into()),
                size(d.peak_reserved.bytes.0)
            );
            out.extend(style.wrap("  peak   ", &text));
        }
    }
    out.extend(failed::broken(p, style));
    for d in p.replay.devices() {
        out.extend(failed::failed(p, d, style));
    }
    out.extend(found::lines(p, style));
    for d in used(p) {
        // The step after the last one would have freed its gradients.
        let is_over = p.at_step.is_none() && p.ended != Ended::Running;
        let is_cut = is_over && p.replay.step_source() == StepSource::Optimizer;
        let after = is_over.then(|| series::after(p, d)).flatten();
        let several = used(p).count() > 1;
        out.extend(series::lines(d, p.replay.step_source().noun(), several, is_cut, after, style));
    }
    out.extend(run::lines(p, style));
}

/// Processes with a line of their own; of more than so many that the same is said of, the rest have one line together.
const ALONE: usize = 8;

/// One line per process, where there are several; of many the gravest first.
fn processes(out: &mut Vec<String>, r: &Report<'_>, style: Style) {
    let rows = r.rows();
    if rows.is_empty() {
        return;
    }
    let tells_end = rows.iter().any(|row| row.ended.is_some());
    let left = if tells_end { 3 } else { 2 };
    let mut t = Table::new([vec![Align::Left; left], vec![Align::Right; 3]].concat());
    let ended = tells_end.then_some("ended");
    t.row(["process", "verdict"].into_iter().chain(ended).chain(["peak", "left behind", "steps"]));
    let mut line = |name: String, all: &[&Row]| {
        let range = |of: fn(&Row) -> u64, words: fn(u64) -> String| {
            let numbers = || all.iter().map(|row| of(row));
            let (least, most) = (numbers().min().map(words), numbers().max().map(words));
            match (least, most) {
                (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
                (_, most) => most.unwrap_or_default(),
            }
        };
        let left = match all.iter().any(|row| row.left > 0) {
            true => range(|row| row.left, size),
            false => "-".to_owned(),
        };
        let phrase = all.first().map_or("", |row| row.phrase).to_owned();
        let numbers = [range(|row| row.peak, size), left, range(|row| row.steps.into(), thousands)];
        let ended = tells_end.then(|| endings(all));
        t.row([style.shown(&name).into_owned(), phrase].into_iter().chain(ended).chain(numbers));
    };
    if rows.len() <= ALONE {
        rows.iter().for_each(|row| line(row.name.clone(), &[row]));
    } else {
        let ordered: Vec<&Row> = r.job().order.iter().filter_map(|i| rows.get(*i)).collect();
        for alike in ordered.chunk_by(|a, b| a.phrase == b.phrase) {
            // Of those with nothing to tell none stands for the others.
            let dull = alike.iter().all(|row| matches!(row.ink, Ink::Good | Ink::Faint));
            let shown = match (alike.len() <= ALONE, dull) {
                (true, _) => alike.len(),
                (false, true) => 0,
                (false, false) => ALONE,
            };
            let (alone, together) = alike.split_at(shown);
            alone.iter().for_each(|row| line(row.name.clone(), &[row]));
            match (together.len(), alike.len() == ordered.len()) {
                (0, _) => {}
                (n, true) if dull => line(format!("all {}", thousands(n as u64)), together),
                (n, _) => line(format!("{} others", thousands(n as u64)), together),
            }
        }
    }
    out.extend(t.lines(2));
}

/// How processes ended: `exit 0`, or of how many what: `12 SIGTERM, 1 exit 1`.
fn endings(all: &[&Row]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    all.iter().filter_map(|row| row.ended.as_deref()).for_each(|how| *counts.entry(how).or_default() += 1);
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, n)| Reverse(*n));
    match counts.as_slice() {
        [(how, _)] => (*how).to_owned(),
        many => many.iter().map(|(how, n)| format!("{} {how}", thousands(*n))).collect::<Vec<_>>().join(", "),
    }
}

/// Commands longer than this leave no room for a column beside them.
const LONG: usize = 50;
/// What such a column needs, with all that is no command.
const BESIDE: usize = 36;

fn last(out: &mut Vec<String>, r: &Report<'_>, style: Style) {
    out.extend(killed(r).iter().flat_map(|text| style.wrap("  killed ", text)));
    let wide = r.next.iter().map(|(c, _)| c.chars().count()).max().unwrap_or(0);
    for (i, (command, why)) in r.next.iter().enumerate() {
        let head = if i == 0 { "  next   " } else { "         " };
        if wide > LONG || style.width < wide + BESIDE {
            // Never broken: it is there to be copied. A shell takes the rest for a comment.
            let line = format!("{head}{command}  # {why}");
            if line.chars().count() <= style.width {
                out.push(line);
            } else {
                out.extend([format!("{head}{command}"), format!("         # {why}")]);
            }
        } else {
            out.extend(style.wrap(&format!("{head}{command:wide$}  # "), why));
        }
    }
    if let Some(e) = r.exit {
        let signal = match r.lead().map(|p| p.ended) {
            Some(Ended::Signal(n)) if e.status == 128 + n => format!(": {} ended it", signal(n)),
            _ => String::new(),
        };
        // docs/verdicts.md, "Exit statuses".
        let whose = match e.status {
            _ if e.own => format!(", the job's own status{signal}"),
            81 => ": a leak was found (--fail-on-leak)".to_owned(),
            82 => ": strandline ended the job (--on-alert abort)".to_owned(),
            83 => {
                let gated = r.job().gated.and_then(|i| r.processes.get(i));
                format!(": {} (--fail-on-leak)", gated.map_or("NOT JUDGED", |p| p.phrase().0))
            }
            84 => ": memory grows (--fail-on-leak)".to_owned(),
            _ => String::new(),
        };
        out.extend(style.wrap("  exit   ", &format!("{}{whose}", e.status)));
    }
}
