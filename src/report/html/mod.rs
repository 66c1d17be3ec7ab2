//! The report as one HTML page that needs nothing else: data, styles and script in one file, no network.
//!
//! The page is bounded: at most 1,000 points along the steps, the largest lines and stacks by name and the rest as one, so it stays
//! small and quick whatever the recording's size. The files of `page/` are the page; here it gets its data.

mod classes;
mod collect;
mod flame;
mod lane;
mod policy;

use super::json as report_json;
use super::model::{Facts, Process, Report, capacity};
use super::numbered::Numbered;
use super::processes::Row;
use super::ranks::Ranks;
use super::style::Ink;
use super::text::{self, failures, growing, killed};
use crate::event::{SiteId, StreamId, add};
use crate::replay::anatomy::Class;
use crate::replay::{PhaseKind, Replay, SEVERAL, SiteKind};
pub use collect::Pass;
use lane::{Block, Closeup, Lane, PHASES, Point};
pub use policy::policy_of_style;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

const TEMPLATE: &str = concat!(
    include_str!("page/head.html"),
    "<style>\n",
    include_str!("page/style.css"),
    "</style>\n",
    include_str!("page/body.html"),
    "<script>\n\"use strict\";\n",
    include_str!("page/base.js"),
    include_str!("page/head.js"),
    include_str!("page/findings.js"),
    include_str!("page/timeline.js"),
    include_str!("page/moment.js"),
    include_str!("page/flame.js"),
    include_str!("page/lines.js"),
    include_str!("page/start.js"),
    "</script>\n</body>\n</html>\n"
);
/// Where the template has its data.
const SLOT: &str = "/*DATA*/null";
/// Where it says what it may do.
const POLICY: &str = "/*POLICY*/";
/// Lines and streams with a colour of their own.
const NAMED: usize = 24;
/// Devices of all processes together that are drawn, those of the gravest processes first.
const LANES: usize = 8;
/// Processes of which the page has all that the JSON has, the gravest first.
const WHOLE: usize = 64;
/// Rows of the table.
const ROWS: usize = 400;

/// The processes by falling gravity; of those without a leak the ranks that differ from the others come first.
fn order(r: &Report<'_>) -> Vec<usize> {
    let (rows, apart) = (r.rows(), apart(r));
    let is_usual =
        |i: &usize| rows.get(*i).is_some_and(|row| matches!(row.ink, Ink::Good)) && !apart.contains(i);
    let mut order = r.job().order;
    order.sort_by_key(is_usual);
    order
}

/// The ranks that differ from the others.
fn apart(r: &Report<'_>) -> BTreeSet<usize> {
    Ranks::of(r).into_iter().flat_map(|ranks| ranks.apart).map(|a| a.rank).collect()
}

/// The processes that are drawn, as indices: the first of the page's order.
pub fn drawn(r: &Report<'_>) -> Vec<usize> {
    let mut room = LANES;
    let mut drawn = Vec::new();
    for i in order(r) {
        let devices = r.processes.get(i).map_or(0, |p| p.replay.devices().count());
        if devices > 0 && room > 0 {
            drawn.push(i);
            room = room.saturating_sub(devices);
        }
    }
    drawn
}

/// Prints the page. `passes` are of processes of the report, by their index: of those that [`drawn`] names.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, r: &Report<'_>, mut passes: BTreeMap<usize, Pass>) -> io::Result<()> {
    let order = order(r);
    let mut room = LANES;
    let mut charts = vec![json!([]); r.processes.len()];
    let mut words = Numbered::new();
    for &i in &order {
        if let (Some(p), Some(pass)) = (r.processes.get(i), passes.remove(&i)) {
            charts[i] = process(p, pass, &mut room, &mut words);
        }
    }
    let mut report = report_json::head(r);
    // Of the others the table has a row.
    let whole: BTreeSet<usize> = order.iter().copied().take(WHOLE).collect();
    let all = r.processes.iter().enumerate().map(|(i, p)| said(p, whole.contains(&i)));
    report["processes"] = all.collect();
    let data =
        json!({ "report": report, "charts": charts, "words": words.list(), "told": summary(r, &order) });
    // Within a script element nothing may look like its end.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let (before, after) = TEMPLATE.split_once(SLOT).unwrap_or((TEMPLATE, ""));
    out.write_all(before.replace(POLICY, &policy::policy(TEMPLATE)).as_bytes())?;
    out.write_all(data.as_bytes())?;
    out.write_all(after.as_bytes())
}

/// What the JSON says of a process, without what the charts have; not `whole`: what its row and its numbers need.
fn said(p: &Process<'_>, whole: bool) -> Value {
    let mut all = report_json::process(p);
    for d in all["devices"].as_array_mut().into_iter().flatten() {
        d["per_step"] = Value::Null;
    }
    if whole {
        return all;
    }
    let keys = |v: &Value, keys: &[&str]| -> Value {
        keys.iter().map(|k| ((*k).to_owned(), v[*k].clone())).collect::<serde_json::Map<_, _>>().into()
    };
    let device =
        |d: &Value| keys(d, &["index", "name", "capacity_bytes", "peak_allocated_bytes", "peak_step"]);
    let devices: Value = all["devices"].as_array().into_iter().flatten().map(device).collect();
    let mut less = keys(&all, &["steps", "step_source", "events", "events_lost", "ended"]);
    less["devices"] = devices;
    less["findings"] = json!([]);
    less["left_out"] = json!(true);
    less["cost"] = json!({ "step_time_fraction": all["cost"]["step_time_fraction"] });
    less
}

/// What the text says, too, in its words: the phrase that all begins with, and the processes.
fn summary(r: &Report<'_>, order: &[usize]) -> Value {
    let (phrase, ink) = r.phrase();
    let means: Vec<String> = growing(r).into_iter().chain(killed(r)).collect();
    let row = |w: &Row| json!([w.name, w.phrase, w.peak, w.left, w.steps, w.ink.name(), w.ended]);
    json!({
        "phrase": phrase,
        "reason": r.summary(),
        "means": means,
        "class": ink.name(),
        "order": order,
        "failed": r.processes.iter().map(|p| labelled(&failures(p))).collect::<Vec<_>>(),
        "names": r.names(),
        "folders": folders(r),
        "ranks": Ranks::of(r).map_or(Vec::new(), |ranks| ranks.sentences(r)),
        "processes": r.rows().iter().map(row).collect::<Vec<_>>(),
        "apart": apart(r),
        "links": r.source_links.as_ref().map(|l| json!({ "before": l.before, "root": l.root, "line": l.line })),
    })
}

/// The folders that the files of a job are named from, the deepest first.
fn folders(r: &Report<'_>) -> Vec<String> {
    let all: BTreeSet<String> = r.processes.iter().flat_map(|p| Facts::of(p.replay).folders()).collect();
    let mut all: Vec<String> = all.into_iter().collect();
    all.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
    all
}

/// Lines of the text report as labels with what stands beside them.
fn labelled(lines: &[String]) -> Vec<[String; 2]> {
    let parts = |line: &String| {
        let (label, text) = line.split_at_checked(9).unwrap_or(("", line));
        match text.strip_prefix("it failed: ") {
            Some(text) if label.trim() == "before" => ["before it failed".to_owned(), text.to_owned()],
            _ => [label, text].map(|part| part.trim().to_owned()),
        }
    };
    lines.iter().map(parts).collect()
}

fn process(p: &Process<'_>, mut pass: Pass, room: &mut usize, words: &mut Numbered<String>) -> Value {
    pass.end(p.names);
    pass.lanes.truncate(*room);
    *room -= pass.lanes.len();
    Value::Array(pass.lanes.iter().map(|lane| device(p, lane, words)).collect())
}

/// A phase in words: whether gradients are off says nothing of an evaluation.
fn phase_word(phase: PhaseKind) -> &'static str {
    if phase == PhaseKind::Evaluation { "no grad" } else { phase.name() }
}

fn device(p: &Process<'_>, lane: &Lane, words: &mut Numbered<String>) -> Value {
    let points = &lane.points;
    let column = |f: &dyn Fn(&Point) -> u64| differences(points.iter().map(f));
    let phases: Vec<Value> = PHASES
        .iter()
        .enumerate()
        .filter(|(i, _)| points.iter().any(|x| x.phases[*i] > 0))
        .map(|(i, phase)| json!({ "name": phase_word(*phase), "bytes": column(&|x| x.phases[i]) }))
        .collect();
    let streams =
        parts(points, &|x| x.streams.iter().map(|(id, b)| (*id, *b)).collect(), &|id| stream(p, *id));
    let folders = Facts::of(p.replay).folders();
    let sites = parts(points, &|x| x.sites.clone(), &|id| json!({ "name": name(p.replay, *id, &folders) }));
    let begins = lane.within.first().map_or(0, |w| w.0);
    let within = [
        differences(lane.within.iter().map(|(t, _)| t.saturating_sub(begins) / 1000)),
        differences(lane.within.iter().map(|(_, b)| *b)),
    ];
    json!({
        "device": lane.device.0,
        "capacity": capacity(p, lane.device),
        "steps": column(&|x| x.step.into()),
        "allocated": column(&|x| x.allocated),
        "reserved": column(&|x| x.reserved),
        "pending": column(&|x| x.pending),
        "peak": column(&|x| x.peak),
        "left": column(&|x| x.left),
        "classes": Class::ALL.map(|c| json!({ "name": c.name(), "bytes": column(&|x| x.classes[c.number()]) })),
        "by": { "stream": streams, "site": sites, "phase": phases },
        "within": within,
        "end": lane.end.as_ref().map(|c| closeup(p, c, words)),
        "at_peak": lane.peak.as_ref().map(|c| closeup(p, c, words)),
        "table": table(p, lane, words),
        "marks": lane.marks,
    })
}

/// Numbers as the first one and what each is more than the one before, of which most columns have the same many times: `[n, times]`.
fn differences(numbers: impl Iterator<Item = u64>) -> Value {
    let mut before = 0;
    let more: Vec<i64> =
        numbers.map(|n| n.wrapping_sub(std::mem::replace(&mut before, n)).cast_signed()).collect();
    let run = |run: &[i64]| match run {
        [n, _, _, ..] => vec![json!([n, run.len()])],
        few => few.iter().map(|n| json!(n)).collect(),
    };
    more.chunk_by(|a, b| a == b).flat_map(run).collect()
}

fn closeup(p: &Process<'_>, c: &Closeup, words: &mut Numbered<String>) -> Value {
    let ages: Vec<Value> = c.ages.iter().map(|(step, bytes, blocks)| json!([step, bytes, blocks])).collect();
    let folders = Facts::of(p.replay).folders();
    let mut block = |b: &Block| {
        let line = words.number(&name(p.replay, b.site, &folders));
        let stream = words.number(&text::stream(p.replay, b.stream));
        json!([b.bytes, line, stream, b.step, words.number(phase_word(b.phase))])
    };
    let blocks: Vec<Value> = c.blocks.iter().map(&mut block).collect();
    json!({
        "step": c.step,
        "allocated": c.allocated,
        "flame": c.tree.value(words),
        "ages": ages,
        "blocks": blocks,
        "count": c.count,
    })
}

/// The largest parts of all points as columns of bytes; what is left of `allocated` is drawn as the rest.
fn parts<K: Ord + Copy>(
    points: &[Point],
    of: &dyn Fn(&Point) -> Vec<(K, u64)>,
    describe: &dyn Fn(&K) -> Value,
) -> Vec<Value> {
    let mut columns: BTreeMap<K, Vec<u64>> = BTreeMap::new();
    for (i, point) in points.iter().enumerate() {
        for (key, bytes) in of(point) {
            columns.entry(key).or_insert_with(|| vec![0; points.len()])[i] = bytes;
        }
    }
    let mut all: Vec<(K, Vec<u64>)> = columns.into_iter().collect();
    all.sort_by_key(|(_, column)| std::cmp::Reverse(column.iter().max().copied()));
    all.truncate(NAMED);
    let value = |(key, column): (K, Vec<u64>)| {
        let mut v = describe(&key);
        v["bytes"] = differences(column.into_iter());
        v
    };
    all.into_iter().map(value).collect()
}

fn stream(p: &Process<'_>, id: StreamId) -> Value {
    let side = p.replay.is_side(id);
    let handle = p.replay.stream(id).map_or(0, |s| s.handle.0);
    json!({ "name": text::stream(p.replay, id), "handle": format!("0x{handle:x}"), "side": side })
}

/// A line as the page's tables have it. `folders`: see [`Facts::folders`].
fn name(replay: &Replay, site: SiteId, folders: &[String]) -> String {
    match replay.site(site) {
        Some(s) if !s.frame.file.is_empty() => {
            let within = match (&s.node, s.kind) {
                (Some(node), _) => format!(" · {node}"),
                (None, SiteKind::Backward) => " · its backward".to_owned(),
                _ => String::new(),
            };
            format!("{}{within}", flame::label(replay, &s.frame, folders))
        }
        _ => text::NO_FRAME.to_owned(),
    }
}

/// Lines by what they hold at the end, then by how much they have done.
fn table(p: &Process<'_>, lane: &Lane, words: &mut Numbered<String>) -> Vec<Value> {
    let replay: &Replay = p.replay;
    let leaks = |site: SiteId, id: StreamId| {
        p.findings.iter().any(|f| {
            f.is_active_leak()
                && f.device == lane.device
                && f.stream.is_none_or(|s| s.id == id)
                && f.sites.iter().any(|s| s.site == site)
        })
    };
    // What a line has done in all, with what it holds at the end of the last step.
    let mut rows: BTreeMap<(SiteId, StreamId), [u64; 4]> = BTreeMap::new();
    for c in replay.cohorts().iter().filter(|c| c.key.device == lane.device) {
        let row = rows.entry((c.key.site, c.key.stream)).or_default();
        add(&mut row[2], c.allocs);
        add(&mut row[3], c.frees);
    }
    for (key, (bytes, blocks)) in lane.end.iter().flat_map(|end| &end.lines) {
        // A line on several streams is one row, with the blocks that its first streams had before it was known to be.
        let all = (key.0, SEVERAL);
        let is_side = replay.stream(key.1).is_some_and(|s| s.handle.0 != 0);
        let key = if is_side && rows.contains_key(&all) { all } else { *key };
        let row = rows.entry(key).or_default();
        add(&mut row[0], *bytes);
        add(&mut row[1], *blocks);
    }
    // What was held at the end is not among what was freed before: a job that ends frees all.
    rows.values_mut().for_each(|row| row[3] = row[3].min(row[2].saturating_sub(row[1])));
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse((row[0], row[2])));
    rows.truncate(ROWS);
    let folders = Facts::of(replay).folders();
    let row = |((site, id), [bytes, blocks, allocs, frees]): ((SiteId, StreamId), [u64; 4])| {
        let line = words.number(&name(replay, site, &folders));
        let on = words.number(&text::stream(replay, id));
        json!([line, on, bytes, blocks, allocs, frees, u8::from(leaks(site, id))])
    };
    rows.into_iter().map(row).collect()
}
