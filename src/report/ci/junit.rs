//! JUnit's XML: a suite for each process, in it a case for each finding that fails, or one that passes.

use super::remark::{Level, Remark, remarks, word};
use crate::detect::{Outcome, final_oom};
use crate::report::markup::escaped;
use crate::report::model::{Process, Report};
use crate::report::style::Style;
use crate::report::text;
use std::io::{self, Write};

/// Prints it. `root`: the folder that files are named from.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, r: &Report<'_>, root: &str) -> io::Result<()> {
    let all = remarks(r, root);
    let mut suites = Vec::new();
    for p in &r.processes {
        let of: Vec<&Remark<'_>> =
            all.iter().filter(|m| m.level != Level::Notice && std::ptr::eq(m.process, p)).collect();
        suites.push(suite(r, p, &of));
    }
    if suites.is_empty() {
        let case = Case { name: "GPU memory".into(), result: skipped(&word(r).1) };
        suites.push(Suite { name: "strandline".into(), seconds: 0.0, cases: vec![case] });
    }
    let of_kind = |kind: &str| suites.iter().map(|s| s.count(kind)).sum::<usize>();
    let tests: usize = suites.iter().map(|s| s.cases.len()).sum();
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(
        out,
        "<testsuites name=\"strandline\" tests=\"{tests}\" failures=\"{}\" errors=\"{}\">",
        of_kind("failure"),
        of_kind("error")
    )?;
    for s in &suites {
        writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
            escaped(&s.name),
            s.cases.len(),
            s.count("failure"),
            s.count("error"),
            s.count("skipped"),
            s.seconds
        )?;
        for case in &s.cases {
            let head =
                format!("    <testcase classname=\"{}\" name=\"{}\"", escaped(&s.name), escaped(&case.name));
            match &case.result {
                Some((kind, attributes, text)) => {
                    writeln!(out, "{head}><{kind}{attributes}>{}</{kind}></testcase>", escaped(text))?;
                }
                None => writeln!(out, "{head}/>")?,
            }
        }
        writeln!(out, "  </testsuite>")?;
    }
    let mut whole = Vec::new();
    text::write(&mut whole, r, Style::default())?;
    writeln!(out, "  <system-out>{}</system-out>", escaped(&String::from_utf8_lossy(&whole)))?;
    writeln!(out, "</testsuites>")
}

struct Suite {
    name: String,
    seconds: f64,
    cases: Vec<Case>,
}

impl Suite {
    fn count(&self, kind: &str) -> usize {
        self.cases.iter().filter(|c| c.result.as_ref().is_some_and(|(k, _, _)| *k == kind)).count()
    }
}

/// A case: what it is called, and what of it is not well: element, attributes, text.
struct Case {
    name: String,
    result: Option<(&'static str, String, String)>,
}

fn suite(r: &Report<'_>, p: &Process<'_>, remarks: &[&Remark<'_>]) -> Suite {
    let mut cases: Vec<Case> = remarks.iter().map(|m| failed(m)).collect();
    let reason = p.reason();
    let word = p.phrase_beside();
    let rest = match p.verdict.outcome {
        _ if p.killer.killed() || p.self_fault.is_some() => Some(("error", attributes(word, word), reason)),
        Outcome::Oom => {
            Some(("error", attributes("oom", &format!("{word}: {reason}")), text::failures(p).join("\n")))
        }
        Outcome::Unknown => skipped(&format!("{word}: {reason}")),
        Outcome::Leak | Outcome::Growing if final_oom(p.replay).is_some() => {
            Some(("error", attributes("oom", word), text::failures(p).join("\n")))
        }
        Outcome::Clean | Outcome::Leak | Outcome::Growing => None,
    };
    if cases.is_empty() || rest.is_some() {
        cases.push(Case { name: "GPU memory".into(), result: rest });
    }
    let name = match r.processes.len() {
        // The same in every run.
        1 => "strandline".to_owned(),
        _ => format!("strandline, {}", r.name(p)),
    };
    Suite { name, seconds: p.replay.time().0 as f64 / 1e9, cases }
}

fn failed(remark: &Remark<'_>) -> Case {
    let at = remark.spot.as_ref().map(|s| format!(" at {}:{}", s.file, s.line)).unwrap_or_default();
    let kind = if remark.level == Level::Error { "leak" } else { "growing" };
    Case {
        name: format!("{}{at}", remark.finding.headline()),
        result: Some(("failure", attributes(kind, &remark.told.head), remark.told.body.join("\n"))),
    }
}

fn skipped(message: &str) -> Option<(&'static str, String, String)> {
    Some(("skipped", format!(" message=\"{}\"", escaped(message)), String::new()))
}

fn attributes(kind: &str, message: &str) -> String {
    format!(" type=\"{}\" message=\"{}\"", escaped(kind), escaped(message))
}
