//! A comparison as one page of HTML that needs no network and runs no script.

use super::runs::Runs;
use super::{Diff, ROWS};
use crate::event::printable;
use crate::report::count;
use crate::report::html::policy_of_style;
use crate::report::markup::escaped;
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

/// A table: its columns with their heads, and its rows.
struct Table {
    columns: Vec<(Column, &'static str)>,
    rows: Vec<Vec<String>>,
}

impl Runs {
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
        let largest = self.rows().map(|(v, _)| v.peak()).max().unwrap_or(0).max(1);
        let bars = self.rows().map(|(v, _)| (v.peak() as u128 * 100 / u128::from(largest)).to_string());
        let rows = self.cells().into_iter().skip(1).zip(bars).map(|(cells, bar)| {
            let mut row = cells.to_vec();
            row.insert(4, bar);
            row
        });
        let table = Table { columns: columns.to_vec(), rows: rows.collect() };
        let note = "Peak: the most that tensors took on a device, of the middle run; ± half of what repeats differ by.";
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
            columns: vec![
                (words, ""),
                (number, "in use"),
                (number, "peak"),
                (number, "reserved"),
                (words, "at"),
            ],
            rows: self.sides().map(|row| row.to_vec()).to_vec(),
        };
        let lines = Table {
            columns: vec![
                (number, "more"),
                (number, "base"),
                (number, "new"),
                (number, "blocks"),
                (words, "allocated at"),
            ],
            rows: self.cells().map(|row| row.to_vec()).collect(),
        };
        let rest = self.rows().len().saturating_sub(ROWS);
        let note = if rest > 0 { format!("And {} more lines.", count(rest as u64)) } else { String::new() };
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
        writeln!(out, "<section tabindex=\"0\" aria-label=\"comparison\"><table>\n<thead><tr>")?;
        for (column, head) in &table.columns {
            // A column of bars belongs to the one before it.
            let tag = if head.is_empty() { "td" } else { "th" };
            writeln!(out, "<{tag}{}>{}</{tag}>", class(*column), plain(head))?;
        }
        writeln!(out, "</tr></thead>\n<tbody>")?;
        for row in &table.rows {
            write!(out, "<tr>")?;
            for ((column, _), cell) in table.columns.iter().zip(row) {
                let inner = match column {
                    Column::Bar => format!(
                        "<svg width=\"100%\" height=\"14\" aria-hidden=\"true\"><rect width=\"{cell}%\" height=\"14\" rx=\"3\"/></svg>"
                    ),
                    _ => plain(cell),
                };
                write!(out, "<td{}>{inner}</td>", class(*column))?;
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
