//! One attempt: the job on a simulated GPU, ended when its memory has settled, and judged.

use super::cards::{Card, Fits};
use super::peak::{BESIDE, NCCL, Peak, has_ranks, peaks};
use super::settled::{Follower, Why};
use crate::alert::Settings;
use crate::analyze::{self, Suppressions};
use crate::environment;
use crate::error::Error;
use crate::job::{Job, Variable};
use crate::run::{self, Library, Plan};
use crate::size::Size;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use strandline::detect::JobVerdict;
use strandline::format::env;
use strandline::report::Process;

/// Memory of the simulated GPU: more than any job asks for, and it costs nothing.
const PLENTY: Size = Size(1 << 40);

/// Statuses of a job that a person has ended: SIGHUP, SIGINT (Ctrl-C), SIGTERM.
const INTERRUPTED: [u8; 3] = [129, 130, 143];

/// What is run, and how.
#[derive(Default)]
pub(crate) struct Attempt<'a> {
    /// The job, as a person types it.
    pub(crate) command: &'a [OsString],
    /// More variables for it.
    pub(crate) variables: Vec<Variable>,
    /// The new folder that its recordings go to.
    pub(crate) folder: PathBuf,
    /// GPUs that it sees; `None`: one.
    pub(crate) devices: Option<u32>,
    /// Steps after which it is ended; `None`: when its memory has settled.
    pub(crate) steps: Option<u32>,
    /// Memory of each GPU; `None`: more than any job asks for.
    pub(crate) memory: Option<Size>,
    /// The cards that it is asked about.
    pub(crate) cards: &'a [Card],
    /// Where what it prints goes; `None`: where ours goes.
    pub(crate) output: Option<File>,
}

/// What a job needed.
pub(crate) struct Needs {
    /// The devices that its processes used, the fullest first.
    pub(crate) peaks: Vec<Peak>,
    pub(crate) steps: u32,
    /// What those are: steps, iterations or seconds.
    pub(crate) noun: &'static str,
    /// Why the job was ended; `None`: it ended by itself.
    pub(crate) ended: Option<Why>,
    /// The word on leaks.
    pub(crate) job: JobVerdict,
    /// Bytes that every step adds, of the process that grows fastest; 0: nothing grows.
    pub(crate) growth: f64,
    /// The compute capability that was simulated.
    pub(crate) capability: String,
    /// After how many steps in all it fills cards, by their bytes, as a report of the job on such a card says.
    full_after: BTreeMap<u64, u64>,
}

/// How an attempt ended.
pub(crate) enum Tried {
    /// With a peak.
    Needs(Needs),
    /// Before its memory had settled.
    Failed {
        /// The job's own.
        status: u8,
        /// The recording says that it ended because an allocation failed.
        out_of_memory: bool,
    },
    /// It used no GPU memory.
    Unused,
}

impl Needs {
    /// The highest peak of all devices: allocated and reserved.
    pub(crate) fn most(&self) -> (u64, u64) {
        let most = |of: fn(&Peak) -> u64| self.peaks.iter().map(of).max().unwrap_or(0);
        (most(|p| p.allocated), most(|p| p.reserved))
    }

    /// What the CUDA context, kernels and libraries take of a card.
    pub(crate) fn libraries(&self) -> u64 {
        BESIDE + if has_ranks(&self.peaks) { NCCL } else { 0 }
    }

    /// Bytes of DDP's first buckets, which may be there beside the peak.
    pub(crate) fn first_buckets(&self) -> u64 {
        self.peaks.iter().map(|p| p.first_buckets).max().unwrap_or(0)
    }

    /// What a card must have beside what PyTorch reserves in the prediction.
    pub(crate) fn beside(&self) -> u64 {
        self.libraries().saturating_add(self.first_buckets())
    }

    /// What a card must have: all that is reserved, and what may be there beside it.
    pub(crate) fn bytes(&self) -> u64 {
        self.most().1.saturating_add(self.beside())
    }

    /// Whether it fits a card.
    pub(crate) fn fits(&self, card: &Card) -> Fits {
        let (allocated, reserved) = self.most();
        card.fits(allocated, reserved, self.beside())
    }

    /// Steps after which a card is full that it fits at first.
    pub(crate) fn full_after(&self, card: &Card) -> Option<u64> {
        let fits = matches!(self.fits(card), Fits::Yes(_));
        self.full_after.get(&card.bytes).copied().filter(|_| fits)
    }

    /// Why there are no more steps, in a word for programs.
    pub(crate) fn ended(&self) -> &'static str {
        self.ended.map_or("exit", Why::name)
    }
}

/// Whether a job that has failed ended because an allocation failed. What cannot be read says nothing.
fn ran_out(outcome: &run::Outcome) -> bool {
    let judged = analyze::judge(&outcome.recordings, Some(&outcome.seen), &Suppressions::default(), None)
        .unwrap_or_default();
    judged
        .iter()
        .map(|judged| &judged.replay)
        .any(|r| r.devices().any(|d| d.ooms.last().is_some_and(|o| !r.lived_on(d.id, o))))
}

/// Runs a job until its memory has settled.
///
/// # Errors
/// It could not be started, or what it recorded cannot be read; somebody ended it, with the status that this gives.
pub(crate) fn attempt(simulated: &Path, attempt: Attempt<'_>) -> Result<Tried, Error> {
    let mut variables = environment::variables(simulated, Some(attempt.memory.unwrap_or(PLENTY)));
    if let Some(devices) = attempt.devices {
        variables.push((format!("{}DEVICES", env::SIMULATOR_PREFIX), devices.to_string().into()));
    }
    let name = format!("{}CC", env::SIMULATOR_PREFIX);
    let capability = std::env::var(&name).unwrap_or_else(|_| Card::capability(attempt.cards).to_owned());
    variables.push((name, capability.clone().into()));
    variables.extend(attempt.variables);
    let job = Job::new(attempt.command, Some(simulated));
    let library = Library::place(&attempt.folder)?;
    let (folder, output, alerts) = (attempt.folder, attempt.output, Settings::default());
    let plan = Plan { job, folder, variables, alerts, ship: None, quiet: true, output, lets_go: false };
    let follower = Follower::start(&plan.folder, attempt.steps.unwrap_or(u32::MAX));
    let outcome = run::execute(&plan, library);
    let why = follower.finish();
    let outcome = outcome?;
    let own = outcome.seen.ended.status();
    if own != 0 && why.is_none() {
        if INTERRUPTED.contains(&own) {
            let what = format!("the job was ended from outside (status {own}), so nothing more is tried");
            return Err(Error::new(what).status(own));
        }
        let out_of_memory = ran_out(&outcome);
        return Ok(Tried::Failed { status: own, out_of_memory });
    }
    if outcome.recordings.is_empty() {
        return Ok(Tried::Unused);
    }
    let mut judged = analyze::judge(&outcome.recordings, None, &Suppressions::default(), None)?;
    let report = analyze::report(&judged, None);
    let longest = report.processes.iter().map(|p| p.replay).max_by_key(|r| r.steps());
    let (steps, noun) = longest.map_or((0, "step"), |r| (r.steps(), r.step_source().noun()));
    let grows =
        |p: &Process<'_>| p.findings.iter().filter(|f| f.grows()).map(|f| f.bytes_per_step).sum::<f64>();
    let growth = report.processes.iter().map(grows).fold(0.0, f64::max);
    let (job, peaks, full_after) = (report.job(), peaks(&judged)?, BTreeMap::new());
    let mut needs = Needs { peaks, steps, noun, ended: why, job, growth, capability, full_after };
    for card in attempt.cards.iter().filter(|_| growth >= 1.0) {
        let usable = card.bytes.saturating_sub(needs.beside());
        let soonest = judged.iter_mut().filter_map(|j| j.full_after(usable)).min();
        needs.full_after.extend(soonest.map(|n| (card.bytes, n)));
    }
    Ok(Tried::Needs(needs))
}
