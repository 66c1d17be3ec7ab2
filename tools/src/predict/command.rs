//! `strandline predict`: from the options to the exit status.

use super::prediction::Prediction;
use super::tried;
use crate::error::{Error, status};
use crate::job::{Job, create_folder, script_is_there};
use crate::trial::{Attempt, Tried, all_cards, attempt};
use crate::{cli, environment, say, terminal};

/// Runs the command; the result is the exit status: 86 where the job does not fit a card that was asked about.
///
/// # Errors
/// The job could not be started, or failed; a change that is to be tried has no place in the command.
pub(crate) fn main(options: &cli::Predict) -> Result<u8, Error> {
    // What cannot be tried is told before anything runs.
    for change in &options.tries {
        change.make(&mut options.command.clone(), &mut Vec::new())?;
    }
    script_is_there(&options.command)?;
    let cards = if options.gpu.is_empty() { all_cards() } else { options.gpu.clone() };
    let simulated = environment::prepare()?;
    let name = Job::new(&options.command, Some(&simulated)).name();
    let tried = attempt(
        &simulated,
        Attempt {
            command: &options.command,
            folder: create_folder(options.output.as_deref(), &name)?,
            devices: options.devices,
            steps: options.steps,
            cards: &cards,
            ..Attempt::default()
        },
    )?;
    let needs = match tried {
        Tried::Needs(needs) => needs,
        Tried::Failed { status: own, .. } => {
            let what = format!(
                "the job failed with status {own}, so there is no prediction; see its own output above"
            );
            let hint = "to install a missing module: $(strandline simulate --python) -m pip install NAME";
            return Err(Error::new(what).hint(hint).status(own));
        }
        Tried::Unused => return Err(Error::new("the job used no GPU memory, so nothing can be predicted")),
    };
    let changes = tried::all(options, &simulated, &cards)?;
    let prediction = Prediction { needs, cards, changes };
    if options.json {
        say::out(&format!("{:#}\n", prediction.json()));
    } else {
        say::out(&prediction.text(terminal::style_of_stdout()));
    }
    Ok(if options.gpu.is_empty() || prediction.fits_all() { 0 } else { status::DOES_NOT_FIT })
}
