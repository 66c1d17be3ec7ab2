//! Writes libraries: an assembler file of jumps for each, and the system's compiler driver to link it.

use super::error::{self, Error};
use super::python::run;
use crate::files;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// The simulator's file name beside the libraries.
pub(super) const SIMULATOR: &str = "libstrandline_simcuda.so";

/// A library to make.
pub(super) struct Library {
    /// Its own name, which is its file's too.
    pub(super) soname: String,
    /// What it exports.
    pub(super) functions: Vec<Function>,
    /// Whether it loads the driver and NVML with it. The runtime does: then both are found by name by whoever
    /// opens them later, wherever they lie.
    pub(super) needs_driver: bool,
}

/// One exported function.
pub(super) struct Function {
    /// Its name.
    pub(super) name: String,
    /// The version that it is exported under.
    pub(super) version: Option<String>,
    /// What it does.
    pub(super) target: Target,
}

/// What an exported function does.
#[derive(Debug)]
pub(super) enum Target {
    /// Goes on in that function of the simulator, arguments and return address untouched.
    Jump(String),
    /// Says that it is not simulated, and returns that number.
    Absent(i32),
}

const LATE: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

/// Makes all libraries beside the simulator, those first that others load.
pub(super) fn build(directory: &Path, libraries: &[Library]) -> Result<(), Error> {
    let (last, first): (Vec<&Library>, Vec<&Library>) =
        libraries.iter().partition(|library| library.needs_driver);
    first.into_iter().chain(last).try_for_each(|library| link(directory, library))
}

/// Replaces a file as a whole: a process that has the old one mapped keeps it.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), Error> {
    let write = || {
        let mut file = files::create(path)?;
        file.executable()?;
        file.write_all(content)?;
        file.keep()
    };
    write().map_err(|source| error::io("cannot write", path, source))
}

const LINKER_ADVICE: &str = "a C compiler driver with an assembler and a linker is needed (on Debian: apt install gcc), as cc or in CC";

/// The system's compiler driver, to link a shared library that needs nothing.
fn linker() -> Command {
    let mut command = Command::new(std::env::var_os("CC").filter(|cc| !cc.is_empty()).unwrap_or("cc".into()));
    command.args(["-shared", "-nostdlib"]);
    command
}

/// Links an empty library in `directory`, so that a machine that cannot is told before anything is downloaded.
pub(super) fn check(directory: &Path) -> Result<(), Error> {
    let (source, output) = (directory.join("linker-check.s"), directory.join("linker-check.so"));
    replace(&source, b"    .text\n    .section .note.GNU-stack,\"\",@progbits\n")?;
    let mut command = linker();
    command.arg("-o").arg(&output).arg(&source);
    let linked = run(command, "linking a library", LINKER_ADVICE);
    for made in [source, output] {
        let _ = fs::remove_file(made);
    }
    linked.map(drop)
}

fn link(directory: &Path, library: &Library) -> Result<(), Error> {
    let base = directory.join(&library.soname);
    let with = |ending: &str| directory.join(format!("{}.{ending}", library.soname));
    let (source, script, output) = (with("s"), with("map"), with("new"));
    replace(&source, assembler(library).as_bytes())?;

    let mut command = linker();
    command.args([
        "-Wl,-z,defs",
        "-Wl,-z,now",
        "-Wl,--no-as-needed",
        // Before LD_LIBRARY_PATH, in which another build of the simulator may lie (cargo puts its own folders there).
        "-Wl,--disable-new-dtags,-rpath,$ORIGIN",
    ]);
    command.arg(format!("-Wl,-soname,{}", library.soname));
    if let Some(versions) = versions(library) {
        replace(&script, versions.as_bytes())?;
        command.arg(format!("-Wl,--version-script,{}", script.display()));
    }
    command.arg("-o").arg(&output).arg(&source).arg("-L").arg(directory).arg(format!("-l:{SIMULATOR}"));
    if library.needs_driver {
        command.args(LATE.map(|name| format!("-l:{name}")));
    }
    run(command, &format!("linking {}", library.soname), LINKER_ADVICE)?;
    fs::rename(&output, &base).map_err(|error| error::io("cannot write", &base, error))?;
    for leftover in [source, script] {
        // Only there to be looked at if linking fails.
        let _ = fs::remove_file(leftover);
    }
    Ok(())
}

/// The jumps. A name that no compiler could have written is left out.
fn assembler(library: &Library) -> String {
    let mut text = String::from("    .text\n");
    let mut names = String::from("    .section .rodata\n");
    let sound = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    for (index, function) in library.functions.iter().filter(|function| sound(&function.name)).enumerate() {
        let name = &function.name;
        let _ = write!(text, "    .globl {name}\n    .type {name}, @function\n    .p2align 4\n{name}:\n");
        let _ = match &function.target {
            Target::Jump(target) => writeln!(text, "    jmp *{target}@GOTPCREL(%rip)"),
            Target::Absent(code) => {
                let _ = writeln!(names, ".Lname{index}: .asciz \"{name}\"");
                let _ = writeln!(text, "    leaq .Lname{index}(%rip), %rdi\n    leaq .Llibrary(%rip), %rsi");
                writeln!(text, "    movl ${code}, %edx\n    jmp *sim_stub@GOTPCREL(%rip)")
            }
        };
        let _ = writeln!(text, "    .size {name}, . - {name}");
    }
    let _ = writeln!(names, ".Llibrary: .asciz \"{}\"", library.soname);
    text + &names + "    .section .note.GNU-stack,\"\",@progbits\n"
}

/// The linker's version script: each version with its functions, and nothing else exported.
fn versions(library: &Library) -> Option<String> {
    let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for function in &library.functions {
        if let Some(version) = &function.version {
            nodes.entry(version).or_default().push(&function.name);
        }
    }
    let script = nodes.iter().fold(String::new(), |mut script, (version, names)| {
        let _ = writeln!(script, "{version} {{ global: {}; }};", names.join("; "));
        script
    });
    (!script.is_empty()).then_some(script)
}
