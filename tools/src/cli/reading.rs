//! What is read of a recording: options of `report`, `diff`, `export`, `dump` and `top`.

use super::gate::{Gate, Unused};
use crate::analyze::Moment;
use crate::size::Size;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `strandline top`
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// A recording, the folder of a run, or the pid of a recorded process [default: this user's running jobs]
    #[arg(value_name = "DIR|REC|PID")]
    pub(crate) recording: Option<PathBuf>,
    /// File of findings to ignore (see report --help); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Vec<PathBuf>,
}

/// What a reader of a report asks for first.
const WORDS: &str = "\
Words of the report:
  step           ends with optimizer.step(). If something else ends it, the line `run` of the
                 report says what. Later allocations belong to the next step
  left behind    blocks of earlier steps that were not freed; those of the last steps are too new
                 to judge
  temporaries    memory that one forward, backward or optimizer step allocates and frees
  unclassified   everything else: workspaces of libraries, rounding, data that stays on the GPU
  90 % interval  with a probability of 90 %, the GPU gets full within this range of steps
  sizes add up to PyTorch's own counters
                 nothing is missing in the recording";

/// `strandline report`
#[derive(Args, Debug)]
#[command(after_help = WORDS, override_usage = "strandline report [OPTIONS] [RECORDING]")]
pub(crate) struct Report {
    /// A recording, the folder of a run (also s3://BUCKET/FOLDER), or a snapshot that PyTorch wrote [default: the newest under ./strandline]
    pub(crate) recording: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Write the page of --format html, to this file or beside the recording
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = ".",
          conflicts_with_all = ["format", "output"])]
    pub(crate) html: Option<PathBuf>,
    /// What opens a source line on the HTML page when you click it
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "share")]
    pub(crate) source_links: Option<LinksTo>,
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Judge the recording as of the end of a step (step:40, or 40), and compare that with the verdict on the whole recording
    #[arg(long, value_name = "step:N", value_parser = step_only, conflicts_with = "html")]
    pub(crate) at: Option<u32>,
    /// For a bug report: replace private names, paths, hosts and arguments with your/file1.py, function1, host1
    #[arg(long)]
    pub(crate) share: bool,
    /// Which findings count, and whether they fail the command.
    #[command(flatten)]
    pub(crate) gate: Gate,
}

/// Where links to lines of source files lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinksTo {
    /// Visual Studio Code, on a machine that has the files
    Vscode,
    /// GitHub, at the commit of the job's checkout
    Github,
}

/// A step, of the moments that a snapshot can show, or its number alone.
fn step_only(text: &str) -> Result<u32, String> {
    match text.parse().or_else(|_| text.parse().map(Moment::Step)) {
        Ok(Moment::Step(n)) => Ok(n),
        _ => Err("only the end of a step can be reported, written like step:40; of other moments there are snapshots: strandline snapshot --at peak".into()),
    }
}

/// `strandline advise`
#[derive(Args, Debug)]
#[command(override_usage = "strandline advise [OPTIONS] [REC]")]
pub(crate) struct Advise {
    /// `--known`, which changes nothing here.
    #[command(flatten)]
    pub(crate) unused: Unused,
    /// A recording, or the folder of a run [default: the newest under ./strandline]
    #[arg(value_name = "REC")]
    pub(crate) recording: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `strandline diff`
#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// A recording, or a snapshot that PyTorch or strandline wrote; REC@MOMENT picks a moment of it, such as REC@step:10. Or a folder of runs: prints a table with one row per run. If the runs lie in subfolders, each run is compared with the first one of its subfolder
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,
    /// What to compare with BASE: one recording is compared line by line, several in one table. NAME=REC names a run. Runs with the
    /// same NAME, and folders such as run-1 and run-2, count as repeats of one configuration
    #[arg(value_name = "NEW")]
    pub(crate) new: Vec<PathBuf>,
    /// The moment to compare in both, as for `snapshot --at` [default: the peak of recordings, the end of snapshots]
    #[arg(long, value_name = "MOMENT")]
    pub(crate) at: Option<Moment>,
    /// Exit with 85 if NEW uses more than BASE by this much: 2% of what BASE uses, or a size such as 100MiB
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) fail_if_worse: Option<Worse>,
    /// Output format
    #[arg(long, value_enum, default_value_t = DiffFormat::Text)]
    pub(crate) format: DiffFormat,
}

/// How a comparison is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// To read in a terminal.
    Text,
    /// For scripts; `"schema": 1`.
    Json,
    /// One page that works offline.
    Html,
}

/// How much more is worse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Worse {
    /// By more than this fraction of what there was, 0 to 1.
    Part(f64),
    /// By more than so many bytes.
    Bytes(u64),
}

impl std::str::FromStr for Worse {
    type Err = String;

    fn from_str(text: &str) -> Result<Worse, String> {
        let wrong = || format!("\"{text}\" is not an amount; write it as 2% or 100MiB");
        let Some(percent) = text.trim().strip_suffix('%') else {
            return text.parse::<Size>().map(|s| Worse::Bytes(s.0)).map_err(|_| wrong());
        };
        match percent.trim().parse::<f64>() {
            Ok(p) if (0.0..=1e6).contains(&p) => Ok(Worse::Part(p / 100.0)),
            _ => Err(wrong()),
        }
    }
}

/// `strandline export`
#[derive(Args, Debug)]
#[command(override_usage = "strandline export [OPTIONS] --format <FORMAT> [RECORDING]")]
pub(crate) struct Export {
    /// A recording, the folder of a run (also s3://BUCKET/FOLDER), or a snapshot that PyTorch wrote [default: the newest under ./strandline]
    pub(crate) recording: Option<PathBuf>,
    /// The format to write
    #[arg(long, value_enum)]
    pub(crate) format: ExportFormat,
    /// Write to this file instead of stdout; with --format parquet, to this folder or s3://BUCKET/FOLDER
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// With --format parquet: the job's name; required with --share [default: its folder's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// With --format parquet: the version of the code that ran, such as "$(git rev-parse HEAD)"
    #[arg(long, value_name = "TEXT")]
    pub(crate) commit: Option<String>,
    /// With --format parquet: write two more tables: `events` (one row for each event) and `stacks`
    #[arg(long)]
    pub(crate) events: bool,
    /// Rows in a file of the table events, about
    #[arg(long, hide = true, value_name = "ROWS", default_value_t = 1 << 24, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rows_per_file: u64,
    /// The moment whose blocks are exported: end (of the last step), now, peak, oom, step:N or mark:NAME. With --format speedscope, it may be
    /// repeated [default: peak; with speedscope: peak and end]
    #[arg(long, value_name = "MOMENT")]
    pub(crate) at: Vec<Moment>,
    /// With --format folded: count every allocation, including memory that was freed later
    #[arg(long, conflicts_with = "at")]
    pub(crate) allocated: bool,
    /// With --format perfetto: number of source lines with a memory track of their own, the largest first
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) lines: usize,
    /// Replace private names, paths, hosts and arguments with your/file1.py, function1, host1
    #[arg(long)]
    pub(crate) share: bool,
    /// File of findings to ignore (see report --help); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Vec<PathBuf>,
}

/// What an export is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Folded stacks, for flamegraph.pl, inferno and speedscope
    Folded,
    /// A JSON file for speedscope: the memory held at each moment given with --at, and all allocations
    Speedscope,
    /// A compressed profile.proto, for go tool pprof FILE
    Pprof,
    /// Chrome's trace events in JSON, for ui.perfetto.dev: memory, steps, phases, streams and findings over time
    Perfetto,
    /// Tables in Parquet, in a folder, for DuckDB, Polars, Spark: jobs, processes, steps, lines, streams, findings
    Parquet,
}

/// `strandline left`
#[derive(Args, Debug)]
#[command(override_usage = "strandline left [OPTIONS] <RECORDING>")]
pub(crate) struct Left {
    /// A recording; its process may still be running
    pub(crate) recording: PathBuf,
    /// Which region, by its name; without this, the recording's regions are listed. A region goes from the last
    /// strandline.mark("NAME begin") to mark("NAME end"). To leave a part out, call
    /// mark("NAME skip") before it and mark("NAME count") after it. A `with strandline.watch_region():` block is "strandline region 0"; one inside it is "strandline region 1", and so on
    #[arg(long, value_name = "NAME")]
    pub(crate) region: Option<String>,
    /// With --format json: also print which lines held the memory at the region's peak
    #[arg(long)]
    pub(crate) peak: bool,
    /// With --format json: who keeps what lines allocated, as the Python package has found it; says at which statements. A list of
    /// objects with `file`, `line`, `node` and `scopes`
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) kept_by: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = DumpFormat::Text)]
    pub(crate) format: DumpFormat,
}

/// `strandline dump`
#[derive(Args, Debug)]
pub(crate) struct Dump {
    /// `--known`, which changes nothing here.
    #[command(flatten)]
    pub(crate) unused: Unused,
    /// A recording, or the folder of a run that has only one
    pub(crate) recording: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = DumpFormat::Text)]
    pub(crate) format: DumpFormat,
}

/// How a report is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// To read in a terminal.
    Text,
    /// For scripts; `"schema": 1`.
    Json,
    /// One page, which works offline, with every step, stream and stack.
    Html,
    /// Annotations for GitHub Actions.
    Github,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit's XML, for tools that show test results.
    Junit,
}

/// How events are told, or what a region left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// Lines of text.
    Text,
    /// JSON; of `dump`, one object for each event, one per line.
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_may_be_its_number_alone() {
        assert_eq!(step_only("step:40"), Ok(40));
        assert_eq!(step_only("40"), Ok(40));
        assert!(step_only("peak").is_err() && step_only("-1").is_err());
    }
}
