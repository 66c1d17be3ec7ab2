//! Prometheus' text format, read as strictly as its own parser does, and then some: a metric is described once, before its
//! figures, and no figure comes twice.

use std::collections::BTreeSet;

/// One figure.
#[derive(Debug)]
pub(crate) struct Figure {
    /// Its metric.
    pub(crate) name: String,
    /// What it is about.
    pub(crate) labels: Vec<(String, String)>,
    /// Its value.
    pub(crate) value: f64,
}

impl Figure {
    /// The value of a label; empty where there is none.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v.as_str())
    }
}

/// Reads a text; panics with the line that is wrong.
#[track_caller]
pub(crate) fn read(text: &str) -> Vec<Figure> {
    assert!(text.ends_with('\n') || text.is_empty(), "the last line is not ended");
    let mut figures: Vec<Figure> = Vec::new();
    let mut described = BTreeSet::new();
    let mut series = BTreeSet::new();
    let mut current: Option<(String, bool)> = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
            assert!(is_name(name) && !words.trim().is_empty(), "{line}");
            assert!(described.insert(name.to_string()), "described twice: {line}");
            let kind =
                lines.next().and_then(|l| l.strip_prefix(&format!("# TYPE {name} "))).unwrap_or_default();
            assert!(matches!(kind, "gauge" | "counter"), "no type after: {line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            current = Some((name.to_string(), kind == "counter"));
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("no labels: {line}"));
        let (expected, counts) = current.as_ref().unwrap_or_else(|| panic!("not described: {line}"));
        assert_eq!(name, expected, "out of its place: {line}");
        let (labels, rest) = labels(rest).unwrap_or_else(|| panic!("labels: {line}"));
        let value: f64 =
            rest.strip_prefix(' ').and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("value: {line}"));
        assert!(value.is_finite() && (!counts || value >= 0.0), "{line}");
        assert!(series.insert((name.to_string(), labels.clone())), "twice: {line}");
        figures.push(Figure { name: name.to_string(), labels, value });
    }
    figures
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `a="b",c="d"} rest`.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut found: Vec<(String, String)> = Vec::new();
    loop {
        let (name, rest) = text.split_once("=\"")?;
        if !is_name(name) || found.iter().any(|(n, _)| n == name) {
            return None;
        }
        let mut value = String::new();
        let mut letters = rest.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    _ => return None,
                }),
                (_, c) => value.push(c),
            }
        };
        found.push((name.to_string(), value));
        match rest[end + 1..].strip_prefix(',') {
            Some(more) => text = more,
            None => return Some((found, rest[end + 1..].strip_prefix('}')?)),
        }
    }
}
