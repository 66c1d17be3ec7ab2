//! Programs that start the job where our variables do not reach, and what to type instead.

use super::Job;
use crate::words;
use std::ffi::OsString;
use std::path::Path;
use strandline::event::WordList;

/// A job that would not be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Why, as a clause.
    pub(crate) why: String,
    /// What would be seen.
    pub(crate) instead: String,
}

/// Options of these programs that take the next word as their value.
const SUDO_VALUES: WordList = WordList("-u -g -h -p -C -T -r -t -D -R");
const APPTAINER_VALUES: WordList =
    WordList("-B --bind --mount --env --env-file -H --home -W --workdir -S --scratch -o --overlay");
const SSH_VALUES: WordList = WordList("-p -i -l -o -F -J -L -R -D -b -c -E -I -m -S -W -w");
const APPTAINER_WORDS: &str = "$(strandline env --format apptainer)";

/// Whether the job is started where our variables do not reach. `variable` reads one of ours.
pub(crate) fn elsewhere(job: &Job, variable: impl Fn(&str) -> Option<String>) -> Option<Elsewhere> {
    let (name, line) = Line::of(job)?;
    let why = |text: &str| format!("{name} {text}");
    let own = "starts the job with its own environment";
    let (why, instead) = match name.as_str() {
        "docker" | "podman" | "nerdctl" => match line.at(&["run", "create"]) {
            Some(at) => (why(own), line.with(at + 1, "$(strandline env --format docker)")),
            None => (why(own), line.inside()),
        },
        "apptainer" | "singularity" => return apptainer(&line, &name, variable),
        "sudo" | "doas" => {
            let at = line.first_plain(0, SUDO_VALUES)?;
            (why(own), line.with(at, "\"$(command -v strandline)\" run"))
        }
        "ssh" => {
            let host = line.first_plain(0, SSH_VALUES)?;
            (why("starts the job on another machine"), line.with(host + 1, "strandline run"))
        }
        "kubectl" | "oc" => match line.at(&["--"]) {
            Some(at) => (why(own), line.with(at + 1, "strandline run")),
            None => (
                why("starts the job in a cluster"),
                "strandline env --format k8s    for the container in the pod's spec".into(),
            ),
        },
        "srun" => return srun(&line, variable("SLURM_EXPORT_ENV")),
        "sbatch" | "qsub" | "bsub" => (
            why("hands the job to a queue"),
            "strandline run …    before the command in the job's script".into(),
        ),
        "ray" => {
            let submit = line.at(&["submit"]).filter(|at| *at > 0 && line.words[at - 1] == "job")?;
            if line.words.iter().any(|w| w.starts_with("--runtime-env")) {
                let add = "strandline env --format ray    for the env_vars of its runtime environment";
                (why("job submit starts the job in the cluster"), add.into())
            } else {
                let option = "--runtime-env-json \"$(strandline env --format ray)\"";
                (why("job submit starts the job in the cluster"), line.with(submit + 1, option))
            }
        }
        "mpirun" | "mpiexec" | "orterun" => {
            let hosts = ["-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile"];
            let passed = line.words.windows(2).any(|w| w[0] == "-x" && w[1].starts_with("LD_PRELOAD"));
            if passed || line.at(&hosts).is_none() {
                return None;
            }
            let pass = "-x LD_PRELOAD -x STRANDLINE_OUT -x STRANDLINE_QUIET -x STRANDLINE_WATCHED";
            let on = "does not pass the environment on to other machines";
            (why(on), format!("strandline run {}", line.with(0, pass)))
        }
        "deepspeed" => {
            let hosts = ["-H", "--hostfile"];
            line.words.iter().find(|w| hosts.iter().any(|h| w == h || w.starts_with(&format!("{h}="))))?;
            let file = "strandline env --format deepspeed >> ~/.deepspeed_env    first";
            (why("does not pass the environment on to other machines"), file.into())
        }
        "env" => {
            let at =
                line.words.iter().position(|w| ["-i", "-", "--ignore-environment"].contains(&w.as_str()))?;
            let job = (at + 1..line.words.len())
                .find(|i| !line.words[*i].starts_with('-') && !line.words[*i].contains('='))?;
            (why("-i removes the environment variables"), line.with(job, "\"$(command -v strandline)\" run"))
        }
        "strandline" if line.words.first().is_some_and(|w| w == "run") => {
            (why("run records into its own folder"), line.whole())
        }
        "su" | "runuser" | "systemd-run" | "at" | "batch" | "tmux" | "screen" | "enroot" => {
            (why(own), line.inside())
        }
        _ => return None,
    };
    Some(Elsewhere { why, instead })
}

/// Apptainer passes everything on and shows the container home, /tmp and the current folder, unless it is told not to.
fn apptainer(line: &Line, name: &str, variable: impl Fn(&str) -> Option<String>) -> Option<Elsewhere> {
    let verb = line.at(&["exec", "run", "shell"])?;
    let image = line.first_plain(verb + 1, APPTAINER_VALUES)?;
    let options = line.words.get(verb + 1..image)?;
    let is_one = |w: &String, long: &[&str], short: &[char]| {
        // `-ec`, but not `-B/cache`.
        let letters = |w: &&str| w.len() <= 3 && w.chars().all(|c| c.is_ascii_alphabetic());
        let cluster = w.strip_prefix('-').filter(letters);
        long.contains(&w.as_str()) || cluster.is_some_and(|w| w.contains(short))
    };
    let taken = options.iter().find(|w| is_one(w, &["--cleanenv", "--containall", "--compat"], &['e', 'C']));
    let hidden = options.iter().find(|w| is_one(w, &["--contain"], &['c']));
    let mut set = ["CLEANENV", "CONTAINALL", "COMPAT"]
        .iter()
        .flat_map(|option| ["APPTAINER_", "SINGULARITY_"].map(|program| format!("{program}{option}")));
    let is_on = |name: &String| variable(name).is_some_and(|v| !matches!(v.as_str(), "" | "0" | "false"));
    let set = set.find(is_on);
    let why = match (taken, set, hidden) {
        (Some(option), ..) => format!("{name} {option} removes the environment variables"),
        (_, Some(set), _) => format!("{name} with {set} removes the environment variables"),
        (_, _, Some(option)) => format!("{name} {option} hides strandline's library from the job"),
        _ => return None,
    };
    Some(Elsewhere { why, instead: line.with(verb + 1, APPTAINER_WORDS) })
}

/// What may have been in the way although the environment is passed on: what a container shows of the machine is its own matter.
pub(crate) fn hidden(job: &Job) -> Option<Elsewhere> {
    let (_, line) =
        Line::of(job).filter(|(name, _)| ["apptainer", "singularity"].contains(&name.as_str()))?;
    let verb = line.at(&["exec", "run", "shell"])?;
    Some(Elsewhere {
        why:
            "the job did not use a GPU, or its container hides strandline's library, so no CUDA call was seen"
                .into(),
        instead: line.with(verb + 1, APPTAINER_WORDS),
    })
}

/// `srun` passes everything on, unless it is told not to.
fn srun(line: &Line, variable: Option<String>) -> Option<Elsewhere> {
    const OPTION: &str = "--export";
    let passes = |list: &str| list.split(',').any(|w| w == "ALL" || w == "LD_PRELOAD");
    let at = line.words.iter().position(|w| w == OPTION || w.starts_with("--export="));
    let told = match at {
        Some(at) if line.words[at] == OPTION => (line.words.get(at + 1)?.clone(), at..at + 2),
        Some(at) => (line.words[at].split_once('=')?.1.to_string(), at..at + 1),
        None => (variable.clone()?, 0..0),
    };
    let (list, range) = told;
    if passes(&list) {
        return None;
    }
    let rest = if matches!(list.as_str(), "NONE" | "NIL") { String::new() } else { format!(",{list}") };
    let mut words = line.words.clone();
    words.splice(range, [format!("--export=ALL{rest}")]);
    let all = Line { program: line.program.clone(), words };
    let by = if at.is_some() { format!("{OPTION}={list}") } else { format!("with SLURM_EXPORT_ENV={list}") };
    Some(Elsewhere {
        why: format!("srun {by} does not pass the environment on"),
        instead: format!("strandline run {}", all.whole()),
    })
}

/// A command line.
struct Line {
    program: OsString,
    words: Vec<String>,
}

impl Line {
    /// A job's, and what its program is called.
    fn of(job: &Job) -> Option<(String, Line)> {
        let name = Path::new(&job.program).file_name()?.to_string_lossy().into_owned();
        let words = job.arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect();
        Some((name, Line { program: job.program.clone(), words }))
    }

    /// Where the first of these words stands.
    fn at(&self, any: &[&str]) -> Option<usize> {
        self.words.iter().position(|w| any.contains(&w.as_str()))
    }

    /// The first word from `from` on that is neither an option nor the value of one of `values`, nor a variable.
    fn first_plain(&self, from: usize, values: WordList) -> Option<usize> {
        let mut at = from;
        loop {
            let word = self.words.get(at)?;
            match word {
                w if values.has(w) => at += 2,
                w if w == "--" => return (at + 1 < self.words.len()).then_some(at + 1),
                w if w.starts_with('-') || w.contains('=') => at += 1,
                _ => return Some(at),
            }
        }
    }

    fn whole(&self) -> String {
        self.part(0..self.words.len(), true)
    }

    fn part(&self, range: std::ops::Range<usize>, program: bool) -> String {
        let words = self.words.get(range).unwrap_or_default().iter().map(OsString::from);
        let all: Vec<OsString> = program.then(|| self.program.clone()).into_iter().chain(words).collect();
        words::quoted(&all)
    }

    /// The line with a text put before word `at`.
    fn with(&self, at: usize, text: &str) -> String {
        let rest = self.part(at..self.words.len(), false);
        format!("{} {text} {rest}", self.part(0..at, true)).trim_end().to_string()
    }

    fn inside(&self) -> String {
        let name = Path::new(&self.program).file_name().unwrap_or_default().to_string_lossy();
        format!("{name} … strandline run …    strandline inside of it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instead(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        elsewhere(&Job::new(&words, None), |_| None).map(|e| e.instead)
    }

    #[test]
    fn what_does_not_pass_the_environment_on_is_told_what_to_type() {
        for (line, typed) in [
            (
                "docker run --gpus all img python t.py",
                "docker run $(strandline env --format docker) --gpus all img python t.py",
            ),
            ("/usr/bin/podman run img a", "/usr/bin/podman run $(strandline env --format docker) img a"),
            (
                "apptainer exec --nv -B /data -e i.sif python t.py",
                "apptainer exec $(strandline env --format apptainer) --nv -B /data -e i.sif python t.py",
            ),
            (
                "singularity run --containall i.sif python t.py",
                "singularity run $(strandline env --format apptainer) --containall i.sif python t.py",
            ),
            (
                "apptainer exec -c i.sif python t.py",
                "apptainer exec $(strandline env --format apptainer) -c i.sif python t.py",
            ),
            ("sudo -u me A=1 python t.py", "sudo -u me A=1 \"$(command -v strandline)\" run python t.py"),
            ("ssh -p 2 host python t.py", "ssh -p 2 host strandline run python t.py"),
            ("kubectl exec pod -- python t.py", "kubectl exec pod -- strandline run python t.py"),
            ("srun --export=NONE -n 2 python t.py", "strandline run srun --export=ALL -n 2 python t.py"),
            ("srun --export A,B python t.py", "strandline run srun --export=ALL,A,B python t.py"),
            (
                "ray job submit -- python t.py",
                "ray job submit --runtime-env-json \"$(strandline env --format ray)\" -- python t.py",
            ),
            ("env -i A=1 python t.py", "env -i A=1 \"$(command -v strandline)\" run python t.py"),
            ("strandline run -o rec t.py", "strandline run -o rec t.py"),
            ("deepspeed --hostfile=h t.py", "strandline env --format deepspeed >> ~/.deepspeed_env    first"),
        ] {
            assert_eq!(instead(line).as_deref(), Some(typed), "{line}");
        }
        let mpi = instead("mpirun --hostfile h python t.py").expect("other machines");
        assert!(mpi.starts_with("strandline run mpirun -x LD_PRELOAD -x STRANDLINE_OUT"), "{mpi}");
    }

    #[test]
    fn what_passes_it_on_is_left_alone() {
        for line in [
            "torchrun --nproc-per-node 2 t.py",
            "accelerate launch t.py",
            "apptainer exec --nv -B /data i.sif python -c pass -e",
            "srun -n 2 python t.py",
            "srun --export=ALL,A=1 python t.py",
            "mpirun -n 2 python t.py",
            "mpirun -x LD_PRELOAD -H a,b python t.py",
            "env A=1 python t.py",
            "deepspeed t.py",
            "ray start --head",
            "strandline report rec",
            "nohup python t.py",
            "uv run t",
            "conda run -n x python t",
        ] {
            assert_eq!(instead(line), None, "{line}");
        }
        let words: Vec<OsString> = ["srun", "python"].map(Into::into).to_vec();
        let told = elsewhere(&Job::new(&words, None), |_| Some("NONE".into())).expect("told by a variable");
        assert_eq!(told.instead, "strandline run srun --export=ALL python");
        assert!(told.why.contains("SLURM_EXPORT_ENV=NONE"), "{}", told.why);
        let words: Vec<OsString> = ["apptainer", "exec", "i.sif", "python"].map(Into::into).to_vec();
        let set = |name: &str| (name == "APPTAINER_CLEANENV").then(|| "1".to_string());
        let told = elsewhere(&Job::new(&words, None), set).expect("told by a variable");
        assert!(told.why.contains("APPTAINER_CLEANENV removes the environment variables"), "{}", told.why);
    }
}
