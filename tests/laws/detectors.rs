//! Laws about the detectors: a kind of finding is one file of `src/detect/kinds` and one entry of its registry, and what differs from
//! kind to kind is said there.

use super::circles::uses;
use super::{code, none, read, sources};
use std::collections::BTreeSet;

const KINDS: &str = "src/detect/kinds/";
const REGISTRY: &str = "src/detect/kinds/mod.rs";

#[test]
fn a_detector_is_imported_by_the_registry_alone() {
    let uses = uses("src");
    let detectors: Vec<&String> =
        uses.keys().filter(|f| f.starts_with(KINDS) && f.as_str() != REGISTRY).collect();
    assert!(detectors.len() > 5, "the law finds the detectors: {detectors:?}");
    let mut broken = Vec::new();
    for detector in detectors {
        if !uses[REGISTRY].contains(detector) {
            broken.push(format!("{detector} is not in {REGISTRY}"));
        }
        let others = uses.iter().filter(|(user, used)| user.as_str() != REGISTRY && used.contains(detector));
        broken.extend(others.map(|(user, _)| format!("{user} uses {detector}")));
    }
    none("a detector is imported by its registry, and by nothing else", broken);
}

/// The names that the registry gives to kinds.
fn names() -> Vec<String> {
    let registry = read(REGISTRY);
    let name = |line: &str| Some(line.trim().split_once(" = ")?.0.to_string());
    registry.lines().filter(|l| l.ends_with("::DETECTOR,")).filter_map(name).collect()
}

#[test]
fn nothing_but_the_registry_knows_kinds_by_their_names() {
    let names = names();
    assert!(names.len() > 5, "the law can read the registry: {names:?}");
    let mut broken = Vec::new();
    for source in sources(&["src/detect", "src/report", "tools/src"]).iter().filter(|s| s.path != REGISTRY) {
        for (number, line) in code(&source.product) {
            let named = names.iter().filter(|n| line.contains(&format!("Kind::{n}")));
            broken.extend(named.map(|n| format!("{}:{number}: Kind::{n}", source.path)));
        }
    }
    none("a kind is asked for its properties (src/detect/kind.rs), not for which it is", broken);
}

/// The stable name of the kind that a detector's file finds.
fn stable_name(text: &str) -> Option<&str> {
    text.split("KindInfo::named(").nth(1)?.split('"').nth(1)
}

#[test]
fn each_kind_has_a_name_of_its_own_and_a_row_in_the_docs() {
    let docs = read("docs/findings.md");
    let rows: Vec<&str> = docs.lines().filter(|l| l.starts_with("| `")).collect();
    let (mut seen, mut broken) = (BTreeSet::new(), Vec::new());
    for source in sources(&[KINDS]).iter().filter(|s| s.path != REGISTRY) {
        let Some(name) = stable_name(&source.product) else {
            broken.push(format!("{} names no kind", source.path));
            continue;
        };
        if !rows.iter().any(|row| row.contains(&format!("`{name}`"))) {
            broken.push(format!("{name} of {} has no row in docs/findings.md", source.path));
        }
        if !seen.insert(name.to_string()) {
            broken.push(format!("{}: another detector is called {name}", source.path));
        }
    }
    assert!(seen.len() > 5, "the law can read names: {seen:?}");
    none("each kind has a name of its own and a row in docs/findings.md", broken);
}
