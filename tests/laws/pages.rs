//! Commands of other programs than strandline in README.md and docs/ (tests/cli/documented.rs has strandline's own): what one names of the
//! project's tests is there, and what installs or starts something stands in a list with what runs it.

#[path = "../../tools/src/cli/tests/code.rs"]
#[allow(dead_code, reason = "the tests of the command line use more of it")]
mod code;

use super::{none, root, sources};
use std::collections::BTreeSet;
use std::fs;

const PROGRAMS: [&str; 18] = [
    ".ci/release",
    ".ci/tests",
    "apptainer",
    "cargo",
    "docker",
    "go",
    "inferno-flamegraph",
    "kubectl",
    "man",
    "maturin",
    "mpirun",
    "npm",
    "pip",
    "pipx",
    "pytest",
    "ray",
    "srun",
    "uvx",
];

/// How a command begins, and the file and the words in it that run it; a page, if that says when this was done by hand.
const RUN_BY: [(&str, &str, &str); 24] = [
    (".ci/release", "docs/install.md", "On the same day the wheel of `.ci/release`"),
    (".ci/tests", ".ci/run", "\n.ci/tests\n"),
    ("apptainer exec $", "tests/launchers/by_hand.sh", "apptainer exec $"),
    ("cargo deny check", "SECURITY.md", "`cargo deny check` (0.20.2"),
    ("cargo install --locked --path tools", "tests/package.sh", "cargo install --locked --path"),
    ("cargo run --release -- demo", "tests/readme.rs", "fn the_demo_ends_as_the_readme_shows"),
    ("cargo uninstall strandline-tools", "tests/package.sh", "cargo uninstall"),
    ("docker run $", "tests/launchers/by_hand.sh", "docker run"),
    ("go tool pprof -diff_base", "tests/exports.rs", "-diff_base="),
    ("go tool pprof -http", "tests/exports.rs", "fn go_tool_pprof_sums"),
    ("inferno-flamegraph", "tests/exports.rs", "inferno::flamegraph::from_lines"),
    ("kubectl apply -k docs/deploy", "docs/fleet.md", "both recipes `kubectl kustomize`"),
    ("man -l -", "tests/cli/shown.rs", "fn the_manual_is_one_that_man_can_set"),
    ("maturin build --release", "tests/package.rs", "maturin.args([\"build\""),
    ("npm install azurite", "tests/fleet/store.rs", "npm install azurite"),
    ("pip install --no-deps --target SITE", "tests/world/world.py", "--path"),
    ("pip install -U trl>=1.5", "tests/leakbench/trl_offload_streams.py", "1.6.0"),
    ("pip install .", "tests/package.sh", "wheel --no-deps"),
    ("pipx install", "tests/package.sh", "pipx install"),
    ("pytest --strandline", "tests/pytest.rs", "fn six_leaks_of_a_suite_of_forty"),
    ("pytest -n 2 --strandline", "tests/pytest.rs", "fn the_same_on_two_workers_of_xdist"),
    ("ray job submit", "tests/launchers/ray_submit.py", "\"job\", \"submit\""),
    ("srun --task-prolog=", "tests/launchers/by_hand.sh", "srun -n 2 --task-prolog="),
    ("uvx --from", "tests/package.sh", "uvx --from"),
];

/// The words of all commands of the pages, without the variables before them, and the page's path.
fn commands() -> Vec<(String, Vec<String>)> {
    let entries = fs::read_dir(root().join("docs")).expect("docs").flatten().map(|e| e.path());
    let pages =
        entries.filter(|p| p.extension().is_some_and(|e| e == "md")).chain([root().join("README.md")]);
    let mut all = Vec::new();
    for page in pages {
        let name = page.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let text = fs::read_to_string(&page).expect("a page");
        for words in code::code(&text).iter().flat_map(|c| code::commands(c)) {
            let is_setting = |w: &&String| {
                w.split_once('=').is_some_and(|(n, _)| n.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
            };
            all.push((name.clone(), words.iter().skip_while(is_setting).cloned().collect()));
        }
    }
    all
}

#[test]
fn tests_and_scripts_that_pages_name_are_there() {
    let all = sources(&["src", "preload", "tools", "tests"]);
    let functions = all
        .iter()
        .flat_map(|s| s.text.split("fn ").skip(1))
        .map(|rest| rest.split(['(', '<']).next().unwrap_or(""));
    let files = all.iter().map(|s| s.path.as_str());
    let names: Vec<&str> = functions.chain(files).collect();
    let mut broken = Vec::new();
    for (page, words) in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let absent: Vec<&str> = match words[..] {
            ["cargo", "test", ref rest @ ..] => {
                let mut wanted = Vec::new();
                let mut rest = rest.iter();
                while let Some(&word) = rest.next() {
                    let is_there = match word {
                        "-p" => {
                            rest.next();
                            true
                        }
                        "--test" => rest.next().is_none_or(|t| {
                            ["", "/main"].iter().any(|m| root().join(format!("tests/{t}{m}.rs")).exists())
                        }),
                        _ => {
                            word.starts_with('-')
                                || word.split("::").all(|w| names.iter().any(|n| n.contains(w)))
                        }
                    };
                    wanted.extend((!is_there).then_some(word));
                }
                wanted
            }
            _ => {
                let is_ours = |w: &&&str| {
                    ["tests/", ".ci/", "tools/", "docs/"].iter().any(|f| w.starts_with(f))
                        && !w.contains(['*', '…', '<', '{'])
                };
                words.iter().take(2).filter(is_ours).filter(|w| !root().join(w).exists()).copied().collect()
            }
        };
        broken.extend(absent.iter().map(|a| format!("{page}: `{}`: {a}", words.join(" "))));
    }
    none("a page names a test or a script that is not there", broken);
}

#[test]
fn what_pages_install_and_start_is_run_by_a_test_or_a_script() {
    let (mut used, mut broken) = (BTreeSet::new(), Vec::new());
    for (page, words) in commands() {
        let is_test = words.iter().take(2).map(String::as_str).eq(["cargo", "test"]);
        if is_test
            || words.len() < 3 && !words.iter().any(|w| w.contains('/'))
            || !PROGRAMS.contains(&words.first().map_or("", String::as_str))
        {
            continue;
        }
        let line = words.join(" ");
        match RUN_BY.iter().position(|(begins, ..)| line.starts_with(begins) || begins.starts_with(&line)) {
            Some(i) => {
                used.insert(i);
            }
            None => broken.push(format!("{page}: {line}")),
        }
    }
    for (i, (begins, file, what)) in RUN_BY.iter().enumerate() {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        broken.extend((!used.contains(&i)).then(|| format!("no page has `{begins}`")));
        broken
            .extend((!text.contains(what)).then(|| format!("{file} has no {what:?}, which runs `{begins}`")));
    }
    none("a command of a page that neither a test nor a script runs", broken);
}
