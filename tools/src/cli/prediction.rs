//! Options of commands that run a job on a simulated GPU to learn what it needs.

use crate::trial::{Card, Try, Vary};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// `strandline predict`
#[derive(Args, Debug)]
#[command(override_usage = "strandline predict [OPTIONS] <CMD>...")]
pub(crate) struct Predict {
    /// A card to ask about, by name (h100, rtx4090) or memory (24GiB); may be given several times [default: a table of cards]
    #[arg(long, value_name = "CARD")]
    pub(crate) gpu: Vec<Card>,
    /// Number of GPUs that the job sees
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) devices: Option<u32>,
    /// Try a change as well, and say what it saves: NAME=VALUE for an option of the command, or a new option such as --fp16; may be given several times
    #[arg(long = "try", value_name = "CHANGE", allow_hyphen_values = true)]
    pub(crate) tries: Vec<Try>,
    /// End the job after about N steps, even if its memory still rises; the count is read once a second, so a fast job makes more steps [default: end it when memory has not risen for 50 steps]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) steps: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Where the recording goes (a new folder) [default: strandline/<script>-<date>-<time>]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// The job's command; the simulated GPU's python is added before a .py file or -m MODULE
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// A number of steps.
fn at_least_one(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("at least one step is needed".to_owned()),
        number => number.map_err(|_| "write a whole number, such as 20".to_owned()),
    }
}

const EXAMPLES: &str = "\
Examples:
  strandline fit --gpu 24GiB --vary batch_size=1..64 train.py --batch_size 8
  strandline fit --gpu h100 --vary bs=1..256x2 --vary seq=512,1024,2048 -- train.py -b {bs} -s {seq}

The value replaces {NAME} or {} in the command. If the command has neither, it replaces the
value of the command's option --NAME. If there is no such option, it becomes the value of
the environment variable NAME, which must be set already or have a name in capitals.

Exit status:
  the job's own, if it fails for another reason than memory; otherwise
  0          for each card, some value fits
  86         for at least one card, no value fits
  2          bad usage";

/// `strandline fit`
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = "strandline fit [OPTIONS] --vary <NAME=VALUES> <CMD>...")]
pub(crate) struct Fit {
    /// Values to try: NAME=1..64 (every number), 1..64x2 (doubling), 8..64+8 (in steps of 8), 1,2,4 (a list); may be given several times; the options are then searched one after the other
    #[arg(long, required = true, value_name = "NAME=VALUES")]
    pub(crate) vary: Vec<Vary>,
    /// The card, by name (h100, rtx4090) or memory (24GiB); may be given several times [default: this machine's GPU]
    #[arg(long, value_name = "CARD")]
    pub(crate) gpu: Vec<Card>,
    /// Number of GPUs that the job sees
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) devices: Option<u32>,
    /// End each run after about N steps, even if its memory still rises; the count is read once a second, so a fast job makes more steps [default: end it when memory has not risen for 50 steps]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) steps: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the recording and the output of each run below this new folder [default: they are removed]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// The job's command; the simulated GPU's python is added before a .py file or -m MODULE
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
