//! What a recording is told to be: options of `run`, `env` and `watch`.

use super::gate::{Gate, Unused};
use crate::alert::Alerts;
use crate::ship;
use crate::size::{self, Size};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use strandline::format::env;

/// `strandline run`
#[derive(Args, Debug)]
#[command(override_usage = "strandline run [OPTIONS] <CMD>...")]
pub(crate) struct Run {
    /// Where the recording goes (a new folder) [default: strandline/<script>-<date>-<time>]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// What is recorded.
    #[command(flatten)]
    pub(crate) recorded: Recorded,
    /// Which findings count, and whether they fail the command.
    #[command(flatten)]
    pub(crate) gate: Gate,
    /// Run on a simulated GPU with this much memory, such as 24GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_at_least_one_mib)]
    pub(crate) simulate: Option<Size>,
    /// When to alert, and what to do then.
    #[command(flatten)]
    pub(crate) alerts: Alerts,
    /// Where recordings are sent while the job runs.
    #[command(flatten)]
    pub(crate) shipping: ship::Options,
    /// Print only failures, leaks and growth
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The job's command; python is added before a .py file or -m MODULE
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What is recorded: the same for `run` and `env`.
#[derive(Args, Debug)]
pub(crate) struct Recorded {
    /// Which stacks to record with each allocation [default: python]
    #[arg(long, value_enum)]
    pub(crate) stacks: Option<Stacks>,
    /// What a step is: auto (optimizer steps, else backward passes), manual (the job calls strandline.step()), every:SECONDS, or nvtx:NAME, the NVTX range of that name [default: auto]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) steps: Option<Steps>,
    /// Maximum recording size per process [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_at_least_one_mib)]
    pub(crate) max_size: Option<Size>,
}

impl Recorded {
    /// As the preload reads it.
    pub(crate) fn as_env(&self) -> impl Iterator<Item = (&'static str, String)> {
        let stacks = self.stacks.and_then(|s| Some((env::STACKS, s.to_possible_value()?.get_name().into())));
        let steps = self.steps.as_ref().map(|s| (env::STEPS, s.0.clone()));
        let size = self.max_size.map(|s| (env::MAX_SIZE, s.0.to_string()));
        stacks.into_iter().chain(steps).chain(size)
    }

    /// Whether a step is a range of NVTX, which is to load our library then.
    pub(crate) fn listens_to_nvtx(&self) -> bool {
        self.steps.as_ref().is_some_and(|s| s.0.starts_with("nvtx:"))
    }
}

/// `strandline env`
#[derive(Args, Debug)]
pub(crate) struct Env {
    /// `--known`, which changes nothing here.
    #[command(flatten)]
    pub(crate) unused: Unused,
    /// Which program reads the variables
    #[arg(long, value_enum, default_value_t = EnvFormat::Sh)]
    pub(crate) format: EnvFormat,
    /// Where the recordings go [default: strandline/<date>-<time>]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// What is recorded.
    #[command(flatten)]
    pub(crate) recorded: Recorded,
}

/// What reads the variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// A shell: eval "$(strandline env)"
    Sh,
    /// Ray: --runtime-env-json "$(strandline env --format ray)"
    Ray,
    /// DeepSpeed on several nodes: the file ~/.deepspeed_env
    Deepspeed,
    /// Kubernetes: a container's env list
    K8s,
    /// Docker and Podman: docker run $(strandline env --format docker) IMAGE ...
    Docker,
    /// Apptainer and Singularity: apptainer exec $(strandline env --format apptainer) IMAGE ...
    Apptainer,
}

/// `strandline watch`
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// The folder of the job's recordings [default: the newest under ./strandline]
    pub(crate) folder: Option<PathBuf>,
    /// When to alert, and what to do then.
    #[command(flatten)]
    pub(crate) alerts: Alerts,
    /// File of findings to ignore (see report --help); may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Vec<PathBuf>,
    /// Where recordings are sent while the job runs.
    #[command(flatten)]
    pub(crate) shipping: ship::Options,
    /// As a job starts it for itself: the only one of this folder, and its lines go to a file there
    #[arg(long, hide = true, requires = "folder")]
    pub(crate) background: bool,
}

/// Which stacks are recorded: the preload reads the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stacks {
    /// Python frames.
    Python,
    /// C and C++ frames.
    Native,
    /// Python and native frames.
    Both,
    /// No stacks.
    None,
}

/// What a step is, as the preload reads it: `auto` (optimizer steps, else backward passes), `manual` (`strandline_step(n)` in the
/// job), `every:SECONDS`, or `nvtx:NAME` (NVTX ranges of this name).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steps(String);

impl std::str::FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Steps, String> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        let is_one = match word {
            "auto" | "manual" => rest.is_empty(),
            "every" => rest.parse().is_ok_and(|n| (0.01..=86_400.0).contains(&n)),
            "nvtx" => !rest.is_empty(),
            _ => false,
        };
        let wrong = "write auto, manual, every:SECONDS (0.01 to 86400) or nvtx:NAME";
        is_one.then(|| Steps(if rest.is_empty() { word } else { text }.into())).ok_or(wrong.into())
    }
}
