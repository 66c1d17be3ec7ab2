//! What is run: the command line as given, with `python` put before a script, and a name for its recordings.

use crate::error::{Error, status};
use crate::say;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A job: program and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// What is executed, as `execvp` takes it.
    pub(crate) program: OsString,
    /// What it is given.
    pub(crate) arguments: Vec<OsString>,
}

impl Job {
    /// The job that this command line means. `python` is the interpreter for a `.py` file or `-m`; where it is `None`,
    /// `python` of the PATH, else `python3`. A path to an executable script is executed, as a shell would: its first line says by whom.
    pub(crate) fn new(command: &[OsString], python: Option<&Path>) -> Job {
        let Some((first, rest)) = command.split_first() else {
            return Job { program: OsString::new(), arguments: Vec::new() };
        };
        if first == "-m" || first.as_bytes().ends_with(b".py") && !names_its_interpreter(first) {
            let program = python.map_or_else(default_python, |p| p.as_os_str().to_owned());
            return Job { program, arguments: command.to_vec() };
        }
        let is_python = matches!(first.to_str(), Some("python" | "python3"));
        let program = match python {
            Some(path) if is_python => path.as_os_str().to_owned(),
            _ => first.clone(),
        };
        Job { program, arguments: rest.to_vec() }
    }

    /// A short name for the folder of its recordings: the script, else the module, else the program.
    pub(crate) fn name(&self) -> String {
        let is_script = |a: &&OsString| a.as_bytes().ends_with(b".py");
        let module = || {
            let at = self.arguments.iter().position(|a| a == "-m")?;
            self.arguments.get(at + 1)?.to_str()?.rsplit('.').next()
        };
        let stem = |a: &OsStr| Path::new(a).file_stem().map(|s| s.to_string_lossy().into_owned());
        let name = match self.arguments.iter().find(is_script) {
            Some(script) => stem(script),
            None => module().map(str::to_string).or_else(|| stem(&self.program)),
        };
        let clean: String = name
            .unwrap_or_default()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
            .take(64)
            .collect();
        if clean.trim_matches('.').is_empty() { "job".to_string() } else { clean }
    }

    /// Whether the program is a Python interpreter, judged by its name.
    pub(crate) fn is_python(&self) -> bool {
        let name = Path::new(&self.program).file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("python").is_some_and(|v| v.chars().all(|c| c.is_ascii_digit() || c == '.'))
    }

    /// Where the program lies, found as `execvp` finds it.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        find(&self.program)
    }
}

/// Looks a program up in the PATH; a name with a slash is taken as it is.
pub(crate) fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists().then(|| program.into());
    }
    let is_it = |p: &PathBuf| is_executable(p);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|d| d.join(program)).find(is_it)
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Whether it is the path of an executable script whose first line says what runs it.
fn names_its_interpreter(script: &OsStr) -> bool {
    let begins = |file: &Path| {
        let mut first = [0; 2];
        std::fs::File::open(file).is_ok_and(|mut f| f.read_exact(&mut first).is_ok()) && first == *b"#!"
    };
    let path = Path::new(script);
    script.as_bytes().contains(&b'/') && is_executable(path) && begins(path)
}

/// That the command's Python script is not there: to be told before anything is installed for it. The script is its first word that ends with `.py`.
///
/// # Errors
/// There is no such file.
pub(crate) fn script_is_there(command: &[OsString]) -> Result<(), Error> {
    let script = command.iter().find(|word| word.as_bytes().ends_with(b".py"));
    match script.map(Path::new).filter(|path| !path.exists()) {
        Some(path) => Err(Error::new(format!("{}: no such file", say::path(path))).status(status::USAGE)),
        None => Ok(()),
    }
}

/// Why a job did not start, with the status that a shell would give.
pub(crate) fn cannot_start(job: &Job, error: &std::io::Error) -> Error {
    let program = job.program.to_string_lossy();
    match (error.kind(), job.find()) {
        (ErrorKind::NotFound, None) => {
            Error::new(format!("{program}: command not found")).status(status::NOT_FOUND)
        }
        (ErrorKind::NotFound, Some(path)) => Error::new(format!(
            "{}: the interpreter that its first line names does not exist",
            say::path(&path)
        ))
        .status(status::NOT_FOUND),
        _ if Path::new(&job.program).is_dir() => {
            Error::new(format!("{program}: cannot be executed: it is a folder"))
                .status(status::NOT_EXECUTABLE)
        }
        _ => Error::new(format!("{program}: cannot be executed: {error}")).status(status::NOT_EXECUTABLE),
    }
}

fn default_python() -> OsString {
    let name = ["python", "python3"].into_iter().find(|n| find(OsStr::new(n)).is_some());
    name.unwrap_or("python").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(line: &str) -> Job {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        Job::new(&words, Some(Path::new("/env/bin/python")))
    }

    #[test]
    fn a_script_that_is_not_there_is_told() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let said =
            script_is_there(&words("python /nowhere/train.py --config a.py")).expect_err("no such file");
        assert!(said.to_string().contains("/nowhere/train.py: no such file"), "{said}");
        assert!(script_is_there(&words("python -m package --lr 1")).is_ok());
    }

    #[test]
    fn a_script_or_a_module_gets_python_before_it() {
        let script = job("./dir/train.py --lr 1");
        assert_eq!(script.program, "/env/bin/python");
        assert_eq!(script.arguments, ["./dir/train.py", "--lr", "1"]);
        assert_eq!(job("-m pkg.train").arguments, ["-m", "pkg.train"]);
        assert_eq!(job("python train.py").program, "/env/bin/python", "the environment's own");
        assert_eq!(job("/usr/bin/python3 train.py").program, "/usr/bin/python3", "an explicit one is meant");
        assert_eq!(job("torchrun --nproc-per-node 2 train.py").program, "torchrun");
    }

    #[test]
    fn an_executable_script_says_what_runs_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("strandline-script-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let script = folder.join("train.py");
        for (text, mode, itself) in [
            ("#!/usr/bin/env -S python3 -O\n", 0o755, true),
            ("#!/usr/bin/python3\n", 0o644, false),
            ("import torch\n", 0o755, false),
            ("", 0o755, false),
        ] {
            std::fs::write(&script, text).unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(mode)).unwrap();
            let job = Job::new(&[script.clone().into(), "--lr".into()], Some(Path::new("/env/bin/python")));
            assert_eq!(job.program == script.as_os_str(), itself, "{text:?} {mode:o}");
            assert_eq!((job.arguments.len(), job.name()), (if itself { 1 } else { 2 }, "train".into()));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_recording_is_named_after_what_the_person_would_call_the_job() {
        for (line, name) in [
            ("dir/train.py", "train"),
            ("torchrun --nproc-per-node 2 my.train.py", "my.train"),
            ("accelerate launch train.py vl.yaml", "train"),
            ("-m pkg.sub.train --x", "train"),
            ("/bin/true", "true"),
            ("we\u{ef}rd/..", "job"),
        ] {
            assert_eq!(job(line).name(), name, "{line}");
        }
    }

    #[test]
    fn python_is_known_by_its_name() {
        for (program, is) in
            [("python3.11", true), ("/x/python", true), ("pythonx", false), ("ipython", false)]
        {
            let job = Job { program: program.into(), arguments: Vec::new() };
            assert_eq!(job.is_python(), is, "{program}");
        }
    }
}
