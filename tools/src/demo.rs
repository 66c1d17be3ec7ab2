//! `strandline demo`: a real PyTorch job that really leaks, found. On the GPU where this python's torch has one, else on
//! the simulated device, which is set up on the first run.

use crate::alert::Settings;
use crate::analyze::Suppressions;
use crate::error::Error;
use crate::job::{self, Job, Variable};
use crate::run::{self, Library, Plan};
use crate::size::Size;
use crate::{cli, environment, files, probe, say, simulate, snapshot};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use strandline::detect::Outcome;

/// The job; it lies in the recording's folder afterwards, so that the reader of the report can open it.
const TRAIN: &str = include_str!("../demo/train.py");
/// The version that leaks; 1.4.0 has the fix.
const TRL: &str = "1.3.0";
/// The card that the job is shown where there is none: small enough that the leak matters.
const CARD: Size = Size(8 << 30);

const STORY: &str = "\
strandline: this shows a real leak: a small vision-language model is trained with TRL 1.3.0's
            activation offloading, which leaves memory behind in each step
            (huggingface/trl#5700). The code of the job and of TRL is not changed.
";

/// Runs the command; the result is the exit status: 0 where the leak was found.
///
/// # Errors
/// Something that the demonstration needs could not be had.
pub(crate) fn main(options: &cli::Demo) -> Result<u8, Error> {
    say::raw(STORY);
    let stage = Stage::set(options.simulated)?;
    let trl = wheel(&stage.python)?;
    let folder = job::create_folder(options.output.as_deref(), "demo")?;
    let library = Library::place(&folder)?;
    let script = folder.join("train.py");
    files::write(&script, TRAIN.as_bytes()).map_err(|e| Error::io("cannot write", &script, e))?;
    let words = [OsString::from(&script), trl.into()];
    let plan = Plan {
        job: Job::new(&words, Some(&stage.python)),
        folder,
        variables: stage.variables,
        alerts: Settings::default(),
        ship: None,
        quiet: false,
        output: None,
        lets_go: false,
    };
    say::line(format!("running the demo on {}", stage.name));
    let outcome = run::execute(&plan, library)?;
    let Some(conclusion) = run::conclude(&plan, &outcome, false, None, &Suppressions::default()) else {
        return Err(Error::new("the demo made no recording").hint("to see what is wrong: strandline doctor"));
    };
    if outcome.seen.ended.status() != 0 {
        let what =
            format!("the job failed with status {}; its own output is above", outcome.seen.ended.status());
        return Err(Error::new(what).hint("without a real GPU: strandline demo --simulated"));
    }
    if let Some(recording) = outcome.recordings.first() {
        snapshot::make_and_tell(recording, &snapshot::Options::default())?;
    }
    if conclusion.outcome == Outcome::Leak {
        say::line("for your own job: strandline run train.py");
    } else {
        return Err(Error::new("the leak was not found; please report this")
            .hint("strandline doctor says what is missing"));
    }
    Ok(0)
}

/// Where the job runs.
struct Stage {
    name: String,
    python: PathBuf,
    variables: Vec<Variable>,
}

impl Stage {
    fn set(simulated: bool) -> Result<Stage, Error> {
        if let (false, Some((python, name))) = (simulated, real()) {
            return Ok(Stage { name, python, variables: Vec::new() });
        }
        let python = environment::prepare()?;
        let variables = environment::variables(&python, Some(CARD));
        let size = strandline::report::size(CARD.0);
        let name = format!(
            "a simulated GPU of {size}: computed values are meaningless, memory use is as on a real one"
        );
        Ok(Stage { name, python, variables })
    }
}

/// The python of this environment and its GPU, if its torch has one.
fn real() -> Option<(PathBuf, String)> {
    if !probe::has_device() {
        return None;
    }
    let python = ["python", "python3"].iter().find_map(|name| job::find(name.as_ref()))?;
    let name = probe::ask(
        &python,
        "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')",
    )?;
    let name = name.trim();
    (!name.is_empty()).then(|| (python, name.to_string()))
}

/// TRL's wheel, unpacked: a folder to import from. It is called `site-packages`, which is what it is, so that its lines
/// are not taken for the user's.
fn wheel(python: &Path) -> Result<PathBuf, Error> {
    let cache = environment::cache()?;
    let fail = |e: String| Error::new(format!("TRL {TRL} cannot be installed: {e}"));
    let wheels = simulate::wheels(&cache, python, &[TRL]).map_err(fail)?;
    let folder = cache.join(format!("trl-{TRL}")).join("site-packages");
    if folder.join("trl/models/activation_offloading.py").exists() {
        return Ok(folder);
    }
    let wheel = wheels.join(format!("trl-{TRL}-py3-none-any.whl"));
    let part = cache.join(format!("trl-{TRL}")).join(format!(".part-{}", std::process::id()));
    files::make_folder(&part).map_err(|e| Error::io("cannot create", &part, e))?;
    let mut unpack = std::process::Command::new(python);
    unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&part);
    let output = unpack.output().map_err(|e| Error::io("cannot start", python, e))?;
    if !output.status.success() {
        return Err(fail(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    // Somebody else may have been faster: then what is there is the same.
    if fs::rename(&part, &folder).is_err() {
        let _ = fs::remove_dir_all(&part);
    }
    Ok(folder)
}
