//! The runs of a job with one value after the other; each value runs once.

use super::search::Point;
use crate::error::Error;
use crate::job::Variable;
use crate::size::Size;
use crate::trial::{Attempt, Card, Fits, Needs, Place, Tried, aside};
use crate::{cli, files, say};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use strandline::report::size;

/// A run that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) value: u64,
    pub(super) status: u8,
    /// The last lines that it printed.
    pub(super) lines: Vec<String>,
}

/// Why there is no answer.
pub(super) enum Stop {
    Failed(Failure),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

/// What one name's values need.
pub(super) struct Runs<'a> {
    pub(super) simulated: &'a Path,
    pub(super) options: &'a cli::Fit,
    pub(super) cards: &'a [Card],
    /// Each run has a folder in it.
    pub(super) folder: &'a Path,
    pub(super) name: &'a str,
    pub(super) place: &'a Place,
    /// The command and the variables, with the other names' values in them.
    pub(super) command: &'a [OsString],
    pub(super) variables: &'a [Variable],
    /// By value.
    pub(super) needs: BTreeMap<u64, Needs>,
    /// Whether a job that is tight on a card went through on it, by value and the card's memory.
    pub(super) went_through: BTreeMap<(u64, u64), bool>,
}

/// Whether an attempt on a card's own size went through: it did not only where the job ran out of memory.
///
/// # Errors
/// The status of a job that failed of something else; `None` where it used no GPU memory.
fn went_through(tried: &Tried) -> Result<bool, Option<u8>> {
    match tried {
        Tried::Needs(_) => Ok(true),
        Tried::Failed { out_of_memory: true, .. } => Ok(false),
        Tried::Failed { status, .. } => Err(Some(*status)),
        Tried::Unused => Err(None),
    }
}

impl Runs<'_> {
    /// Runs the job with a value, if it has not yet.
    ///
    /// # Errors
    /// It failed, it could not be started, or it used no GPU memory.
    pub(super) fn run(&mut self, value: u64) -> Result<(), Stop> {
        if self.needs.contains_key(&value) {
            return Ok(());
        }
        let folder = self.folder.join(format!("{}-{value}", files::escaped(self.name)));
        let (tried, lines) = self.start(value, &folder, None)?;
        match tried {
            Tried::Needs(needs) => {
                say::line(format!("{}={value} needs {}", self.name, size(needs.bytes())));
                self.needs.insert(value, needs);
                Ok(())
            }
            Tried::Failed { status, .. } => Err(Stop::Failed(Failure { value, status, lines })),
            Tried::Unused => Err(self.unused(value)),
        }
    }

    /// Nothing was seen of a job with a value.
    fn unused(&self, value: u64) -> Stop {
        let name = self.name;
        let what = format!("with {name}={value} the job used no GPU memory, so nothing can be predicted");
        Stop::Error(Error::new(what))
    }

    /// Whether the job fits a card with a value. Where it fits only if PyTorch gives cached memory back in time, it runs on a simulated
    /// GPU of that card's size.
    ///
    /// # Errors
    /// As [`Runs::run`].
    pub(super) fn look(&mut self, value: u64, card: &Card) -> Result<Point, Stop> {
        self.run(value)?;
        let Some(needs) = self.needs.get(&value) else { return Ok(Point { fits: false, needs: u64::MAX }) };
        let bytes = needs.bytes();
        let fits = match needs.fits(card) {
            Fits::Yes(_) => true,
            Fits::No(_) => false,
            Fits::Tight(_) => match self.went_through.get(&(value, card.bytes)) {
                Some(known) => *known,
                None => {
                    let folder =
                        self.folder.join(format!("{}-{value}-on-{}", files::escaped(self.name), card.bytes));
                    let (tried, lines) =
                        self.start(value, &folder, Some(Size(card.bytes.saturating_sub(needs.beside()))))?;
                    let through = went_through(&tried).map_err(|status| match status {
                        Some(status) => Stop::Failed(Failure { value, status, lines }),
                        None => self.unused(value),
                    })?;
                    let word = if through { "runs" } else { "runs out of memory" };
                    say::line(format!(
                        "{}={value} {word} on a simulated card of {}",
                        self.name,
                        size(card.bytes)
                    ));
                    self.went_through.insert((value, card.bytes), through);
                    through
                }
            },
        };
        Ok(Point { fits, needs: bytes })
    }

    /// Runs the job.
    fn start(&self, value: u64, folder: &Path, memory: Option<Size>) -> Result<(Tried, Vec<String>), Error> {
        let (mut command, mut variables) = (self.command.to_vec(), self.variables.to_vec());
        self.place.put(&value.to_string(), &mut command, &mut variables);
        let attempt = Attempt {
            command: &command,
            variables,
            folder: folder.to_path_buf(),
            devices: self.options.devices,
            steps: self.options.steps,
            memory,
            cards: self.cards,
            output: None,
        };
        aside(self.simulated, attempt, self.options.output.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_that_ran_out_of_memory_does_not_go_through() {
        let failed = |status, out_of_memory| went_through(&Tried::Failed { status, out_of_memory });
        assert_eq!(failed(1, true), Ok(false));
        assert_eq!(failed(1, false), Err(Some(1)), "a full disk says nothing of the card");
        assert_eq!(went_through(&Tried::Unused), Err(None));
    }
}
