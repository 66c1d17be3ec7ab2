//! The Pythons of this machine: those on the PATH, those of pyenv, and the one that has torch.

use crate::support::python;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A CPython 3.9 or newer that starts and has `ctypes`.
pub(crate) struct Interpreter {
    /// Its program.
    pub(crate) path: PathBuf,
    /// Its version, with a `t` behind it where it is a free-threaded build.
    pub(crate) version: String,
    minor: u32,
    free_threaded: bool,
}

impl Interpreter {
    /// Whether the recorder claims to read its frames.
    pub(crate) fn is_known(&self) -> bool {
        (9..=15).contains(&self.minor) && !self.free_threaded
    }

    /// Whether it describes its own frames.
    pub(crate) fn describes_itself(&self) -> bool {
        self.minor >= 13 && self.is_known()
    }
}

/// One interpreter of each version that is here.
pub(crate) fn all() -> &'static [Interpreter] {
    static ALL: OnceLock<Vec<Interpreter>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut found = BTreeMap::new();
        for path in candidates() {
            if let Some(i) = ask(&path) {
                found.entry((i.minor, i.free_threaded, i.version.clone())).or_insert(i);
            }
        }
        found.into_values().collect()
    })
}

fn candidates() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    let home = std::env::var_os("HOME").map(|h| Path::new(&h).join(".pyenv"));
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or(home);
    for version in pyenv.iter().flat_map(|p| std::fs::read_dir(p.join("versions"))).flatten().flatten() {
        folders.push(version.path().join("bin"));
    }
    let mut all = vec![python().to_path_buf()];
    for folder in folders {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut here: Vec<PathBuf> = names
            .filter(|f| is_python(&f.file_name().to_string_lossy()))
            .map(|f| f.path())
            .filter(|p| is_elf(p))
            .collect();
        here.sort();
        all.extend(here);
    }
    all
}

/// `python3`, `python3.N`, `python3.Nt`.
fn is_python(name: &str) -> bool {
    let rest = name.strip_prefix("python3");
    rest.is_some_and(|r| {
        r.is_empty() || r.strip_prefix('.').is_some_and(|n| n.trim_end_matches('t').parse::<u32>().is_ok())
    })
}

/// Wrappers written in a shell's language choose an interpreter by other rules than ours.
fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    std::fs::File::open(path).is_ok_and(|mut f| std::io::Read::read_exact(&mut f, &mut magic).is_ok())
        && magic == *b"\x7fELF"
}

fn ask(path: &Path) -> Option<Interpreter> {
    let source = "import sys, ctypes, platform, sysconfig as c\n\
                  v = sys.version_info\n\
                  print(v[1] if v[0] == 3 else 0, platform.python_version(), c.get_config_var('Py_GIL_DISABLED') or 0, \
                  sys.implementation.name)";
    let output = Command::new(path).args(["-c", source]).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let [minor, version, gil, name] = text.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    let (minor, free_threaded) = (minor.parse().ok()?, gil == "1");
    let version = format!("{version}{}", if free_threaded { "t" } else { "" });
    (name == "cpython" && minor >= 9).then(|| Interpreter {
        path: path.to_path_buf(),
        version,
        minor,
        free_threaded,
    })
}
