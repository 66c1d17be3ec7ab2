//! Nothing was recorded: why. A tool that stays silent when it was blind is believed to have seen a clean job.

use super::plan::{Outcome, Plan};
use crate::job::{self, Elsewhere, Ended};
use crate::probe::{self, Linkage, Torch};
use crate::{environment, say, words};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use strandline::event::signal_name;
use strandline::format::env;

/// Says that nothing was recorded, why, and what to do.
///
/// `deleted`: what is not there any more though it was made.
pub(super) fn say(plan: &Plan, outcome: &Outcome, deleted: Option<&Path>) {
    let job = &plan.job;
    let failure = outcome.tails.failure().map(str::to_string);
    let facts = Facts { failure, deleted: deleted.map(PathBuf::from), ..Facts::gather(plan, outcome) };
    let (why, next) = reason(&facts);
    let command: Vec<OsString> =
        std::iter::once(job.program.clone()).chain(job.arguments.iter().cloned()).collect();
    let doctor = format!("strandline doctor -- {}", words::quoted(&command));
    tell(&why, &next.unwrap_or(doctor));
}

/// Says it: why, and what to do.
pub(super) fn tell(why: &str, next: &str) {
    say::line(format!("NOTHING RECORDED: {why}"));
    say::raw(&format!("  next  {next}\n"));
}

/// What can be known about a job that made no recording.
#[derive(Debug, Default)]
struct Facts {
    disabled: bool,
    failure: Option<String>,
    deleted: Option<PathBuf>,
    ended: Option<Ended>,
    program: String,
    elsewhere: Option<Elsewhere>,
    hidden: Option<Elsewhere>,
    linkage: Option<Linkage>,
    /// That there is no such script.
    script: Option<String>,
    python: bool,
    torch: Option<Torch>,
    device: bool,
    simulated: bool,
    /// Those packages that its script imports and the simulated GPU's python may lack.
    imports: Vec<&'static str>,
}

/// What a script imports of packages that the simulated GPU's python gets only when asked.
fn imports(command: &[OsString]) -> Vec<&'static str> {
    let script = command.iter().find(|word| Path::new(word).extension().is_some_and(|e| e == "py"));
    let text = script.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let is_imported = |package: &&str| {
        let packages_of = |line| {
            let rest = str::trim_start(line);
            let rest = rest.strip_prefix("import ").or_else(|| rest.strip_prefix("from "))?;
            Some(
                rest.split(',')
                    .filter_map(|one| one.trim().split(|c: char| !c.is_alphanumeric() && c != '_').next()),
            )
        };
        text.lines().filter_map(packages_of).any(|mut all| all.any(|one| one == *package))
    };
    ["transformers", "accelerate", "strandline"].into_iter().filter(is_imported).collect()
}

impl Facts {
    fn gather(plan: &Plan, outcome: &Outcome) -> Facts {
        let job = &plan.job;
        let path = job.find();
        let python = job.is_python();
        Facts {
            disabled: std::env::var_os(env::DISABLE).is_some_and(|v| v == "1"),
            ended: Some(outcome.seen.ended),
            program: Path::new(&job.program).file_name().unwrap_or_default().to_string_lossy().into_owned(),
            elsewhere: job::elsewhere(job, |name| std::env::var(name).ok()),
            hidden: job::hidden(job),
            linkage: path.as_deref().and_then(probe::linkage_of_interpreter),
            script: python.then(|| job::script_is_there(&job.arguments).err()?.to_string().into()).flatten(),
            python,
            device: probe::has_device(),
            simulated: plan.variables.iter().any(|(name, _)| name.starts_with(env::SIMULATOR_PREFIX))
                || environment::is_within()
                || path.as_deref().is_some_and(environment::is_simulated),
            imports: imports(&job.arguments),
            torch: path.filter(|_| python).map(|p| probe::torch(&p)),
            ..Facts::default()
        }
    }
}

/// The likeliest reason, and what to do where that is not the doctor.
fn reason(facts: &Facts) -> (String, Option<String>) {
    if let Some(failure) = &facts.failure {
        return (failure.clone(), None);
    }
    if let Some(deleted) = &facts.deleted {
        let why = format!("{} was deleted or renamed while the job ran", say::path(deleted));
        return (why, Some("strandline run -o DIR …    a folder that nothing deletes".to_string()));
    }
    if facts.disabled {
        return (format!("{}=1 is set", env::DISABLE), Some(format!("unset {}", env::DISABLE)));
    }
    if let Some(elsewhere) = &facts.elsewhere {
        return (elsewhere.why.clone(), Some(elsewhere.instead.clone()));
    }
    let linked = match facts.linkage {
        Some(Linkage::Static) => "is statically linked, so LD_PRELOAD does not reach it",
        Some(Linkage::Foreign) => {
            "is not linked with glibc, which strandline needs, so LD_PRELOAD was left out"
        }
        Some(Linkage::Privileged) => "is set-user-id, so the loader ignores LD_PRELOAD",
        _ => "",
    };
    if !linked.is_empty() {
        return (format!("{} {linked}", facts.program), None);
    }
    if let Some(hidden) = facts.hidden.as_ref().filter(|_| facts.ended == Some(Ended::Exit(0))) {
        return (hidden.why.clone(), Some(hidden.instead.clone()));
    }
    // Python itself ends with 2 where it cannot open the script.
    if let Some(script) = facts.script.as_ref().filter(|_| facts.ended == Some(Ended::Exit(2))) {
        let next = "strandline run PATH/TO/train.py    (the path is relative to this folder)";
        return (format!("there was no job to record ({script})"), Some(next.to_string()));
    }
    let no_call = "so no CUDA call was seen";
    let has_failed = !matches!(facts.ended, Some(Ended::Exit(0)) | None);
    let why = match &facts.torch {
        Some(Torch::Absent) if facts.ended != Some(Ended::Exit(2)) => {
            format!("this python has no torch, {no_call}")
        }
        Some(Torch::CpuOnly(version)) => {
            format!("torch {version} of this python is built without CUDA, {no_call}")
        }
        _ if has_failed => match facts.ended {
            Some(Ended::Signal(signal)) => {
                let name = signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned);
                format!("{name} ended the job before its first CUDA call")
            }
            _ => "the job failed before its first CUDA call".to_owned(),
        },
        _ if !facts.device && !facts.simulated => format!("this machine has no NVIDIA GPU, {no_call}"),
        _ if facts.python && facts.simulated => {
            format!("the job put nothing on the simulated GPU of this Python's PyTorch, {no_call}")
        }
        _ if facts.python => format!("the job did not use a GPU, {no_call}"),
        _ => format!(
            "the job did not use a GPU, or a program that {} started lost LD_PRELOAD (env -i, sudo, ssh), {no_call}",
            facts.program
        ),
    };
    let simulate = "strandline run --simulate 24GiB …    PyTorch's own allocator on a simulated GPU";
    if facts.simulated && has_failed && !matches!(facts.ended, Some(Ended::Signal(_))) {
        let packages = match facts.imports.as_slice() {
            [] => "",
            ["strandline"] => {
                "; if it says No module named 'strandline', install strandline into this Python (docs/install.md)"
            }
            _ => "; if it needs transformers or accelerate: strandline simulate --with-transformers",
        };
        return (why, Some(format!("see the job's own error above{packages}")));
    }
    if facts.torch == Some(Torch::Absent) && facts.ended != Some(Ended::Exit(2)) {
        return (why, Some(probe::other_python("run")));
    }
    let no_gpu = facts.python && !has_failed && !facts.device && !facts.simulated;
    (why, no_gpu.then(|| simulate.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(facts: Facts) -> String {
        reason(&facts).0
    }

    #[test]
    fn the_reason_is_the_one_that_a_person_can_act_on() {
        let python = || Facts { python: true, ended: Some(Ended::Exit(0)), ..Facts::default() };
        assert!(why(Facts { disabled: true, ..python() }).contains("STRANDLINE_DISABLE=1"));
        let failed = Facts { failure: Some("cannot write /x: No space left".into()), ..python() };
        assert_eq!(why(failed), "cannot write /x: No space left");
        let deleted = Facts { deleted: Some("/out/rec".into()), ..python() };
        assert_eq!(why(deleted), "/out/rec was deleted or renamed while the job ran");
        assert!(why(Facts { torch: Some(Torch::Absent), ..python() }).contains("has no torch"));
        let cpu = Facts { torch: Some(Torch::CpuOnly("2.11.0+cpu".into())), ..python() };
        assert!(why(cpu).contains("torch 2.11.0+cpu of this python is built without CUDA"));
        let gpu = Facts { torch: Some(Torch::Cuda("2.11.0".into())), device: true, ..python() };
        assert!(why(gpu).starts_with("the job did not use a GPU, so"));
        let absent = Some("gone.py: no such file".to_owned());
        let absent = Facts { script: absent, ended: Some(Ended::Exit(2)), ..python() };
        assert_eq!(why(absent), "there was no job to record (gone.py: no such file)");
        let script = Facts { python: false, program: "bash".into(), device: true, ..python() };
        assert!(why(script).contains("a program that bash started lost LD_PRELOAD"));
        let failed =
            Facts { torch: Some(Torch::Cuda("2.11.0".into())), ended: Some(Ended::Exit(1)), ..python() };
        assert_eq!(why(failed), "the job failed before its first CUDA call");
        let next = |imports: &[&'static str]| {
            let imports = imports.to_vec();
            let failed = Facts { simulated: true, ended: Some(Ended::Exit(1)), imports, ..python() };
            reason(&failed).1.expect("what to do")
        };
        assert_eq!(next(&[]), "see the job's own error above");
        assert!(next(&["accelerate", "strandline"]).contains("simulate --with-transformers"));
        assert!(next(&["strandline"]).contains("install strandline into this Python"));
        let unused = Facts { simulated: true, ..python() };
        assert!(why(unused).starts_with("the job put nothing on the simulated GPU of this Python's PyTorch"));
        let line: Vec<OsString> = ["ssh", "host", "python", "t.py"].map(Into::into).into();
        let elsewhere = job::elsewhere(&job::Job::new(&line, None), |_| None);
        let (why_there, next) = reason(&Facts { elsewhere, ..Facts::default() });
        assert_eq!(why_there, "ssh starts the job on another machine");
        assert_eq!(next.as_deref(), Some("ssh host strandline run python t.py"));
        let line: Vec<OsString> = ["apptainer", "exec", "i.sif", "python"].map(Into::into).into();
        let hidden = job::hidden(&job::Job::new(&line, None));
        let (why_not, next) = reason(&Facts { hidden, ended: Some(Ended::Exit(0)), ..Facts::default() });
        assert!(why_not.contains("or its container hides strandline's library"), "{why_not}");
        assert_eq!(next.as_deref(), Some("apptainer exec $(strandline env --format apptainer) i.sif python"));
        let fixed = Facts { linkage: Some(Linkage::Static), program: "x".into(), ..Facts::default() };
        assert!(why(fixed).contains("statically linked"));
        let musl = Facts { linkage: Some(Linkage::Foreign), program: "x".into(), ..Facts::default() };
        assert!(why(musl).starts_with("x is not linked with glibc"));
    }

    #[test]
    fn without_a_gpu_the_simulated_one_is_offered() {
        let facts = Facts { python: true, ended: Some(Ended::Exit(0)), ..Facts::default() };
        let (why, next) = reason(&facts);
        assert!(why.contains("no NVIDIA GPU") && next.unwrap().contains("--simulate"));
    }
}
