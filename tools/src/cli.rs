//! The command line. Names, meanings and exit statuses are a contract; what does not work yet is absent.

use crate::alert::{Action, Threshold};
use crate::metrics::Sink;
use crate::size::Size;
use crate::snapshot::{Moment, Steps as StepRange};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  strandline run train.py --epochs 3             record the job, report when it ends
  strandline run torchrun --nproc-per-node 4 train.py
  strandline report                              the newest recording again
  strandline run --fail-on-leak -- pytest tests/gpu
  strandline run --simulate 24GiB train.py       no GPU: the real allocator on a simulated one
  strandline demo                                see a real leak found, in a minute

Exit status of `run`: the job's own if it is not 0 (128+n for signal n); otherwise 0, with --fail-on-leak
81 (leak) or 83 (could not judge). 82: ended by --on-alert abort. 2: bad usage. 126, 127: as a shell.";

/// What a CUDA stream leaves behind: finds GPU memory leaks in an unmodified PyTorch job.
#[derive(Parser, Debug)]
#[command(name = "strandline", version = version(), after_help = EXAMPLES, max_term_width = 100)]
#[command(disable_help_subcommand = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a job, record it, and report when it ends
    Run(Run),
    /// Alerts for a job that runs without `strandline run` around it
    Watch(Watch),
    /// Running jobs, live, in the terminal
    Top(Top),
    /// The verdicts of a recording
    Report(Report),
    /// A snapshot for pytorch.org/memory_viz out of a recording
    Snapshot(Snapshot),
    /// What is more in one recording or snapshot than in another, line by line
    Diff(Diff),
    /// The events of a recording as text, one a line
    Dump(Dump),
    /// The environment that `run` sets, for where `run` cannot stand before the job
    Env(Env),
    /// Would this job be seen, and if not, why
    Doctor(Doctor),
    /// A real PyTorch job that really leaks, found (on a simulated GPU where there is none)
    Demo(Demo),
    /// PyTorch on a simulated GPU: set it up, or run a command in it
    Simulate(Simulate),
}

/// `strandline run`
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Where the recording goes (a new folder) [default: strandline/<script>-<date>-<time>]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Which stacks to record with each allocation
    #[arg(long, value_enum)]
    pub(crate) stacks: Option<Stacks>,
    /// What a step is: auto, manual (strandline_step() in the job), every:SECONDS, or nvtx:NAME, the NVTX range of that name
    #[arg(long, value_name = "SOURCE")]
    pub(crate) steps: Option<Steps>,
    /// Bound of each process's recording on disk [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<Size>,
    /// End with 81 where the job ended with 0 but leaks, with 83 where that could not be judged
    #[arg(long)]
    pub(crate) fail_on_leak: bool,
    /// With --fail-on-leak: what could not be judged is no failure
    #[arg(long, requires = "fail_on_leak")]
    pub(crate) allow_inconclusive: bool,
    /// Run on a simulated GPU with this much memory, such as 24GiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) simulate: Option<Size>,
    /// When to alert, and what to do then.
    #[command(flatten)]
    pub(crate) alerts: Alerts,
    /// Say nothing but failures and leaks
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The job; a .py file or -m MODULE gets python put before it
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// When to alert, and what to do then.
#[derive(Args, Debug)]
pub(crate) struct Alerts {
    /// Alert on a leak that grows as fast: 50MiB/step, 10MiB/microbatch, 50MiB/min, 1%/100steps
    #[arg(long, value_name = "RATE")]
    pub(crate) alert_growth: Option<Threshold>,
    /// Alert on a leak that fills its GPU within so many steps
    #[arg(long, value_name = "STEPS")]
    pub(crate) alert_oom_within: Option<u64>,
    /// No alert before this step
    #[arg(long, value_name = "STEP")]
    pub(crate) alert_after: Option<u32>,
    /// What to do on an alert: log, snapshot, exec:CMD, webhook:URL, signal:NAME, abort; may be repeated
    #[arg(long, value_name = "ACTION")]
    pub(crate) on_alert: Vec<Action>,
    /// Figures for monitoring while it runs: HOST:PORT (Prometheus), file:PATH, or otlp (pushed); may be repeated
    #[arg(long, value_name = "SINK")]
    pub(crate) metrics: Vec<Sink>,
}

/// `strandline env`
#[derive(Args, Debug)]
pub(crate) struct Env {
    /// Who reads it
    #[arg(long, value_enum, default_value_t = crate::env::Format::Sh)]
    pub(crate) format: crate::env::Format,
    /// Where the recordings go [default: strandline/<date>-<time>]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Which stacks to record with each allocation
    #[arg(long, value_enum)]
    pub(crate) stacks: Option<Stacks>,
    /// What a step is: auto, manual, every:SECONDS, or nvtx:NAME
    #[arg(long, value_name = "SOURCE")]
    pub(crate) steps: Option<Steps>,
    /// Bound of each process's recording on disk [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<Size>,
}

/// `strandline watch`
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// The folder of the job's recordings [default: the newest under ./strandline]
    pub(crate) folder: Option<PathBuf>,
    /// When to alert, and what to do then.
    #[command(flatten)]
    pub(crate) alerts: Alerts,
    /// As a job starts it for itself: the only one of this folder, and its lines go to a file there
    #[arg(long, hide = true, requires = "folder")]
    pub(crate) background: bool,
}

/// `strandline top`
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// A recording, the folder of a run, or the pid of a recorded process [default: this user's running jobs]
    #[arg(value_name = "DIR|REC|PID")]
    pub(crate) recording: Option<PathBuf>,
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
    /// End with 81 where there is a leak, with 83 where it could not be judged
    #[arg(long)]
    pub(crate) fail_on_leak: bool,
    /// With --fail-on-leak: what could not be judged is no failure
    #[arg(long, requires = "fail_on_leak")]
    pub(crate) allow_inconclusive: bool,
}

/// A step, of the moments that a snapshot can show.
fn step_only(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(Moment::Step(n)) => Ok(n),
        _ => Err("write it like step:40".into()),
    }
}

/// `strandline snapshot`
#[derive(Args, Debug, Default)]
pub(crate) struct Snapshot {
    /// A recording, the folder of a run, or the pid of a recorded process [default: the newest under ./strandline]
    #[arg(value_name = "REC|PID")]
    pub(crate) recording: Option<PathBuf>,
    /// Where to write it [default: beside the recording]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The moment that is shown: end, now, peak, oom, step:N or mark:NAME [default: end]
    #[arg(long, value_name = "MOMENT")]
    pub(crate) at: Option<Moment>,
    /// Only the history of the last so many steps before it
    #[arg(long, value_name = "STEPS", conflicts_with = "steps")]
    pub(crate) history: Option<u32>,
    /// Only the history of these steps: 10..20, 10.. or 10
    #[arg(long, value_name = "A..B")]
    pub(crate) steps: Option<StepRange>,
    /// The rank that is shown, where the run has several
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,
    /// Only blocks of this stream: its number, its handle (0x…), default or side
    #[arg(long, value_name = "S")]
    pub(crate) stream: Option<String>,
    /// Only blocks with a frame like this, of file:line function
    #[arg(long, value_name = "TEXT")]
    pub(crate) site: Option<String>,
    /// Only blocks of which at least so much was asked for
    #[arg(long, value_name = "SIZE")]
    pub(crate) min_size: Option<Size>,
    /// Only blocks that live for at least so many steps
    #[arg(long, value_name = "STEPS")]
    pub(crate) min_age: Option<u32>,
    /// How to write it
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: SnapshotFormat,
    /// Write it even where it is too large for memory_viz
    #[arg(long)]
    pub(crate) any_size: bool,
}

impl Snapshot {
    /// The moment that is shown: with a range of steps, the end of the last one.
    pub(crate) fn moment(&self) -> Moment {
        let last = self.steps.and_then(|s| s.to).map(Moment::Step);
        self.at.clone().or(last).unwrap_or(Moment::End)
    }

    /// Some blocks are left out.
    pub(crate) fn is_filtered(&self) -> bool {
        self.stream.is_some() || self.site.is_some() || self.min_size.is_some() || self.min_age.is_some()
    }
}

/// The language of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnapshotFormat {
    /// What PyTorch writes and every reader reads.
    #[default]
    Pickle,
    /// For other programs; newer memory_viz reads it too.
    Json,
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

/// `strandline dump`
#[derive(Args, Debug)]
pub(crate) struct Dump {
    /// A recording, or the folder of a run with one
    pub(crate) recording: PathBuf,
    /// How to tell it
    #[arg(long, value_enum, default_value_t = DumpFormat::Text)]
    pub(crate) format: DumpFormat,
}

/// `strandline doctor`
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print nothing but the path of libstrandline.so, for an LD_PRELOAD by hand
    #[arg(long, conflicts_with = "command")]
    pub(crate) library: bool,
    /// The job, as it would be given to `strandline run`
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `strandline demo`
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Where the recording goes (a new folder) [default: strandline/demo-<date>-<time>]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Use the simulated GPU even where there is a real one
    #[arg(long)]
    pub(crate) simulated: bool,
}

/// `strandline simulate`
#[derive(Args, Debug)]
pub(crate) struct Simulate {
    /// Install transformers and accelerate as well
    #[arg(long)]
    pub(crate) with_transformers: bool,
    /// Version of PyTorch, a CUDA wheel of the package index
    #[arg(long, value_name = "VERSION", default_value = crate::environment::TORCH)]
    pub(crate) torch: String,
    /// Memory of the simulated GPU, such as 24GiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Print nothing but the path of its python
    #[arg(long)]
    pub(crate) python: bool,
    /// A command to run in it; its python is the first on PATH
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Which stacks are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stacks {
    /// Python frames, read without the GIL.
    Python,
    /// Native frames: addresses in the job, functions in the report.
    Native,
    /// Python and native frames.
    Both,
    /// None.
    None,
}

/// What a step is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Steps {
    /// Optimizer steps, else backward passes.
    Auto,
    /// `strandline_step(n)` in the job.
    Manual,
    /// As many seconds, as they were written.
    Every(String),
    /// NVTX ranges of this name.
    Nvtx(String),
}

impl std::str::FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Steps, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("auto", "") => Ok(Steps::Auto),
            ("manual", "") => Ok(Steps::Manual),
            ("every", n) if n.parse().is_ok_and(|n| (0.01..=86_400.0).contains(&n)) => {
                Ok(Steps::Every(n.to_string()))
            }
            ("nvtx", name) if !name.is_empty() => Ok(Steps::Nvtx(name.to_string())),
            _ => Err("auto, manual, every:SECONDS (0.01 to 86400) or nvtx:NAME".to_string()),
        }
    }
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

/// How events are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// `key=value`, for grep.
    Text,
    /// One JSON object a line.
    Json,
}

impl Stacks {
    /// As the preload reads it.
    pub(crate) fn as_env(self) -> &'static str {
        match self {
            Stacks::Python => "python",
            Stacks::Native => "native",
            Stacks::Both => "both",
            Stacks::None => "none",
        }
    }
}

impl Steps {
    /// As the preload reads it.
    pub(crate) fn as_env(&self) -> String {
        match self {
            Steps::Auto => "auto".into(),
            Steps::Manual => "manual".into(),
            Steps::Every(seconds) => format!("every:{seconds}"),
            Steps::Nvtx(name) => format!("nvtx:{name}"),
        }
    }
}

fn version() -> &'static str {
    static TEXT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    TEXT.get_or_init(|| format!("{} ({})", strandline::VERSION, strandline::SOURCE))
}

/// Options of `run` and `doctor` that take a value: what follows them is not the job.
const WITH_VALUE: [&str; 11] = [
    "-o",
    "--output",
    "--stacks",
    "--steps",
    "--max-size",
    "--simulate",
    "--alert-growth",
    "--alert-oom-within",
    "--alert-after",
    "--on-alert",
    "--metrics",
];

/// Puts `--` before a `-m` that stands where the job begins, so that `strandline run -m pkg.train` means python's `-m`.
pub(crate) fn normalize(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = arguments.into_iter().collect();
    let text = |s: &OsStr| s.to_str().unwrap_or_default().to_string();
    if !all.get(1).is_some_and(|c| c == "run" || c == "doctor" || c == "simulate") {
        return all;
    }
    let mut at = 2;
    while let Some(argument) = all.get(at).map(|a| text(a)) {
        match argument.as_str() {
            "-m" => {
                all.insert(at, "--".into());
                break;
            }
            "--" => break,
            a if WITH_VALUE.contains(&a) || ["--size", "--torch"].contains(&a) => at += 2,
            a if a.starts_with('-') => at += 1,
            _ => break,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(normalize(line.split(' ').map(OsString::from)))
    }

    fn job(line: &str) -> Vec<OsString> {
        match parse(line).unwrap().command {
            Command::Run(run) => run.command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_after_the_first_word_of_the_job_is_the_jobs() {
        assert_eq!(job("strandline run train.py --quiet -o x"), ["train.py", "--quiet", "-o", "x"]);
        assert_eq!(job("strandline run --quiet -- --odd"), ["--odd"]);
        assert_eq!(job("strandline run -q -o out -m pkg.train --lr 1"), ["-m", "pkg.train", "--lr", "1"]);
        assert_eq!(job("strandline run python -m pkg"), ["python", "-m", "pkg"]);
    }

    #[test]
    fn a_misspelt_option_is_not_taken_for_the_job() {
        assert!(parse("strandline run --simualte 24GiB train.py").is_err());
        assert!(parse("strandline run --max-size lots train.py").is_err());
        assert!(parse("strandline run --allow-inconclusive train.py").is_err(), "means nothing on its own");
        assert!(parse("strandline run --alert-growth fast train.py").is_err());
        assert_eq!(job("strandline run --on-alert exec:x --alert-after 5 -m pkg"), ["-m", "pkg"]);
        assert!(parse("strandline run").is_err());
        assert!(parse("strandline report --html --format json").is_err(), "one form at a time");
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
