//! Findings one by one, in the words of the report: for what shows each at its own place.

use super::super::model::Process;
use super::super::style::Style;
use super::found;

/// A finding, told.
pub(in crate::report) struct Told {
    /// Which of the process.
    pub(in crate::report) index: usize,
    /// What it is, in one line: `LEAK 1  more live blocks with every step · 64 MiB and 1 block a step · 1.2 GiB now`.
    pub(in crate::report) head: String,
    /// Where, held by whom, why and what helps, a line each. A note has none: its line says all.
    pub(in crate::report) body: Vec<String>,
}

impl Told {
    /// All of it, a line each.
    pub(in crate::report) fn text(&self) -> String {
        [std::slice::from_ref(&self.head), &self.body].concat().join("\n")
    }
}

/// Columns of a label, with the spaces around it.
const LABEL: usize = 15;

/// All findings of a process, in the order of the report. Lines are not broken.
pub(in crate::report) fn findings(p: &Process<'_>) -> Vec<Told> {
    let style = Style { width: usize::MAX, ..Style::default() };
    let told = |(index, lines): (usize, Vec<String>)| {
        let mut lines = lines.iter();
        let head = lines.next().map_or("", |l| l.trim());
        // What is no leak needs no label.
        let head = head.strip_prefix("note ").unwrap_or(head).trim_start().to_owned();
        let mut label = "";
        let mut body = Vec::new();
        for line in lines {
            let (own, text) = line.split_at_checked(LABEL).unwrap_or(("", line));
            // Each line has a label, also where the report leaves it out because the line before has the same.
            label = if own.trim().is_empty() { label } else { own };
            body.push(format!("{label}{text}").trim().to_owned());
        }
        Told { index, head, body }
    };
    found::each(p, style).into_iter().map(told).collect()
}
