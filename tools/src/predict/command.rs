//! `strandline predict`: from the options to the exit status.

use super::cards;
use super::peak::peaks;
use super::settled::Follower;
use super::told::Prediction;
use crate::alert::Settings;
use crate::analyze::{self, Suppressions};
use crate::error::{Error, status};
use crate::job::{Job, create_folder};
use crate::run::{self, Library, Plan};
use crate::simulate::Extras;
use crate::size::Size;
use crate::{cli, environment, say, terminal};
use strandline::format::env;
use strandline::report::Process;

/// Memory of the simulated GPU: more than any job asks for, and it costs nothing.
const PLENTY: Size = Size(1 << 40);

/// Runs the command; the result is the exit status: 86 where the job does not fit a card that was asked about.
///
/// # Errors
/// The job could not be started, or failed.
pub(crate) fn main(options: &cli::Predict) -> Result<u8, Error> {
    let simulated = environment::prepare(Extras::None)?;
    let job = Job::new(&options.command, Some(&simulated.python));
    let mut variables = environment::variables(&simulated, Some(PLENTY));
    if let Some(devices) = options.devices {
        variables.push((format!("{}DEVICES", env::SIMULATOR_PREFIX), devices.to_string().into()));
    }
    let folder = create_folder(options.output.as_deref(), &job.name())?;
    let library = Library::place(&folder)?;
    let plan = Plan { job, folder, variables, alerts: Settings::default(), quiet: true };
    let follower = Follower::start(&plan.folder, options.steps.unwrap_or(u32::MAX));
    let outcome = run::execute(&plan, library);
    let why = follower.finish();
    let outcome = outcome?;
    let own = outcome.seen.ended.status();
    if own != 0 && why.is_none() {
        let what = format!(
            "the job failed with status {own} before its memory had settled; its own output is above"
        );
        let hint =
            "what it needs must be installed for the simulated GPU's Python: strandline simulate --python";
        return Err(Error::new(what).hint(hint).status(own));
    }
    if outcome.recordings.is_empty() {
        return Err(Error::new("the job used no GPU memory, so nothing can be predicted"));
    }
    let judged = analyze::judge(&outcome.recordings, None, &Suppressions::default(), None)?;
    let report = analyze::report(&judged, None);
    let steps = report.processes.iter().map(|p| p.replay.steps()).max().unwrap_or(0);
    let grows =
        |p: &Process<'_>| p.findings.iter().filter(|f| f.grows()).map(|f| f.bytes_per_step).sum::<f64>();
    let growth = report.processes.iter().map(grows).fold(0.0, f64::max);
    let cards = if options.gpu.is_empty() { cards::all() } else { options.gpu.clone() };
    let prediction =
        Prediction { peaks: peaks(&judged), cards, steps, ended: why, job: report.job(), growth };
    if options.json {
        say::out(&format!("{:#}\n", prediction.json()));
    } else {
        say::out(&prediction.text(terminal::style_of_stdout()));
    }
    Ok(if options.gpu.is_empty() || prediction.fits_all() { 0 } else { status::DOES_NOT_FIT })
}
