//! What is more in one process than in another, line by line, also where lines have moved in between; and several runs in one table.

mod lines;
mod modes;
mod page;
mod runs;

pub use modes::Modes;
pub use runs::{Effect, Run, Runs, Variant};

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::files::short_path;
use super::{Align, Facts, Style, Table, percent, quantity, size, thousands};
use crate::event::{Frame, total};
use crate::replay::{Point, Replay};
use lines::{Place, matched};

/// Rows of the text; JSON has all.
const ROWS: usize = 20;

/// A process at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// What it is called: its path.
    pub name: &'a str,
    /// The moment, in words.
    pub moment: &'a str,
    /// The process then.
    pub replay: &'a Replay,
    /// Part of its recording is missing.
    pub is_damaged: bool,
}

impl Side<'_> {
    /// Bytes in use on all devices.
    fn used(&self) -> u64 {
        total(self.replay.devices().map(|d| d.allocated.0))
    }
}

/// A line, and what it holds on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line that allocated, as the second has it; one that only the first has, as that does.
    pub frame: Frame,
    /// Its number in the first, where that is another.
    pub moved_from: Option<u32>,
    /// In the first process.
    pub base: Point,
    /// In the second.
    pub new: Point,
}

impl Row {
    /// Bytes that the second has more.
    pub fn more(&self) -> i64 {
        (self.new.bytes as i64).saturating_sub(self.base.bytes as i64)
    }
}

/// Two processes, compared.
#[derive(Clone, Debug)]
pub struct Diff<'a> {
    base: Side<'a>,
    new: Side<'a>,
    rows: Vec<Row>,
    /// Lines that have moved and hold as much.
    still: usize,
}

impl<'a> Diff<'a> {
    /// Compares what is in use, by the line that allocated it: what grew most comes first. Blocks that wait to be freed count. A line
    /// that moved between the two, because something was inserted above it, is one line.
    pub fn of(base: Side<'a>, new: Side<'a>) -> Diff<'a> {
        let bare = [base, new].iter().any(|side| is_bare(side.replay));
        let moved = moved(base.replay, new.replay, bare);
        let mut lines: BTreeMap<(String, u32, String), Row> = BTreeMap::new();
        for (side, is_new) in [(base, false), (new, true)] {
            let r = side.replay;
            let folders = folders([r, base.replay, new.replay]);
            for h in r.devices().flat_map(|d| r.blocks(d.id)) {
                let mut frame = r.site(h.site).map(|s| s.frame.clone()).unwrap_or_default();
                let function = name(&frame.function, bare).to_owned();
                let mut key = (short_path(&frame.file, &folders).to_owned(), frame.line, function);
                let mut moved_from = None;
                if let Some(&line) = moved.get(&key).filter(|_| !is_new) {
                    moved_from = (line != frame.line).then_some(frame.line);
                    (key.1, frame.line) = (line, line);
                }
                let fresh = || Row { frame, moved_from, base: Point::default(), new: Point::default() };
                let row = lines.entry(key).or_insert_with(fresh);
                let at = if is_new { &mut row.new } else { &mut row.base };
                at.add(Point::block(h.block.rounded.0));
            }
        }
        let still = lines.values().filter(|row| row.moved_from.is_some() && row.base == row.new).count();
        let mut rows: Vec<Row> = lines.into_values().filter(|row| row.base != row.new).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.more(), row.new.bytes)));
        Diff { base, new, rows, still }
    }

    /// Lines that differ, what grew most first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Bytes in use that the second has more.
    pub fn more(&self) -> i64 {
        self.rows.iter().map(Row::more).fold(0, i64::saturating_add)
    }

    /// Bytes in use that the second has more than so much, which the first may have: a part of what the first has, and bytes.
    pub fn worse_by(&self, part: f64, bytes: u64) -> Option<u64> {
        let (base, new) = (self.base.used(), self.new.used());
        let allowed = (base as f64 * part) as u64;
        (new > base.saturating_add(allowed).saturating_add(bytes)).then(|| new - base)
    }

    /// How much more or less is in use in the second, as a part of the first: `12 % more`, `4.3× as much`.
    pub fn in_percent(&self) -> Option<String> {
        let (base, new) = (self.base.used() as f64, self.new.used() as f64);
        (base > 0.0 && base != new).then(|| {
            if new >= 2.0 * base {
                return format!("{}× as much", quantity(new / base));
            }
            let word = if new > base { "more" } else { "less" };
            format!("{} {word}", percent((new - base).abs() / base))
        })
    }

    /// The first line: how much more or less is in use.
    pub fn verdict(&self) -> String {
        match self.more() {
            0 if self.rows.is_empty() => "THE SAME: every line holds as much in NEW as in BASE".to_string(),
            0 => "SAME TOTAL, different lines".to_string(),
            more => {
                let (base, new) = (self.base.is_damaged, self.new.is_damaged);
                let part = match (base, new) {
                    (false, false) => self.in_percent().map(|p| format!(" ({p})")).unwrap_or_default(),
                    (true, true) => "; part of both is missing, so they cannot be compared".to_owned(),
                    (base, _) => {
                        let name = if base { "BASE" } else { "NEW" };
                        format!("; part of {name} is missing, so they cannot be compared")
                    }
                };
                format!("NEW has {} in use than BASE{part}", signed(more))
            }
        }
    }

    /// Both sides: name, bytes in use, peak, reserved, moment.
    fn sides(&self) -> [[String; 5]; 2] {
        [("BASE", self.base), ("NEW", self.new)].map(|(name, side)| {
            let sum = |f: &dyn Fn(&crate::replay::Device) -> u64| size(total(side.replay.devices().map(f)));
            [
                format!("{name:<4}  {}", side.name),
                sum(&|d| d.allocated.0),
                sum(&|d| d.peak_allocated.bytes.0),
                sum(&|d| d.reserved.0),
                side.moment.to_string(),
            ]
        })
    }

    /// The lines that differ most: how much more, on both sides, blocks, the line.
    fn cells(&self) -> impl Iterator<Item = [String; 5]> {
        let folders = [self.new, self.base].map(|side| Facts::of(side.replay).folders()).concat();
        self.rows.iter().take(ROWS).map(move |row| {
            let blocks = row.new.blocks as i64 - row.base.blocks as i64;
            [
                signed(row.more()),
                size(row.base.bytes),
                size(row.new.bytes),
                format!("{}{}", if blocks < 0 { "-" } else { "+" }, thousands(blocks.unsigned_abs())),
                place(&row.frame, row.moved_from, &folders),
            ]
        })
    }

    /// For people.
    ///
    /// # Errors
    /// What the sink says.
    pub fn text(&self, out: &mut impl Write, style: Style) -> io::Result<()> {
        style.print(out, &[format!("strandline: {}", self.verdict())])?;
        let mut head = Table::new([Align::Left, Align::Right, Align::Right, Align::Right, Align::Left]);
        head.row(["", "in use", "peak", "reserved", "at"]);
        self.sides().into_iter().for_each(|row| head.row(row));
        style.print(out, &head.lines(2))?;
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut table = Table::new([Align::Right, Align::Right, Align::Right, Align::Right, Align::Left]);
        table.row(["change", "BASE", "NEW", "blocks", "allocated at"]);
        self.cells().for_each(|row| table.row(row));
        style.print(out, &table.lines(2))?;
        match self.rows.len().saturating_sub(ROWS) {
            0 => {}
            more => writeln!(out, "  and {more} more lines; --format json shows all")?,
        }
        match self.still {
            0 => Ok(()),
            1 => writeln!(out, "  1 line moved to another line number and holds the same amount"),
            n => writeln!(out, "  {n} lines moved to other line numbers and hold the same amounts"),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let side = |s: &Side<'_>| {
            let device = |d: &crate::replay::Device| {
                json!({
                    "index": d.id.0,
                    "allocated_bytes": d.allocated.0,
                    "reserved_bytes": d.reserved.0,
                    "pending_bytes": d.pending.0,
                    "peak_allocated_bytes": d.peak_allocated.bytes.0,
                })
            };
            json!({ "name": s.name, "at": s.moment, "damaged": s.is_damaged, "devices": s.replay.devices().map(device).collect::<Vec<_>>() })
        };
        let row = |r: &Row| {
            json!({
                "more_bytes": r.more(),
                "base": { "bytes": r.base.bytes, "blocks": r.base.blocks },
                "new": { "bytes": r.new.bytes, "blocks": r.new.blocks },
                "file": r.frame.file, "line": r.frame.line, "function": r.frame.function,
                "base_line": r.moved_from.unwrap_or(r.frame.line),
            })
        };
        json!({
            "schema": 1,
            "tool": format!("strandline {}", crate::VERSION),
            "more_bytes": self.more(),
            "base": side(&self.base),
            "new": side(&self.new),
            "moved_and_equal": self.still,
            "sites": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

fn signed(bytes: i64) -> String {
    format!("{} {}", size(bytes.unsigned_abs()), if bytes < 0 { "less" } else { "more" })
}

/// A line as the report has it; `folders`: those that its file may lie below.
fn place(frame: &Frame, moved_from: Option<u32>, folders: &[String]) -> String {
    if frame.file.is_empty() {
        return "an unknown line".into();
    }
    let file = short_path(&frame.file, folders);
    // Of a path elsewhere the end says enough.
    let parts: Vec<&str> =
        file.rsplit('/').take(if file.starts_with('/') { 3 } else { usize::MAX }).collect();
    let file = parts.into_iter().rev().collect::<Vec<_>>().join("/");
    let moved = moved_from.map(|line| format!(" (was line {line})")).unwrap_or_default();
    format!("{file}:{} {}{moved}", frame.line, frame.function)
}

/// The folders of the job, of the first that knows any: a snapshot of PyTorch's does not.
fn folders(of: [&Replay; 3]) -> Vec<String> {
    of.into_iter().map(|r| Facts::of(r).folders()).find(|all| !all.is_empty()).unwrap_or_default()
}

/// Whether functions have no class in their names, as in PyTorch's snapshots and before Python 3.11.
fn is_bare(replay: &Replay) -> bool {
    !replay.sites().iter().any(|s| s.frame.function.contains('.'))
}

/// A function's name, by which both sides know it.
fn name(function: &str, bare: bool) -> &str {
    if bare { function.rsplit('.').next().unwrap_or(function) } else { function }
}

/// Lines that the first knows, with their numbers in the second.
fn moved(base: &Replay, new: &Replay, bare: bool) -> BTreeMap<(String, u32, String), u32> {
    let mut files: BTreeMap<String, [Vec<Place>; 2]> = BTreeMap::new();
    for (replay, side) in [(base, 0), (new, 1)] {
        let folders = folders([replay, base, new]);
        for frame in replay.sites().iter().map(|s| &s.frame).filter(|f| f.line > 0) {
            let lines = &mut files.entry(short_path(&frame.file, &folders).to_owned()).or_default()[side];
            lines.push((frame.line, name(&frame.function, bare).to_owned()));
        }
    }
    let mut all = BTreeMap::new();
    for (file, mut sides) in files {
        for side in &mut sides {
            side.sort_unstable();
            side.dedup();
        }
        for ((line, function), (other, _)) in matched(&sides[0], &sides[1]) {
            all.insert((file.clone(), line, function), other);
        }
    }
    all
}
