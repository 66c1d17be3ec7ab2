//! The pytest plugin: what each test of a suite leaves behind on the (simulated) GPU, and which line allocated it. The suite itself
//! says which of its lines leak.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{Folder, cache, command, packages, python, root};

const SUITE: &str = "tests/python/pytest_suite";

/// Who keeps what each test that leaks allocated. Of every list there are three entries: two warm-up calls, and the one that counts.
const KEPT_BY: [(&str, &str); 6] = [
    ("test_a_list_of_the_module_keeps", "test_planted.HISTORY (list with 3 entries)"),
    ("test_a_cache_without_bound_keeps", "test_planted.looked_up (functools.lru_cache)"),
    (
        "test_an_exception_keeps_its_frames",
        "a local variable of fails(), in test_planted.FAILURES (list with 3 entries)",
    ),
    (
        "test_a_hook_that_stays_keeps",
        "Recorder.seen (list with 3 entries), in Linear._forward_hooks (OrderedDict with 3 entries)",
    ),
    ("test_losses_keep_their_graphs", "test_planted.LOSSES (list with 3 entries)"),
    (
        "test_a_closure_that_is_registered_keeps",
        "a variable that test_a_closure_that_is_registered_keeps.<locals>.<lambda>() captured, \
         in test_planted.CALLBACKS (list with 3 entries)",
    ),
];

/// The statements that keep it, where there is one that can be told: `FAILURES.append(e)` stands there twice.
const KEPT_AT: [(&str, &str); 5] = [
    ("test_a_list_of_the_module_keeps", "test_planted.py:23: HISTORY.append("),
    ("test_a_cache_without_bound_keeps", "test_planted.py:31: @functools.lru_cache(maxsize=None)\n"),
    ("test_a_hook_that_stays_keeps", "test_planted.py:77: self.seen.append(output * 2)\n"),
    ("test_losses_keep_their_graphs", "test_planted.py:98: LOSSES.append(weight.exp().mean())\n"),
    (
        "test_a_closure_that_is_registered_keeps",
        "test_planted.py:108: CALLBACKS.append(lambda: buffer.sum())\n",
    ),
];

/// How the tests are run.
#[derive(Clone, Copy, PartialEq)]
enum Door {
    /// `strandline run -- python -m pytest`.
    Run,
    /// `python -m pytest`: the plugin records its own process.
    Plugin,
}

/// Runs pytest in a folder; `None` where its packages cannot be had.
fn pytest(folder: &Folder, door: Door, arguments: &[&str], variables: &[(&str, &str)]) -> Option<Output> {
    let installed = packages::of_the_index("pytest-1", &["pytest==9.2.0", "pytest-xdist==3.8.0"])?;
    let mut run = Command::new(if door == Door::Run { command() } else { python() });
    if door == Door::Run {
        run.args(["run", "-q", "-o", "out", "--"]).arg(python());
    }
    std::fs::write(folder.join("pytest.ini"), "[pytest]\n").expect("a file");
    let path = format!("{}:{}", root().join("tools/python").display(), installed.display());
    run.args(["-m", "pytest", "-p", "no:cacheprovider", "-p", "strandline.pytest_plugin"]).args(arguments);
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    run.current_dir(folder.path()).env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    run.env("STRANDLINE_BIN", command()).env("STRANDLINE_TAIL", folder.path()).env("COLUMNS", "200");
    // Where these are set pytest's summary repeats the whole of what failed.
    run.env_remove("CI").env_remove("BUILD_NUMBER");
    run.env("XDG_CACHE_HOME", cache()).env_remove("LD_PRELOAD").envs(variables.iter().copied());
    Some(run.stdin(Stdio::null()).output().expect("it starts"))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Tests that leak by the suite's own account: the test, and the line that allocates what it keeps.
fn planted() -> BTreeMap<String, String> {
    let source = std::fs::read_to_string(root().join(SUITE).join("test_planted.py")).expect("the suite");
    let marked =
        source.lines().enumerate().filter_map(|(i, line)| Some((i + 1, line.split_once("# LEAK of ")?.1)));
    marked
        .map(|(line, test)| (format!("test_planted.py::{test}"), format!("test_planted.py:{line}")))
        .collect()
}

/// Tests that were found to leak, by the table at the end, each with the line that is named first.
fn named(said: &str) -> BTreeMap<String, String> {
    let rows = said.lines().filter(|l| l.starts_with("LEAK "));
    let words = rows.map(|l| l.split_whitespace().collect::<Vec<_>>());
    words.map(|w| (w[5].to_string(), w[8].to_string())).collect()
}

#[track_caller]
fn only_the_planted_are_named(door: Door, arguments: &[&str], passed: usize) {
    let folder = Folder::new("pytest");
    for file in ["conftest.py", "test_healthy.py", "test_planted.py"] {
        std::fs::copy(root().join(SUITE).join(file), folder.join(file)).expect("a copy");
    }
    let Some(output) = pytest(&folder, door, arguments, &[]) else { return };
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let truth = planted();
    assert_eq!(truth.len(), 6);
    assert_eq!(named(&said), truth, "{said}");
    // Each is told where it failed as well, with its line.
    let kept: BTreeMap<_, _> = KEPT_BY.into_iter().collect();
    for (test, line) in &truth {
        let failure = said.split("ERROR at teardown of ").skip(1);
        let name = test.split("::").nth(1).expect("a test");
        let by = format!("held by {}\n", kept[name]);
        let at = KEPT_AT.iter().find(|(test, _)| *test == name).map(|(_, at)| format!("kept at {at}"));
        let is_right = |f: &str| at.as_ref().map_or(!f.contains("kept at "), |at| f.contains(at.as_str()));
        let told = failure
            .filter(|f| f.starts_with(name))
            .any(|f| f.contains(&format!("allocated at {line} ")) && f.contains(&by) && is_right(f));
        assert!(told, "{test} at {line}: {said}");
    }
    assert!(said.contains(&format!("{passed} passed")) && said.contains("6 errors"), "{said}");
    assert!(!said.contains("not judged"), "{said}");
}

#[test]
fn six_leaks_of_a_suite_of_forty_are_named_and_no_other() {
    only_the_planted_are_named(Door::Run, &["--strandline"], 38);
}

#[test]
fn the_same_on_two_workers_of_xdist() {
    only_the_planted_are_named(Door::Run, &["-n", "2"], 38);
}

#[test]
fn the_same_where_nothing_stands_before_pytest() {
    only_the_planted_are_named(Door::Plugin, &["test_planted.py"], 14);
}

#[track_caller]
fn one_file(source: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Option<(Option<i32>, String)> {
    let folder = Folder::new("pytest-one");
    std::fs::write(folder.join("test_one.py"), source).expect("a file");
    let output = pytest(&folder, Door::Run, arguments, variables)?;
    Some((output.status.code(), text(&output)))
}

const LIMITS: &str = r#"
import pytest, torch

kept = []

@pytest.mark.limit_gpu_memory("8 MiB")
def test_needs_much():
    torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")
    small = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    large = torch.zeros(12 << 20, dtype=torch.uint8, device="cuda")

@pytest.mark.limit_gpu_memory("16 MiB")
def test_needs_less():
    torch.zeros(12 << 20, dtype=torch.uint8, device="cuda")

def test_has_no_limit():
    kept.append(torch.zeros(3 << 20, dtype=torch.uint8, device="cuda"))
"#;

#[test]
fn a_peak_above_the_limit_is_told_with_the_lines_that_held_it() {
    let Some((status, said)) = one_file(LIMITS, &[], &[]) else { return };
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("13.0 MiB in use on GPU 0, 8.0 MiB allowed: test_one.py::test_needs_much"),
        "{said}"
    );
    assert!(
        said.contains("12.0 MiB  1 block     held at the peak by test_one.py:10 test_needs_much"),
        "{said}"
    );
    assert!(
        said.contains("1.0 MiB  1 block     held at the peak by test_one.py:9 test_needs_much"),
        "{said}"
    );
    assert!(said.contains("3 passed, 1 error"), "{said}");
    // Nobody asked about the third.
    assert!(!said.contains("test_has_no_limit"), "{said}");
}

#[test]
fn what_tests_leave_is_listed_where_it_is_asked_for_and_fails_where_there_is_a_limit() {
    let only = ["-k", "no_limit", "--strandline"];
    let Some((status, said)) = one_file(LIMITS, &only, &[]) else { return };
    assert_eq!(status, Some(0), "{said}");
    let row = said.lines().find(|l| l.starts_with("left ")).unwrap_or_else(|| panic!("{said}"));
    assert!(
        row.contains("3.0 MiB  1 block  test_one.py::test_has_no_limit  allocated at test_one.py:17 "),
        "{row}"
    );
    let Some((status, said)) = one_file(LIMITS, &["-k", "no_limit", "--strandline-limit", "2 MiB"], &[])
    else {
        return;
    };
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("3.0 MiB left behind on the GPU, 2.0 MiB allowed"), "{said}");
    let Some((status, said)) = one_file(LIMITS, &["-k", "no_limit", "--strandline-limit", "4 MiB"], &[])
    else {
        return;
    };
    assert_eq!(status, Some(0), "{said}");
    let Some((status, said)) = one_file(LIMITS, &["--strandline-limit", "much"], &[]) else { return };
    assert_eq!(status, Some(4), "bad usage: {said}");
    assert!(said.contains("'much' is not an amount of memory"), "{said}");
}

#[test]
fn without_a_gpu_a_limit_is_not_judged_and_that_is_said() {
    let source = "
import pytest

@pytest.mark.limit_gpu_leaks
def test_computes():
    import torch
    assert torch.zeros(8).sum() is not None
";
    let Some((status, said)) = one_file(source, &[], &[("STRANDLINE_SIM_DEVICES", "0")]) else { return };
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("not judged: 1 test: PyTorch finds no GPU here"), "{said}");
    assert!(said.contains("strandline run --simulate 24GiB -- pytest"), "{said}");
}

#[test]
fn tests_that_ask_for_nothing_pay_for_nothing() {
    let source = "
import sys

def test_nothing_is_loaded():
    ours = {m for m in sys.modules if m.split('.')[0] == 'strandline'}
    assert ours == {'strandline', 'strandline.pytest_plugin'}
    assert 'torch' not in sys.modules
    assert not any('libstrandline.so' in line for line in open('/proc/self/maps'))
";
    let folder = Folder::new("pytest-idle");
    std::fs::write(folder.join("test_one.py"), source).expect("a file");
    let Some(output) = pytest(&folder, Door::Plugin, &[], &[]) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(!text(&output).contains("strandline:"), "{}", text(&output));
    assert!(!Path::new(&folder.join("strandline")).exists(), "nothing is recorded");
}

const HIDDEN: &str = r#"
import pytest, torch

def block(mib):
    return torch.zeros(mib << 20, dtype=torch.uint8, device="cuda")

kept, old = [], [block(16)]

@pytest.fixture(scope="module")
def table():
    held = [block(8)]
    held.append(held)
    yield held

@pytest.mark.limit_gpu_leaks
def test_the_last_of_the_module(table):
    kept.append(block(1))

@pytest.fixture(scope="class")
def shelf():
    return block(8)

class TestOne:
    @pytest.mark.limit_gpu_leaks(warmup=2)
    def test_the_last_of_the_class_whose_warmup_frees(self, shelf):
        old.clear()
        kept.append(block(1))
"#;

#[test]
fn what_fixtures_and_warmups_give_back_hides_no_leak() {
    // The module's fixture is torn down with its last test: that is the one of the class, or the other.
    for which in ["last_of_the_module", "last_of_the_class"] {
        let Some((status, said)) = one_file(HIDDEN, &["-k", which], &[]) else { return };
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("1.0 MiB left behind on the GPU, 0 bytes allowed"), "{said}");
        assert!(said.contains("1 passed, 1 deselected, 1 error"), "{said}");
    }
}

const PYTEST_KEEPS: &str = r#"
import pytest, torch

@pytest.fixture(scope="session")
def net():
    layer = torch.nn.Linear(8, 8).cuda()
    layer.register_buffer("memory", torch.zeros(0, 1 << 18, device="cuda"))
    yield layer

@pytest.mark.limit_gpu_leaks
def test_a_buffer_grows(net):
    net.memory = torch.cat([net.memory, torch.ones(1, 1 << 18, device="cuda")])

@pytest.mark.limit_gpu_leaks
def test_a_property_is_recorded(record_property):
    record_property("loss", torch.zeros(2 << 20, dtype=torch.uint8, device="cuda"))

failures = []

@pytest.mark.limit_gpu_leaks
def test_what_was_raised_is_kept():
    def fails():
        held = torch.zeros(3 << 20, dtype=torch.uint8, device="cuda")
        raise ValueError
    with pytest.raises(ValueError) as raised:
        fails()
    failures.append(raised)
"#;

#[test]
fn objects_of_pytest_and_of_the_plugin_are_not_named() {
    let Some((status, said)) = one_file(PYTEST_KEEPS, &[], &[]) else { return };
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("1.0 MiB left behind") && said.contains("2.0 MiB left behind"), "{said}");
    let kept: Vec<_> = said.lines().filter_map(|l| l.trim().strip_prefix("held by ")).collect();
    let right = [
        "Linear._buffers (dict with 1 entry)",
        "a local variable of fails(), in test_one.failures (list with 2 entries)",
    ];
    assert_eq!(kept, right, "{said}");
}
