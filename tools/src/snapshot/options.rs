//! Which snapshot is asked for: options of `strandline snapshot`.

use crate::analyze::Moment;
use crate::size::Size;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;

/// `strandline snapshot`
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    /// A recording, the folder of a run, or the pid of a recorded process [default: the newest under ./strandline]
    #[arg(value_name = "REC|PID")]
    pub(crate) recording: Option<PathBuf>,
    /// Where to write the snapshot [default: beside the recording]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The moment that is shown: end (of the last step), now (the last event), peak, oom (the first failed allocation), step:N or mark:NAME [default: end]
    #[arg(long, value_name = "MOMENT")]
    pub(crate) at: Option<Moment>,
    /// Only the history of this many steps before the moment that is shown
    #[arg(long, value_name = "STEPS", conflicts_with = "steps", value_parser = how_many)]
    pub(crate) history: Option<u32>,
    /// Only the history of these steps: 10..20, 10.. or 10
    #[arg(long, value_name = "A..B")]
    pub(crate) steps: Option<Steps>,
    /// The rank to show, if the run has several
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u32>,
    /// Only blocks of this stream: its number, its handle (0x...), `default`, or `side` for all others
    #[arg(long, value_name = "S")]
    pub(crate) stream: Option<String>,
    /// Only blocks with this text in a stack frame; a frame looks like train.py:14 Trainer.step
    #[arg(long, value_name = "TEXT")]
    pub(crate) site: Option<String>,
    /// Only blocks for which at least this much was requested
    #[arg(long, value_name = "SIZE")]
    pub(crate) min_size: Option<Size>,
    /// Only blocks that live for at least this many steps
    #[arg(long, value_name = "STEPS")]
    pub(crate) min_age: Option<u32>,
    /// Format of the snapshot
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Write the snapshot even if it is too large for memory_viz
    #[arg(long)]
    pub(crate) any_size: bool,
}

impl Options {
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
pub(crate) enum Format {
    /// As PyTorch writes it; every tool that opens snapshots opens it.
    #[default]
    Pickle,
    /// For other programs; newer versions of memory_viz read it too.
    Json,
}

/// A range of steps: `A..B` with both ends, `A..`, or one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The first.
    pub(crate) from: u32,
    /// The last; `None`: up to the moment that is shown.
    pub(crate) to: Option<u32>,
}

fn how_many(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "write a number of steps, or use --steps A..B")
}

impl FromStr for Steps {
    type Err = String;

    fn from_str(text: &str) -> Result<Steps, String> {
        let number =
            |t: &str| t.parse().ok().filter(|&n: &u32| n > 0).ok_or("write it like 10..20, 10.. or 10");
        let range = match text.split_once("..") {
            Some((from, "")) => Steps { from: number(from)?, to: None },
            Some((from, to)) => Steps { from: number(from)?, to: Some(number(to)?) },
            None => Steps { from: number(text)?, to: Some(number(text)?) },
        };
        match range.to {
            Some(to) if to < range.from => Err("the last step comes before the first".into()),
            _ => Ok(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_steps_are_read() {
        let read = |text: &str| text.parse::<Steps>();
        assert_eq!(read("3..7"), Ok(Steps { from: 3, to: Some(7) }));
        assert_eq!(read("3.."), Ok(Steps { from: 3, to: None }));
        assert_eq!(read("3"), Ok(Steps { from: 3, to: Some(3) }));
        assert!(how_many("5..2").is_err_and(|e| e.contains("--steps A..B")) && how_many("5") == Ok(5));
        for wrong in ["", "..", "..4", "0..4", "7..3", "a..b"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
