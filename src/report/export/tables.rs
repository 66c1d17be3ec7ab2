//! The tables: what the JSON report says, as rows. A figure of a row is that of the report, to the byte; docs/fleet.md has all columns.

use crate::report::json;
use crate::report::model::{Facts, Process, Report};
use crate::report::ranks::Ranks;
use serde_json::{Value, json};

/// Version of the tables, in the metadata of each file as `strandline.schema`: columns are added, and none changes its meaning.
pub const SCHEMA: &str = "1";

/// What a column has. Any value may be null: not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Int,
    /// Fractions.
    Float,
    /// Text.
    Text,
    /// Yes or no.
    Bool,
    /// Nanoseconds since 1970.
    Time,
}

use Kind::{Bool, Float, Int, Text, Time};

/// A column: its name and what it has.
pub type Column = (&'static str, Kind);

/// A table: a folder of its name has its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
}

/// Declares a table: its name, then each of its columns with the kind of what it has.
macro_rules! table {
    ($name:literal: $($column:ident $kind:ident),*) => {
        Table { name: $name, columns: &[$((stringify!($column), $kind)),*] }
    };
}

/// One row for a job: what is said of it as a whole.
pub const JOBS: Table = table!("jobs": commit Text, began Time, verdict Text, reason Text, command Text,
    world_size Int, processes Int, missing_ranks Int, running Int, restarts Int, worst_rank Int, worst_pid Int,
    detectable_bytes_per_step Float, tool Text);

/// The tables of a process, in the order in which [`rows`] makes them.
pub const OF_PROCESS: [Table; 7] = [
    table!("processes": pid Int, host Text, restart Int, began Time, verdict Text, reason Text,
        framework Text, allocator Text, coverage Text, ended Text, killed_by_host Bool,
        step_source Text, steps Int, events Int, events_lost Int, accounting_drift_bytes Int,
        detectable_bytes_per_step Float, step_time_fraction Float, device Int, device_name Text,
        capacity_bytes Int, limit_bytes Int, peak_allocated_bytes Int, peak_reserved_bytes Int,
        peak_step Int, peak_phase Text, end_allocated_bytes Int, end_reserved_bytes Int),
    table!("steps": pid Int, host Text, device Int, step Int, allocated_bytes Int, reserved_bytes Int,
        pending_bytes Int, peak_bytes Int),
    table!("sites": pid Int, host Text, device Int, stream Int, file Text, line Int, function Text,
        your_file Text, your_line Int, allocs Int, frees Int, old_bytes Int, old_blocks Int),
    table!("streams": pid Int, host Text, device Int, stream Int, handle Text, side Bool, times_entered Int,
        times_left Int, allocs Int),
    table!("findings": pid Int, host Text, finding Int, kind Text, certainty Text, severity Text,
        device Int, stream Int, first_step Int, detected_step Int, withdrawn_step Int,
        bytes_per_step Float, blocks_per_step Float, bytes_now Int, blocks_now Int, steps_to_full Int,
        seconds_to_full Int, file Text, line Int, function Text, your_file Text, your_line Int,
        kept_at Text, held_by Text, known Text, suppressed_by Text, explain Text),
    table!("survivors": pid Int, host Text, finding Int, device Int, file Text, line Int, function Text,
        share Float, bytes Int),
    table!("oom": pid Int, host Text, device Int, step Int, phase Text, cause Text, requested_bytes Int,
        free_bytes Int, allocated_bytes Int, reserved_bytes Int, largest_free_bytes Int, explain Text,
        file Text, line Int, function Text),
];

/// All events of a process, one row each, in their order. Its rows are made by whoever reads the recording.
pub const EVENTS: Table = table!("events": pid Int, time Time, step Int, thread Int, kind Text, device Int,
    handle Text, address Int, bytes Int, rounded_bytes Int, phase Text, stack Int, name Text);

/// The stacks that events name, one row for each frame.
pub const STACKS: Table = table!("stacks": pid Int, stack Int, depth Int, file Text, line Int, function Text);

/// The row of a job, which began at this time (nanoseconds since 1970).
pub fn job(r: &Report<'_>, began: u64, commit: Option<&str>) -> Value {
    let mut row = json::head(r);
    let worst = row["worst_process"].as_u64().and_then(|i| r.processes.get(i as usize));
    let worst = worst.map(|p| Facts::of(p.replay));
    let ranks = Ranks::known(r).value(r);
    let is_told = !ranks["world_size"].is_null();
    let words = row["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    row["command"] = words.collect::<Vec<_>>().join(" ").into();
    row["commit"] = json!(commit);
    row["began"] = json!(began);
    row["world_size"] = ranks["world_size"].clone();
    row["processes"] = json!(r.processes.len());
    // How many there should be is known from a launcher alone.
    row["missing_ranks"] = json!(ranks["missing"].as_array().filter(|_| is_told).map(Vec::len));
    row["running"] = ranks["running"].clone();
    row["restarts"] = ranks["restarts"].clone();
    row["worst_rank"] = json!(worst.and_then(Facts::rank));
    row["worst_pid"] = json!(worst.and_then(|f| f.number("pid")));
    row
}

/// The rows of a process, of each table of [`OF_PROCESS`].
pub fn rows(r: &Report<'_>, process: usize, began: u64) -> [Vec<Value>; 7] {
    let Some(p) = r.processes.get(process) else { return Default::default() };
    let said = json::process(p);
    let own = |mut row: Value| {
        row["pid"] = said["pid"].clone();
        row["host"] = said["host"].clone();
        row
    };
    let devices = || said["devices"].as_array().into_iter().flatten();
    let main =
        devices().max_by_key(|d| d["peak_allocated_bytes"].as_u64().or(d["peak_reserved_bytes"].as_u64()));
    let mut all: [Vec<Value>; 7] = Default::default();
    all[0] = vec![own(of_process(p, &said, main, began))];
    for d in devices() {
        let of = |row: &Value| {
            let mut row = own(row.clone());
            row["device"] = d["index"].clone();
            row
        };
        all[1].extend(d["per_step"].as_array().into_iter().flatten().map(of));
        if d["oom"].is_object() {
            let mut row = of(&d["oom"]);
            place(&mut row, &d["oom"]["frames"][0], "");
            all[6].push(row);
        }
    }
    all[2] = sites(p).map(own).collect();
    all[3] = streams(p).map(own).collect();
    for (i, f) in said["findings"].as_array().into_iter().flatten().enumerate() {
        let (row, sites) = finding(i, f);
        all[4].push(own(row));
        all[5].extend(sites.into_iter().map(own));
    }
    all
}

fn of_process(p: &Process<'_>, said: &Value, main: Option<&Value>, began: u64) -> Value {
    let mut row = said.clone();
    row["restart"] = json!(Facts::of(p.replay).number("restart"));
    row["began"] = json!(began);
    row["coverage"] = said["coverage"]["level"].clone();
    row["step_time_fraction"] = said["cost"]["step_time_fraction"].clone();
    if let (Some(Value::Object(d)), Value::Object(row)) = (main, &mut row) {
        row.extend(d.clone());
        row.insert("device".into(), d["index"].clone());
        row.insert("device_name".into(), d["name"].clone());
    }
    row
}

fn sites<'p>(p: &'p Process<'_>) -> impl Iterator<Item = Value> + 'p {
    p.replay.cohorts().iter().filter(|c| c.allocs > 0).map(|c| {
        let site = p.replay.site(c.key.site);
        let mut row = json!({
            "device": c.key.device.0,
            "stream": p.replay.stream(c.key.stream).map(|s| s.id.0),
            "allocs": c.allocs,
            "frees": c.frees,
            "old_bytes": c.steps.at_mark.bytes,
            "old_blocks": c.steps.at_mark.blocks,
        });
        if let Some(site) = site {
            place(&mut row, &json::frame(&site.frame), "");
            if let Some(yours) = &site.your_line {
                place(&mut row, &json::frame(yours), "your_");
            }
        }
        row
    })
}

fn streams<'p>(p: &'p Process<'_>) -> impl Iterator<Item = Value> + 'p {
    p.replay.streams().iter().map(|s| {
        json!({
            "device": s.device.0,
            "stream": s.id.0,
            "handle": format!("0x{:x}", s.handle.0),
            "side": p.replay.is_side(s.id),
            "times_entered": s.entered,
            "times_left": s.left,
            "allocs": s.allocs,
        })
    })
}

/// A finding, and what it says of each of its lines.
fn finding(number: usize, f: &Value) -> (Value, Vec<Value>) {
    let sites = f["sites"].as_array().map_or(&[][..], Vec::as_slice);
    let mut row = f.clone();
    row["finding"] = json!(number);
    row["stream"] = f["stream"]["id"].clone();
    row["steps_to_full"] = f["steps_to_oom"]["mid"].clone();
    row["seconds_to_full"] = f["seconds_to_oom"]["mid"].clone();
    row["known"] = f["fix"]["known"].clone();
    let holders = f["held_by"]["holders"].as_array().filter(|all| !all.is_empty());
    row["held_by"] =
        json!(holders.map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ")));
    if let Some(file) = f["kept_at"]["file"].as_str() {
        row["kept_at"] = format!("{file}:{}", f["kept_at"]["line"]).into();
    }
    if let Some(first) = sites.first() {
        place(&mut row, &first["frames"][0], "");
        place(&mut row, &first["your_line"], "your_");
    }
    let bytes = f["bytes_now"].as_f64().unwrap_or(0.0);
    let of = |site: &Value| {
        let share = site["share"].as_f64().unwrap_or(0.0);
        let mut row = json!({
            "finding": number, "device": f["device"], "share": share, "bytes": (share * bytes) as u64,
        });
        place(&mut row, &site["frames"][0], "");
        row
    };
    // What was withdrawn has left nothing behind.
    let stands = f["withdrawn_step"].is_null();
    (row, sites.iter().filter(|_| stands).map(of).collect())
}

/// A frame as columns; `your_line` is a line and no function.
fn place(row: &mut Value, frame: &Value, prefix: &str) {
    row[format!("{prefix}file")] = frame["file"].clone();
    row[format!("{prefix}line")] = frame["line"].clone();
    if prefix.is_empty() {
        row["function"] = frame["function"].clone();
    }
}
