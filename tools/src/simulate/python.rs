//! The virtual environment and what pip puts into it.

use super::error::{self, Error};
use super::folders::make_directory;
use super::progress::stage;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strandline::event::WordList;

/// How long a child process may stay silent before it is given up.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What torch imports at run time, besides NVIDIA's packages, which the simulated libraries stand in for.
const TORCH_NEEDS: WordList =
    WordList("typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec filelock numpy setuptools");

/// transformers with accelerate and all they import: listed, because their own lists would pull in NVIDIA's packages
/// through torch. `huggingface_hub` 2 is not yet understood by transformers.
const TRANSFORMERS: WordList = WordList(
    "transformers==5.17.* huggingface_hub<2 accelerate psutil tokenizers safetensors regex pyyaml tqdm \
     packaging httpx httpcore h11 anyio idna certifi hf-xet typer click shellingham rich markdown-it-py \
     mdurl pygments requests urllib3 charset-normalizer",
);

/// Variables that would make the new Python another one than it is.
const MISLEADING: WordList = WordList(
    "PYTHONPATH PYTHONHOME PYTHONSTARTUP LD_PRELOAD LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES \
     PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF PIP_TARGET PIP_REQUIRE_VIRTUALENV",
);

const INDEX_ADVICE: &str = "is the package index reachable? pip's own settings (PIP_INDEX_URL, a proxy) are honoured; then run it again";

/// A virtual environment.
pub(super) struct Venv {
    root: PathBuf,
}

impl Venv {
    /// The environment at `root`, made or not.
    pub(super) fn at(root: &Path) -> Self {
        Venv { root: root.to_path_buf() }
    }

    /// Its Python.
    pub(super) fn python(&self) -> PathBuf {
        self.root.join("bin/python")
    }

    /// Makes it.
    pub(super) fn create(&self) -> Result<(), Error> {
        stage("virtual environment of python3: making", || {
            let mut command = Command::new("python3");
            command.args(["-m", "venv"]).arg(&self.root);
            let advice =
                "Python 3.10 or newer with its venv module is needed (on Debian: apt install python3-venv)";
            run(command, "making a virtual environment", advice).map(drop)
        })
    }

    /// Installs torch as it is, without NVIDIA's packages, and what else it imports.
    pub(super) fn install_torch(&self, version: &str) -> Result<(), Error> {
        let size = if version == "2.11.0" { "531 MB" } else { "500 to 900 MB" };
        stage(&format!("torch {version}: downloading and installing {size}"), || {
            self.install(&[&format!("torch=={version}")], "installing torch")
        })?;
        stage("torch's dependencies: downloading and installing about 35 MB", || {
            self.install(&TORCH_NEEDS.iter().collect::<Vec<_>>(), "installing torch's dependencies")
        })
    }

    /// Installs transformers.
    pub(super) fn install_transformers(&self) -> Result<(), Error> {
        stage("transformers and accelerate: downloading and installing about 30 MB", || {
            self.install(&TRANSFORMERS.iter().collect::<Vec<_>>(), "installing transformers")
        })
    }

    /// Where its packages lie.
    pub(super) fn site_packages(&self) -> Result<PathBuf, Error> {
        let mut command = Command::new(self.python());
        command.args(["-c", "import sysconfig; print(sysconfig.get_paths()['platlib'])"]);
        Ok(PathBuf::from(run(command, "asking Python where packages lie", "")?.trim()))
    }

    /// Imports torch and puts a tensor on the device.
    pub(super) fn smoke_test(&self) -> Result<(), Error> {
        let mut command = Command::new(self.python());
        command.args(["-c", "import torch; assert torch.ones(4, device='cuda').is_cuda"]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STRANDLINE_") {
                command.env_remove(name);
            }
        }
        let advice =
            "this version of torch may need functions that the simulator lacks; 2.11.0 is known to work";
        run(command, "testing torch on the simulated device", advice).map(drop)
    }

    fn install(&self, packages: &[&str], what: &str) -> Result<(), Error> {
        pip(&self.python(), &[&["install", "--no-deps"], packages].concat(), what)
    }
}

/// Those of the versions whose wheel is not in the directory.
pub(super) fn missing_trl<'a>(wheels: &Path, versions: &[&'a str]) -> Vec<&'a str> {
    let there = |version: &&str| wheels.join(format!("trl-{version}-py3-none-any.whl")).exists();
    versions.iter().copied().filter(|version| !there(version)).collect()
}

/// Downloads TRL wheels that are missing, with the pip of `python`.
pub(super) fn download_trl(python: &Path, wheels: &Path, versions: &[&str]) -> Result<(), Error> {
    let missing = missing_trl(wheels, versions);
    if missing.is_empty() {
        return Ok(());
    }
    make_directory(wheels)?;
    let directory = wheels.to_string_lossy();
    stage(&format!("trl {}: downloading less than 1 MB each", missing.join(", ")), || {
        missing.iter().try_for_each(|version| {
            let arguments = ["download", "--no-deps", "-d", &directory, &format!("trl=={version}")];
            pip(python, &arguments, "downloading trl")
        })
    })
}

fn pip(python: &Path, arguments: &[&str], what: &str) -> Result<(), Error> {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir"]);
    let (verb, rest) = arguments.split_first().unwrap_or((&"", &[]));
    command.args([verb, "--quiet", "--progress-bar", "off"]).args(rest);
    run(command, what, INDEX_ADVICE).map(drop)
}

/// Runs a program; returns its stdout, or says how it ended with its last lines.
pub(super) fn run(mut command: Command, what: &str, advice: &str) -> Result<String, Error> {
    for name in MISLEADING.iter() {
        command.env_remove(name);
    }
    command.env("PYTHONNOUSERSITE", "1").stdin(Stdio::null());
    let failed = |ended: &str, tail: &str| error::tool(what, ended, tail, advice);
    let program = command.get_program().to_string_lossy().into_owned();
    // Both streams go to one unnamed file: nothing is lost, and no pipe can fill up.
    let mut said = unnamed().map_err(|error| failed(&format!("no temporary file: {error}"), ""))?;
    let (Ok(out), Ok(err)) = (said.try_clone(), said.try_clone()) else {
        return Err(failed("no more descriptors", ""));
    };
    let mut child = command
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|error| failed(&format!("cannot run {program}: {error}"), ""))?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let _ = child.kill().and_then(|()| child.wait());
                let ended = format!("given up after {} minutes", PATIENCE.as_secs() / 60);
                return Err(failed(&ended, &tail(&mut said)));
            }
            Err(error) => return Err(failed(&error.to_string(), &tail(&mut said))),
        }
    };
    if !status.success() {
        return Err(failed(&format!("{program}: {status}"), &tail(&mut said)));
    }
    let mut text = String::new();
    let _ = said.seek(SeekFrom::Start(0)).and_then(|_| said.read_to_string(&mut text));
    Ok(text)
}

/// A file that has no name and goes away with its descriptors.
fn unnamed() -> std::io::Result<File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name is a literal; the descriptor that comes back is new and nobody else's.
    let descriptor = unsafe { libc::memfd_create(c"strandline-tool".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: as above; `File` becomes its only owner.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// The last lines of what a program said.
fn tail(said: &mut File) -> String {
    const LINES: usize = 12;
    let mut bytes = Vec::new();
    let _ = said.seek(SeekFrom::Start(0)).and_then(|_| said.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_shows_its_last_lines() {
        let mut command = Command::new("sh");
        command.args(["-c", "for i in $(seq 30); do echo line $i; done; echo why >&2; exit 3"]);
        let error = run(command, "trying", "do this").unwrap_err().to_string();
        assert!(error.starts_with("trying failed: sh: exit status: 3"), "{error}");
        assert!(error.contains("    line 30\n    why\n  do this") && !error.contains("line 18\n"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(Command::new("/nonexistent/python3"), "trying", "").unwrap_err().to_string();
        assert!(error.contains("/nonexistent/python3"), "{error}");
    }
}
