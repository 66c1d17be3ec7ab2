//! A comparison as one page of HTML that needs no network and runs no script.

use super::modes::Modes;
use super::runs::Effect;
use super::{Diff, ROWS};
use crate::event::printable;
use crate::report::html::policy_of_style;
use crate::report::markup::escaped;
use crate::report::thousands;
use std::io::{self, Write};

const STYLE: &str = include_str!("page.css");

/// A column, and what stands in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Words,
    Number,
    /// A part of the largest, from 0 to 100.
    Bar,
}

/// What a row says: its colour.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tone {
    Plain,
    Good,
    Bad,
}

/// A table: its columns with their heads, and its rows.
struct Table {
    label: &'static str,
    columns: Vec<(Column, &'static str)>,
    rows: Vec<(Tone, Vec<String>)>,
}

/// How long a bar is beside the longest one, from 0 to 100.
fn part(of: u64, most: u64) -> String {
    (u128::from(of) * 100 / u128::from(most.max(1))).to_string()
}

impl Modes {
    /// As a page.
    ///
    /// # Errors
    /// What the sink says.
    pub fn html(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = [
            (Column::Words, "variant"),
            (Column::Number, "runs"),
            (Column::Number, "steps"),
            (Column::Number, "peak"),
            (Column::Bar, ""),
            (Column::Number, "grows"),
            (Column::Words, "effect"),
        ];
        let largest = self.rows().map(|(v, _)| v.peak()).max().unwrap_or(0);
        let rows = self.cells().into_iter().skip(1).zip(self.rows()).map(|(cells, (v, effect))| {
            let mut row = cells.to_vec();
            row.insert(4, part(v.peak(), largest));
            let tone = match effect {
                Effect::Saved(_) | Effect::Ends => Tone::Good,
                Effect::Worse(_) | Effect::Grows | Effect::Died(_) => Tone::Bad,
                Effect::Base | Effect::NoneSeen | Effect::TooShort | Effect::DiesAsWell(_) => Tone::Plain,
            };
            (tone, row)
        });
        let table = Table { label: "variants", columns: columns.to_vec(), rows: rows.collect() };
        let note = "Peak: the most memory that tensors used on one GPU, in the median run of the repeats; ± is half of the range of the repeats.";
        write(out, &self.verdict(), &[table], note)
    }
}

impl Diff<'_> {
    /// As a page.
    ///
    /// # Errors
    /// What the sink says.
    pub fn html(&self, out: &mut impl Write) -> io::Result<()> {
        let [words, number] = [Column::Words, Column::Number];
        let sides = Table {
            label: "what is compared",
            columns: vec![
                (words, ""),
                (number, "in use"),
                (number, "peak"),
                (number, "reserved"),
                (words, "at"),
            ],
            rows: self.sides().map(|row| (Tone::Plain, row.to_vec())).to_vec(),
        };
        let most = self.rows().iter().take(ROWS).map(|r| r.more().unsigned_abs()).max().unwrap_or(0);
        let rows = self.cells().zip(self.rows()).map(|(cells, r)| {
            let mut row = cells.to_vec();
            row.insert(1, part(r.more().unsigned_abs(), most));
            (if r.more() > 0 { Tone::Bad } else { Tone::Good }, row)
        });
        let lines = Table {
            label: "lines that differ",
            columns: vec![
                (number, "difference"),
                (Column::Bar, ""),
                (number, "BASE"),
                (number, "NEW"),
                (number, "blocks"),
                (words, "allocated at"),
            ],
            rows: rows.collect(),
        };
        let rest = self.rows().len().saturating_sub(ROWS);
        let note =
            if rest > 0 { format!("And {} more lines.", thousands(rest as u64)) } else { String::new() };
        write(out, &self.verdict(), &[sides, lines], &note)
    }
}

fn write(out: &mut impl Write, title: &str, tables: &[Table], note: &str) -> io::Result<()> {
    let policy = policy_of_style(STYLE);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>strandline diff</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n",
        plain(title)
    )?;
    for table in tables.iter().filter(|t| !t.rows.is_empty()) {
        writeln!(out, "<section tabindex=\"0\" aria-label=\"{}\"><table>\n<thead><tr>", table.label)?;
        for (column, head) in &table.columns {
            // A column of bars belongs to the one before it.
            let tag = if head.is_empty() { "td" } else { "th" };
            writeln!(out, "<{tag}{}>{}</{tag}>", class(*column), plain(head))?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for (tone, row) in &table.rows {
            let tone = match tone {
                Tone::Plain => "",
                Tone::Good => " class=\"good\"",
                Tone::Bad => " class=\"bad\"",
            };
            write!(out, "<tr{tone}>")?;
            for ((column, head), cell) in table.columns.iter().zip(row) {
                let inner = match column {
                    Column::Bar => format!(
                        "<svg width=\"100%\" height=\"14\" aria-hidden=\"true\"><rect width=\"{cell}%\" height=\"14\" rx=\"3\"/></svg>"
                    ),
                    _ => plain(cell),
                };
                // Where there is little room a row is a list, and each value says what it is.
                write!(out, "<td{} data-head=\"{}\">{inner}</td>", class(*column), plain(head))?;
            }
            writeln!(out, "</tr>")?;
        }
        writeln!(out, "</tbody></table></section>")?;
    }
    writeln!(out, "<footer>{} strandline {}</footer>\n</main>\n</body>\n</html>", plain(note), crate::VERSION)
}

fn class(column: Column) -> &'static str {
    match column {
        Column::Words => " class=\"words\"",
        Column::Number => "",
        Column::Bar => " class=\"bar\"",
    }
}

/// Text as text, whatever it holds.
fn plain(text: &str) -> String {
    escaped(&printable(text))
}
