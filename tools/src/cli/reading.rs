//! What is read of a recording: options of `report`, `snapshot`, `diff`, `dump` and `top`.

use super::gate::Gate;
use crate::analyze::Moment;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `strandline top`
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// A recording, the folder of a run, or the pid of a recorded process [default: this user's running jobs]
    #[arg(value_name = "DIR|REC|PID")]
    pub(crate) recording: Option<PathBuf>,
    /// Findings that do not count: leak:PATTERN or growing:PATTERN a line, as for report; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Vec<PathBuf>,
}

/// `strandline report`
#[derive(Args, Debug)]
pub(crate) struct Report {
    /// A recording, the folder of a run, or a snapshot that PyTorch wrote [default: the newest under ./strandline]
    pub(crate) recording: Option<PathBuf>,
    /// How to tell it
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Write the page of --format html, to this file or beside the recording
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = ".",
          conflicts_with_all = ["format", "output"])]
    pub(crate) html: Option<PathBuf>,
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Judge it as it stood at the end of a step: step:N
    #[arg(long, value_name = "step:N", value_parser = step_only, conflicts_with = "html")]
    pub(crate) at: Option<u32>,
    /// For a bug report: names, paths, hosts and arguments of your own become your/file1.py, function1, host1
    #[arg(long)]
    pub(crate) share: bool,
    /// Which findings count, and whether they fail the command.
    #[command(flatten)]
    pub(crate) gate: Gate,
}

/// A step, of the moments that a snapshot can show.
fn step_only(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(Moment::Step(n)) => Ok(n),
        _ => Err("write it like step:40".into()),
    }
}

/// `strandline diff`
#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// A recording, or a snapshot that PyTorch or strandline wrote
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,
    /// What is compared with it
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// The moment in both: as for `snapshot` [default: the peak of recordings, the end of snapshots]
    #[arg(long, value_name = "MOMENT")]
    pub(crate) at: Option<Moment>,
    /// How to tell it
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
}

/// `strandline left`
#[derive(Args, Debug)]
pub(crate) struct Left {
    /// A recording, also of a process that still runs
    pub(crate) recording: PathBuf,
    /// The region: what lies between the last marks "NAME begin" and "NAME end", less what lies between "NAME skip" and "NAME count"
    #[arg(long, value_name = "NAME")]
    pub(crate) region: String,
    /// With --format json: which lines held the memory at the region's peak
    #[arg(long)]
    pub(crate) peak: bool,
    /// How to tell it
    #[arg(long, value_enum, default_value_t = DumpFormat::Text)]
    pub(crate) format: DumpFormat,
}

/// `strandline dump`
#[derive(Args, Debug)]
pub(crate) struct Dump {
    /// A recording, or the folder of a run with one
    pub(crate) recording: PathBuf,
    /// How to tell it
    #[arg(long, value_enum, default_value_t = DumpFormat::Text)]
    pub(crate) format: DumpFormat,
}

/// How a report is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For a person.
    Text,
    /// For a program; `"schema": 1`.
    Json,
    /// One page with every step, stream and stack, which needs no network.
    Html,
}

/// How events, and what is left of them, are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// `key=value`, for grep.
    Text,
    /// JSON; of events one object a line.
    Json,
}
