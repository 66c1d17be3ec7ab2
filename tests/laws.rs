//! The laws of the house, read from the source and from what is built: who imports whom, how long a file may be, what
//! the shared library exports and needs, which names exist. ARCHITECTURE.md says why; this says whether.

#[path = "laws/circles.rs"]
mod circles;
#[path = "laws/detectors.rs"]
mod detectors;
#[path = "laws/files.rs"]
mod files;
#[path = "laws/floors.rs"]
mod floors;
#[path = "laws/pages.rs"]
mod pages;
#[path = "laws/plurals.rs"]
mod plurals;
#[path = "laws/reads.rs"]
mod reads;
#[path = "cli/support.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::root;

/// Rooms of `src/` and the rooms they may enter.
const MAY_ENTER: [(&str, &[&str]); 11] = [
    ("src/event", &[]),
    ("src/format", &["event"]),
    ("src/buffer", &["event", "format"]),
    ("src/writer", &["event", "format", "buffer"]),
    ("src/reader", &["event", "format"]),
    ("src/replay", &["event"]),
    ("src/detect", &["event", "replay"]),
    ("src/advise", &["event", "replay"]),
    ("src/report", &["event", "replay", "detect", "advise"]),
    ("preload", &["event", "format", "buffer", "writer"]),
    ("tools/src", &["event", "format", "reader", "replay", "detect", "advise", "report"]),
];

/// All that the preload may be made of, whatever pulls it in.
const PRELOAD_CRATES: [&str; 31] = [
    "addr2line",
    "adler2",
    "backtrace",
    "cfg-if",
    "crc32fast",
    "crossbeam-channel",
    "crossbeam-utils",
    "cudarc",
    "equivalent",
    "foldhash",
    "gimli",
    "hashbrown",
    "indexmap",
    "itoa",
    "libc",
    "libloading",
    "memchr",
    "miniz_oxide",
    "object",
    "once_cell",
    "rustc-demangle",
    "rustc-hash",
    "serde",
    "serde_core",
    "serde_json",
    "strandline",
    "strandline-preload",
    "zmij",
    "zstd",
    "zstd-safe",
    "zstd-sys",
];

/// Top-level entries of the repository.
const TOP_LEVEL: [&str; 23] = [
    ".ci",
    ".config",
    ".github",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "build.rs",
    "clippy.toml",
    "deny.toml",
    "docs",
    "preload",
    "pyproject.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "src",
    "tests",
    "tools",
];

/// A Rust file: its path from the root, its text, and the text without its unit tests.
struct Source {
    path: String,
    text: String,
    product: String,
}

/// Every Rust file below these folders.
fn sources(folders: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    folders.iter().for_each(|f| walk(&root().join(f), &mut paths));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file can be read");
        let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let is_test = name.ends_with("/tests.rs") || name.contains("/tests/") || name.starts_with("tests/");
        let product = if is_test { String::new() } else { without_tests(&text) };
        Source { path: name, text, product }
    };
    paths.into_iter().map(read).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with("target") {
            walk(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The text up to the unit tests, which stand at the end of a file.
fn without_tests(text: &str) -> String {
    let mut end = text.len();
    let mut at = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let next_is_module = lines
            .peek()
            .is_some_and(|l| l.trim_start_matches("pub(super) ").starts_with("mod ") && l.contains('{'));
        if line.starts_with("#[cfg(test)]") && next_is_module {
            end = at;
            break;
        }
        at += line.len();
    }
    text[..end].to_string()
}

/// Lines of code with their numbers, comments cut off.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default()))
}

#[track_caller]
fn none(law: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "{law}:\n  {}", broken.join("\n  "));
}

/// First names after `prefix::` in a text, also within braces: `crate::{event::Addr, format}` gives event and format.
fn entered(text: &str, prefix: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for (at, _) in text.match_indices(prefix) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(list) => rooms.extend(first_names(list)),
            None => rooms.extend(name(rest)),
        }
    }
    rooms
}

fn name(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_string())
}

fn first_names(list: &str) -> Vec<String> {
    let (mut depth, mut names, mut fresh) = (1, Vec::new(), true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => fresh = true,
            c if fresh && !c.is_whitespace() => {
                names.extend(name(&list[at..]));
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

#[test]
fn rooms_enter_only_the_rooms_they_may() {
    let all: BTreeSet<&str> = MAY_ENTER.iter().filter_map(|(room, _)| room.strip_prefix("src/")).collect();
    let mut broken = Vec::new();
    for (room, allowed) in MAY_ENTER {
        for source in sources(&[room]) {
            let own = room.strip_prefix("src/");
            let prefixes: &[&str] = if own.is_some() {
                &["crate::", "strandline::"]
            } else {
                &["strandline::", "strandline_core::"]
            };
            let code: String = code(&source.product).map(|(_, line)| format!("{line}\n")).collect();
            for entered in prefixes.iter().flat_map(|p| entered(&code, p)) {
                let known = all.contains(entered.as_str());
                if known && Some(entered.as_str()) != own && !allowed.contains(&entered.as_str()) {
                    broken.push(format!("{} enters {entered}", source.path));
                }
            }
        }
    }
    none("a room enters one that it may not (ARCHITECTURE.md, \"Rooms\")", broken);
}

#[test]
fn the_map_is_whole() {
    let rooms: BTreeSet<String> = fs::read_dir(root().join("src"))
        .expect("src")
        .flatten()
        .filter(|e| e.path().is_dir())
        .map(|e| format!("src/{}", e.file_name().to_string_lossy()))
        .collect();
    let mapped: BTreeSet<String> =
        MAY_ENTER.iter().map(|(r, _)| r.to_string()).filter(|r| r.starts_with("src/")).collect();
    assert_eq!(rooms, mapped, "a room without a law");
    let code = "use crate::{event::{Addr, Bytes}, format};\nlet x = crate::replay::y; mycrate::detect";
    let found: Vec<String> = entered(code, "crate::").into_iter().collect();
    assert_eq!(found, ["event", "format", "replay"], "the law can read");
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut broken = Vec::new();
    for source in sources(&["src", "preload", "tools", "tests"]) {
        let lines = source.text.lines().count();
        if lines > 500 {
            broken.push(format!("{} has {lines} lines (500 is the end, 150 the aim)", source.path));
        }
        let belongs_to_another = source.path.ends_with("/tests.rs");
        if !belongs_to_another && !source.text.trim_start().starts_with("//!") {
            broken.push(format!("{} does not begin with its module doc (//!)", source.path));
        }
    }
    none("a file is too long or does not say what it is for", broken);
}

#[test]
fn nothing_in_the_job_can_panic_or_print() {
    const WORDS: [&str; 14] = [
        ".unwrap()",
        ".expect(",
        "panic!",
        "unreachable!",
        "todo!",
        "unimplemented!",
        "println!",
        "eprintln!",
        "print!(",
        "eprint!(",
        "assert!(",
        "assert_eq!(",
        "process::abort",
        // It takes a refusal by the kernel for a defect: `platform/pause.rs`.
        "thread::sleep",
    ];
    let mut broken = Vec::new();
    for source in sources(&["preload/src"]) {
        for (number, line) in code(&source.product) {
            // What is evaluated by the compiler fails the build, not the job.
            let is_const = ["const _", "debug_assert", "assert!(size_of::<"].iter().any(|w| line.contains(w));
            for word in WORDS.iter().filter(|w| line.contains(**w) && !is_const) {
                broken.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    none("the preload could panic, print or abort in somebody else's job", broken);
}

#[test]
fn unsafe_comes_with_its_proof() {
    let mut broken = Vec::new();
    for source in sources(&["src", "preload", "tools"]) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, line) in code(&source.product) {
            let opens = ["unsafe {", "unsafe impl"].iter().any(|w| line.contains(w));
            if opens && !line.contains("deny(") {
                let from = number.saturating_sub(12);
                let proved = lines[from..number].iter().any(|l| l.contains("SAFETY:"));
                if !proved {
                    broken.push(format!("{}:{number}", source.path));
                }
            }
        }
    }
    none("unsafe without // SAFETY: before it", broken);
}

#[test]
fn variables_are_named_in_one_place() {
    let declared: BTreeSet<String> = quoted(&read("src/format/env.rs")).into_iter().collect();
    let mut broken = Vec::new();
    for source in sources(&["src", "preload/src", "tools/src"]) {
        if source.path == "src/format/env.rs" || source.path.starts_with("src/lib.rs") {
            continue;
        }
        for (number, line) in code(&source.product) {
            for name in quoted(line) {
                // A C string cannot be made of the constant; it may stand where the constant is declared.
                let c_string = line.contains(&format!("c\"{name}\"")) && declared.contains(&name);
                let build_time = line.contains("env!(");
                if !c_string && !build_time && name != "STRANDLINE_" {
                    broken
                        .push(format!("{}:{number}: \"{name}\" (use strandline::format::env)", source.path));
                }
            }
        }
    }
    none("a STRANDLINE_ variable is spelled outside of src/format/env.rs", broken);
}

/// String literals of a text that begin with `STRANDLINE_`.
fn quoted(text: &str) -> Vec<String> {
    let starts = text.match_indices("\"STRANDLINE_").map(|(at, _)| &text[at + 1..]);
    starts
        .filter_map(|rest| rest.split('"').next().map(str::to_string))
        .filter(|s| !s.contains(' '))
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Files that git tracks; `None` outside of a checkout.
fn tracked() -> Option<Vec<String>> {
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let files: Vec<String> = text.split('\0').filter(|f| !f.is_empty()).map(str::to_string).collect();
    (output.status.success() && !files.is_empty()).then_some(files)
}

#[test]
fn the_top_of_the_house_is_known_and_no_machine_is_named() {
    let Some(files) = tracked() else { return };
    // Where this checkout and its owner live is nobody else's business.
    let home = std::env::var("HOME").unwrap_or_default();
    let own: Vec<String> = [root().display().to_string(), home]
        .into_iter()
        .map(|p| format!("{}/", p.trim_end_matches('/')))
        .filter(|p| p.len() > 1)
        .collect();
    let mut broken = Vec::new();
    for file in &files {
        let top = file.split('/').next().unwrap_or(file);
        if !TOP_LEVEL.contains(&top) {
            broken.push(format!("{file}: {top} is not a part of the house"));
        }
        let Ok(text) = fs::read_to_string(root().join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            for path in own.iter().filter(|p| line.contains(p.as_str())) {
                broken.push(format!("{file}:{}: names {path} of one machine", number + 1));
            }
        }
    }
    none("the tracked files hold what is no part of the project", broken);
}

#[test]
fn the_preload_is_made_of_what_is_listed() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .current_dir(root())
        .args(["tree", "-p", "strandline-preload", "-e", "normal", "--prefix", "none", "--format", "{p}"])
        .output()
        .expect("cargo tree");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8_lossy(&tree.stdout);
    let crates: BTreeSet<&str> =
        text.lines().filter_map(|l| l.split(' ').next()).filter(|c| !c.is_empty()).collect();
    assert!(crates.len() > 3, "cargo tree said nothing:\n{text}");
    let more = crates.iter().filter(|c| !PRELOAD_CRATES.contains(c));
    none("a crate in the job that is not on the list", more.map(|c| c.to_string()).collect());
}

/// The shared library as the command carries it, extracted by the command itself.
fn library(folder: &support::Folder) -> PathBuf {
    let status = Command::new(support::strandline())
        .args(["run", "--quiet", "/bin/true"])
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.path())
        .status()
        .expect("the command starts");
    assert!(status.success());
    let cache = fs::read_dir(folder.path().join("strandline")).expect("the cache");
    let library = cache.flatten().map(|e| e.path().join("libstrandline.so")).find(|p| p.exists());
    library.expect("the command has extracted its library")
}

fn objdump(option: &str, file: &Path) -> String {
    let output = Command::new("objdump").arg(option).arg(file).output().expect("objdump (binutils) is there");
    assert!(output.status.success(), "objdump {option} {}", file.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Rows of `objdump -T`: whether it is defined, the version, the name.
fn symbols(text: &str) -> Vec<(bool, String, String)> {
    let row = |line: &str| {
        let mut words = line.split_whitespace().rev();
        let (name, version) = (words.next()?, words.next()?);
        line.starts_with("0").then(|| {
            (!line.contains("*UND*"), version.trim_matches(['(', ')']).to_string(), name.to_string())
        })
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn the_library_exports_its_list_and_needs_little() {
    let folder = support::Folder::new("law");
    let library = library(&folder);
    let dynamic = objdump("-T", &library);
    let exported: BTreeSet<String> = symbols(&dynamic).into_iter().filter(|s| s.0).map(|s| s.2).collect();
    let listed = exports_listed();
    let extra: Vec<&String> = exported.difference(&listed).collect();
    let missing: Vec<&String> = listed.difference(&exported).collect();
    assert!(
        extra.is_empty() && missing.is_empty(),
        "exported but not listed: {extra:?}\nlisted but not exported: {missing:?}"
    );

    let headers = objdump("-p", &library);
    let needed: Vec<&str> =
        headers.lines().filter_map(|l| l.trim().strip_prefix("NEEDED")).map(str::trim).collect();
    const NEEDED: [&str; 5] =
        ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0"];
    none(
        "a library that the job did not ask for",
        needed.iter().filter(|n| !NEEDED.contains(n)).map(|n| n.to_string()).collect(),
    );
    none("a symbol newer than GLIBC_2.28", too_new(&dynamic));
}

/// Symbols that a machine with glibc 2.28 does not have.
fn too_new(dynamic: &str) -> Vec<String> {
    const FLOOR: u32 = 28;
    let minor = |version: &str| {
        version.strip_prefix("GLIBC_2.").and_then(|v| v.split('.').next()?.parse::<u32>().ok())
    };
    let undefined = symbols(dynamic).into_iter().filter(|s| !s.0);
    let new = undefined.filter(|(_, version, _)| minor(version) > Some(FLOOR));
    new.map(|(_, version, name)| format!("{name}@{version}")).collect()
}

/// What `preload/src/hooks` lists: the hooked symbols and the C interface.
fn exports_listed() -> BTreeSet<String> {
    let text = read("preload/src/hooks/list.rs") + &read("preload/src/hooks/exports.rs");
    let hooked = text.lines().filter_map(|line| {
        let (symbol, rest) = line.trim().strip_prefix('"')?.split_once('"')?;
        rest.starts_with(" in ").then(|| symbol.to_string())
    });
    let control =
        text.split("pub const CONTROL").nth(1).and_then(|t| t.split(';').next()).unwrap_or_default();
    let control = control.split('"').skip(1).step_by(2).map(str::to_string);
    let all: BTreeSet<String> = hooked.chain(control).collect();
    assert!(
        all.contains("cudaMalloc") && all.contains("strandline_step"),
        "the law cannot read the list: {all:?}"
    );
    all
}
