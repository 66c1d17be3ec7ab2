//! Laws about what comes from elsewhere and what goes there: one way to make a file, one way to show a name, and crates whose licences
//! and sources are known.

use super::{code, none, sources};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// The one place that makes files and folders.
const MAKES_FILES: &str = "tools/src/files/";
/// The one place that opens what is to be read, and nothing else.
const OPENS_FILES: &str = "src/reader/open.rs";

#[test]
fn files_and_folders_are_made_in_one_place() {
    const WORDS: [&str; 12] = [
        "File::create",
        "File::options",
        "OpenOptions",
        "fs::write(",
        "create_dir",
        "DirBuilder",
        "create_new(",
        "fs::copy(",
        "hard_link(",
        "symlink(",
        "set_permissions(",
        "O_CREAT",
    ];
    let all = sources(&["tools/src", "src"]);
    assert!(all.iter().any(|s| s.path.starts_with(MAKES_FILES)), "{MAKES_FILES} is not there");
    let mut broken = Vec::new();
    for source in all.iter().filter(|s| !s.path.starts_with(MAKES_FILES) && s.path != OPENS_FILES) {
        for (number, line) in code(&source.product) {
            // What makes a file below a folder that is open, by the one place's own function of that name.
            let is_its_own = line.contains("folder.create_new(") || line.contains("files::");
            for word in WORDS.iter().filter(|w| line.contains(**w) && !is_its_own) {
                broken.push(format!("{}:{number}: {word} (use crate::files)", source.path));
            }
        }
    }
    none("a file is made elsewhere than in tools/src/files", broken);
}

#[test]
fn paths_are_shown_as_foreign_names() {
    // Where a path is a word for a shell or a loader, it is not for people.
    const EXACT: [&str; 7] = [
        "tools/src/env/",
        "tools/src/environment/",
        "tools/src/doctor/mod.rs",
        "tools/src/simulate/link.rs",
        "tools/src/simulate/python.rs",
        "tools/src/simulate/error.rs",
        "tools/src/files/",
    ];
    let mut broken = Vec::new();
    for source in
        sources(&["tools/src", "src"]).iter().filter(|s| !EXACT.iter().any(|e| s.path.starts_with(e)))
    {
        for (number, line) in code(&source.product).filter(|(_, line)| line.contains(".display()")) {
            broken.push(format!("{}:{number}: {} (use crate::say::path)", source.path, line.trim()));
        }
    }
    none("a path may hold escape sequences, and is shown as it is", broken);
}

/// What cargo knows of every crate that anything here is made of.
fn crates() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.current_dir(super::root()).args(["metadata", "--format-version", "1", "--locked", "--offline"]);
    let output =
        metadata.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    all["packages"].as_array().expect("packages").clone()
}

/// Licences under which others' code may be a part of ours, as `deny.toml` lists them.
fn licences() -> Vec<String> {
    let text = super::read("deny.toml");
    let list =
        text.split("allow = [").nth(1).and_then(|t| t.split(']').next()).expect("deny.toml lists licences");
    list.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

/// Crates that may have a licence of their own, as `deny.toml` lists them.
fn exceptions() -> Vec<(String, String)> {
    let text = super::read("deny.toml");
    let list = text.split("exceptions = [").nth(1).and_then(|t| t.split("\n]").next()).unwrap_or_default();
    let words = |line: &str| line.split('"').skip(1).step_by(2).map(str::to_string).collect::<Vec<_>>();
    let of = |line: &str| match words(line).as_slice() {
        [licence, name] => Some((name.clone(), licence.clone())),
        _ => None,
    };
    list.lines().filter_map(of).collect()
}

/// `(MIT OR Apache-2.0) AND Unicode-3.0`: whether it can be met with these.
fn is_met(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let all = words.join(" ").replace("( ", "(").replace(" )", ")");
    // Licences with an exception are listed with it; what is in brackets is one of several.
    all.split(" AND ").all(|part| {
        let part = part.trim_matches(['(', ')']);
        part.split(" OR ").any(|one| allowed.iter().any(|a| a == one.trim_matches(['(', ')'])))
    })
}

#[test]
fn every_crate_has_a_licence_that_is_allowed_and_comes_from_the_registry() {
    let (allowed, exceptions) = (licences(), exceptions());
    assert!(is_met("MIT OR Apache-2.0", &allowed) && is_met("(MIT OR Apache-2.0) AND Unicode-3.0", &allowed));
    assert!(
        !is_met("GPL-3.0-only", &allowed) && !is_met("MIT AND GPL-3.0-only", &allowed),
        "the law can tell"
    );
    let mut broken = Vec::new();
    let mut versions: BTreeMap<String, u32> = BTreeMap::new();
    let crates = crates();
    assert!(crates.len() > 50, "cargo named {} crates", crates.len());
    for c in &crates {
        let text = |key: &str| c[key].as_str().unwrap_or_default().to_string();
        *versions.entry(text("name")).or_default() += 1;
        let own =
            exceptions.iter().any(|(name, licence)| (name, licence) == (&text("name"), &text("license")));
        if !own && !is_met(&text("license"), &allowed) {
            broken.push(format!("{} {}: licence {:?}", text("name"), text("version"), text("license")));
        }
        let source = text("source");
        if !source.is_empty() && source != "registry+https://github.com/rust-lang/crates.io-index" {
            broken.push(format!("{} {}: from {source}", text("name"), text("version")));
        }
    }
    none("a crate's licence or source is not one of deny.toml", broken);
}
