//! Facts about a program, a python and this machine, found without starting CUDA.

use object::LittleEndian;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a program reaches its libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// Through the loader, which honours `LD_PRELOAD`.
    Dynamic,
    /// Through the loader of another C library than glibc, for which ours is not made: it would not start with it.
    Foreign,
    /// Without it.
    Static,
    /// The loader ignores `LD_PRELOAD` for it: set-user-id or set-group-id.
    Privileged,
    /// A script; its interpreter decides.
    Script,
}

/// Reads the head of an executable.
pub(crate) fn linkage(path: &Path) -> Option<Linkage> {
    let mut head = vec![0; 4096];
    let mut file = File::open(path).ok()?;
    let read = file.read(&mut head).ok()?;
    head.truncate(read);
    if head.starts_with(b"#!") {
        return Some(Linkage::Script);
    }
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let mode = file.metadata().ok()?.mode();
    if mode & 0o6000 != 0 && !root {
        return Some(Linkage::Privileged);
    }
    Some(match interpreter(&head)? {
        None => Linkage::Static,
        Some(loader) if is_foreign(loader) => Linkage::Foreign,
        Some(_) => Linkage::Dynamic,
    })
}

/// How the program that runs this file is linked: the file itself, or the interpreter in a script's first line.
pub(crate) fn linkage_of_interpreter(path: &Path) -> Option<Linkage> {
    match linkage(path)? {
        Linkage::Script => linkage(&named_by(path)?),
        own => Some(own),
    }
}

/// The program that a script's first line names.
fn named_by(script: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    File::open(script).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    Some(PathBuf::from(OsStr::from_bytes(words.next()?)))
}

/// Whether a loader is musl's or uClibc's. Others may be glibc's by another name, which is not to be told from here.
fn is_foreign(loader: &[u8]) -> bool {
    let name = loader.rsplit(|&b| b == b'/').next().unwrap_or(loader);
    [&b"ld-musl-"[..], b"ld-uClibc", b"ld64-uClibc"].iter().any(|n| name.starts_with(n))
}

/// The loader that a 64-bit little-endian ELF file asks for (`PT_INTERP`), where it asks for one; empty where its name lies too far on.
fn interpreter(head: &[u8]) -> Option<Option<&[u8]>> {
    let file = FileHeader64::<LittleEndian>::parse(head).ok()?;
    let parts = file.program_headers(file.endian().ok()?, head).ok()?;
    let loader = parts.iter().find(|p| p.p_type(LittleEndian) == PT_INTERP);
    Some(loader.map(|p| p.interpreter(LittleEndian, head).ok().flatten().unwrap_or_default()))
}

/// What helps where the program, or its torch, is in another environment. `verb`: the subcommand that was given the job.
pub(crate) fn other_python(verb: &str) -> String {
    format!(
        "activate the job's environment (source venv/bin/activate, conda activate NAME), or name its python: strandline {verb} -- venv/bin/python train.py"
    )
}

/// What a python has of torch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Torch {
    /// Could not be found out.
    Unknown,
    /// None.
    Absent,
    /// This version, built without CUDA.
    CpuOnly(String),
    /// This version, built with CUDA.
    Cuda(String),
    /// This version, built for AMD's ROCm.
    Rocm(String),
}

/// Asks a python where its torch is, without importing it, and reads its version file.
pub(crate) fn torch(python: &Path) -> Torch {
    const ASK: &str = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')";
    let Some(answer) = ask(python, ASK) else { return Torch::Unknown };
    let origin = answer.trim();
    if origin.is_empty() {
        return Torch::Absent;
    }
    let version = Path::new(origin).with_file_name("version.py");
    std::fs::read_to_string(version).map_or(Torch::Unknown, |text| parse_version(&text))
}

/// Runs a line of Python, quietly and without the preload; what it printed.
pub(crate) fn ask(python: &Path, code: &str) -> Option<String> {
    let mut command = Command::new(python);
    command.args(["-c", code]).env_remove("LD_PRELOAD").stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `torch/version.py` has one assignment a line, since 2.0 with annotations.
fn parse_version(text: &str) -> Torch {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let rest = line.trim().strip_prefix(name)?;
            let (annotation, value) = rest.split_once('=')?;
            let is_assignment = annotation.trim().is_empty() || annotation.trim_start().starts_with(':');
            is_assignment.then(|| value.trim().trim_matches(['\'', '"']).to_string())
        })
    };
    let set = |v: &String| v != "None";
    match (value("__version__"), value("cuda").filter(set), value("hip").filter(set)) {
        (None, ..) => Torch::Unknown,
        (Some(version), Some(_), _) => Torch::Cuda(version),
        (Some(version), None, Some(_)) => Torch::Rocm(version),
        (Some(version), None, None) => Torch::CpuOnly(version),
    }
}

/// Whether this machine has an NVIDIA device that a process could open.
pub(crate) fn has_device() -> bool {
    ["/dev/nvidiactl", "/dev/dxg"].iter().any(|p| PathBuf::from(p).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_of_other_c_libraries_are_known_by_name() {
        assert!(is_foreign(b"/lib/ld-musl-x86_64.so.1") && is_foreign(b"/lib/ld64-uClibc.so.0"));
        assert!(
            !is_foreign(b"/lib64/ld-linux-x86-64.so.2")
                && !is_foreign(b"/opt/ld-2.31.so")
                && !is_foreign(b"")
        );
    }

    #[test]
    fn torchs_version_file_is_read_in_its_forms() {
        let cuda = "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n";
        assert_eq!(parse_version(cuda), Torch::Cuda("2.11.0+cu130".into()));
        let cpu = "from typing import Optional\n__version__ = '2.4.1+cpu'\ncuda = None\nhip = None\n";
        assert_eq!(parse_version(cpu), Torch::CpuOnly("2.4.1+cpu".into()));
        let rocm = "__version__ = '2.8.0'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n";
        assert_eq!(parse_version(rocm), Torch::Rocm("2.8.0".into()));
        assert_eq!(parse_version("?"), Torch::Unknown);
    }

    #[test]
    fn this_test_goes_through_the_loader_and_garbage_is_nothing() {
        assert_eq!(linkage(&std::env::current_exe().unwrap()), Some(Linkage::Dynamic));
        assert_eq!(interpreter(b"\x7fELF\x02\x01"), None);
        let mut hostile = b"\x7fELF\x02\x01".to_vec();
        hostile.resize(64, 0xff);
        assert_eq!(interpreter(&hostile), None);
    }
}
