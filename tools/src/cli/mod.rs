//! The command line. Names, meanings and exit statuses are a contract; what does not work yet is absent.

#[cfg(test)]
#[path = "tests/documented.rs"]
mod documented;
mod gate;
mod prediction;
mod reading;
mod recording;

use crate::size::{self, Size};
use crate::snapshot::Options as Snapshot;
use clap::{Arg, Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use gate::Unused;
pub(crate) use prediction::{Fit, Predict};
pub(crate) use reading::{
    Advise, Diff, DiffFormat, Dump, DumpFormat, Export, ExportFormat, Left, LinksTo, Report, ReportFormat,
    Top, Worse,
};
pub(crate) use recording::{Env, EnvFormat, Recorded, Run, Watch};
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  strandline run train.py --epochs 3             record the job, report when it ends
  strandline run torchrun --nproc-per-node 4 train.py
  strandline report                              the newest recording again
  strandline run --fail-on-leak -- pytest tests/gpu
  strandline run --simulate 24GiB train.py       no GPU: PyTorch's own allocator on a simulated one
  strandline demo                                see a real leak found, in a minute

Exit status of `run`:
  the job's own, if it is not 0 (128+n for signal n); otherwise
  0          success, even with a leak
  2          bad usage
  81         --fail-on-leak: there is a leak
  82         ended by --on-alert abort
  83         --fail-on-leak: TOO SHORT or NOT JUDGED
  84         --fail-on-leak: memory grows
  126        the job cannot be executed
  127        the job is not found";

/// Of `--known`, whose keys `docs/known.md` explains.
const KNOWN: &str = "A JSON file of known leaks and their fixes: [{\"known\": NAME, \"kinds\": [KIND], \"files\": [FILE], \"remedy\": TEXT}, ...], where KIND (see docs/findings.md) is step-growth, live-after-stream-exit, pool-growth, pinned-growth, outside-growth, deferred-free, stranded-cache, fragmentation or cycle-garbage; may be given several times";

/// Finds GPU memory leaks in a PyTorch job without changing its code.
#[derive(Parser, Debug)]
#[command(name = "strandline", version = version(), after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Files of known leaks and their fixes.
    #[arg(long, global = true, value_name = "FILE", help = KNOWN)]
    pub(crate) known: Vec<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a job, record it, and report when it ends
    Run(Run),
    /// Send alerts for a job that was not started with `strandline run`
    Watch(Watch),
    /// Show running jobs live in the terminal
    Top(Top),
    /// Judge a recording and print the report
    Report(Report),
    /// Write a snapshot for pytorch.org/memory_viz from a recording
    Snapshot(Snapshot),
    /// List changes that would lower the peak of a recorded job, and by how much
    Advise(Advise),
    /// Compare the memory of two runs or snapshots, by line of the program
    Diff(Diff),
    /// Convert a recording for other tools: flame graphs, speedscope, pprof, Perfetto
    Export(Export),
    /// List the memory that a `with strandline.watch_region():` block or a `%%strandline` notebook cell left allocated, by line
    Left(Left),
    /// Print a recording's events as text, one event per line
    Dump(Dump),
    /// Print the environment variables that `run` sets, for a job that you cannot start with `strandline run`
    Env(Env),
    /// Check whether this job can be recorded, and say why if it cannot
    Doctor(Doctor),
    /// Say how much GPU memory a job will need and which cards it fits, without a GPU
    Predict(Predict),
    /// Find the largest batch size, or value of another option, that fits a card; needs no GPU
    Fit(Fit),
    /// Record a real PyTorch job that leaks and show its report (on a simulated GPU if this machine has none)
    Demo(Demo),
    /// Set up PyTorch on a simulated GPU, or run a command with it
    Simulate(Simulate),
    /// Print shell completions: source <(strandline completions bash)
    Completions(Completions),
    /// Print the man page: strandline man | man -l -
    Man(Man),
}

/// `strandline completions`
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// Your shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
    /// `--known`, which changes nothing here.
    #[command(flatten)]
    pub(crate) unused: Unused,
}

/// A shell that completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// source <(strandline completions bash)
    Bash,
    /// Save the output as _strandline in a folder of $fpath
    Zsh,
    /// strandline completions fish | source
    Fish,
}

/// `strandline man`
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The page of one command
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// `--known`, which changes nothing here.
    #[command(flatten)]
    pub(crate) unused: Unused,
}

/// `strandline doctor`
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// `--known`, which changes nothing here.
    #[command(flatten)]
    pub(crate) unused: Unused,
    /// Print only the path of libstrandline.so, for setting LD_PRELOAD by hand
    #[arg(long, conflicts_with = "command")]
    pub(crate) library: bool,
    /// Measure how much memory a CUDA context takes on each GPU, and save the result for reports
    #[arg(long, conflicts_with_all = ["library", "command"])]
    pub(crate) context: bool,
    /// Have a context on this GPU until stdin ends: the process that is measured
    #[arg(long, hide = true, value_name = "GPU")]
    pub(crate) hold_context: Option<i32>,
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
    /// `--known`, which changes nothing here.
    #[command(flatten)]
    pub(crate) unused: Unused,
    /// Install transformers and accelerate as well
    #[arg(long)]
    pub(crate) with_transformers: bool,
    /// Version of PyTorch to install, a CUDA wheel from the package index
    #[arg(long, value_name = "VERSION", default_value = crate::environment::TORCH)]
    pub(crate) torch: String,
    /// Memory of the simulated GPU, such as 24GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_at_least_one_mib)]
    pub(crate) size: Option<Size>,
    /// Print only the path of the python with the simulated GPU
    #[arg(long)]
    pub(crate) python: bool,
    /// A command; `python` in it is the one with the simulated GPU
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

fn version() -> &'static str {
    static TEXT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    TEXT.get_or_init(|| format!("{} ({})", strandline::VERSION, strandline::SOURCE))
}

/// Puts `--` before a `-m` that stands where the job begins, so that `strandline run -m pkg.train` means python's `-m`.
pub(crate) fn normalize(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = arguments.into_iter().collect();
    let cli = Cli::command();
    let with_job = ["run", "doctor", "simulate", "predict", "fit"];
    let name = all.get(1).and_then(|c| c.to_str()).filter(|c| with_job.contains(c));
    let Some(command) = name.and_then(|name| cli.find_subcommand(name)) else { return all };
    // What follows an option that takes a value is not the job.
    let takes_value = |word: &str| {
        let is_it = |a: &&Arg| {
            a.get_long().is_some_and(|name| word == format!("--{name}"))
                || a.get_short().is_some_and(|name| word == format!("-{name}"))
        };
        let option = command.get_arguments().chain(cli.get_arguments()).find(is_it);
        option.is_some_and(|a| a.get_action().takes_values())
    };
    let mut at = 2;
    while let Some(word) = all.get(at).map(|a| a.to_str().unwrap_or_default()) {
        match word {
            "-m" => {
                all.insert(at, "--".into());
                break;
            }
            "--" => break,
            word if takes_value(word) => at += 2,
            word if word.starts_with('-') => at += 1,
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
        assert!(parse("strandline run --max-size 256 train.py").is_err(), "256 bytes");
        assert!(parse("strandline env --max-size 1MiB").is_ok());
        assert!(parse("strandline run --simulate 24 train.py").is_err(), "24 bytes");
        assert!(parse("strandline simulate --size 24").is_err(), "24 bytes");
        assert!(parse("strandline run --allow-inconclusive train.py").is_err(), "means nothing on its own");
        assert!(
            parse("strandline run --allow-growth 1MiB/step train.py").is_err(),
            "means nothing on its own"
        );
        assert!(parse("strandline run --fail-on-leak --allow-growth fast train.py").is_err());
        let gated =
            "strandline run --fail-on-leak --allow-growth 1MiB/step --suppressions a --suppressions b";
        assert_eq!(job(&format!("{gated} -m pkg")), ["-m", "pkg"]);
        assert_eq!(job("strandline run --known a.json -m pkg --known b"), ["-m", "pkg", "--known", "b"]);
        assert!(parse("strandline run --alert-growth fast train.py").is_err());
        assert_eq!(job("strandline run --on-alert exec:x --alert-after 5 -m pkg"), ["-m", "pkg"]);
        assert!(parse("strandline run").is_err());
        assert!(parse("strandline report --html --format json").is_err(), "one form at a time");
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
