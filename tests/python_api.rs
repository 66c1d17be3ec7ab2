//! The Python package: what its documents show runs as they show it, and its types are right.

#[path = "python_api/documents.rs"]
mod documents;
mod support;

use serde_json::{Value, json};
use std::process::{Command, Stdio};
use support::{Folder, Job, cache, command, packages, python, root};

/// The blocks of a document that begin with a fence of this language, in their order.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).expect("the document");
    let begins = format!("```{language}\n");
    let found = text.split(&begins).skip(1).filter_map(|rest| rest.split("\n```").next());
    found.map(str::to_string).collect()
}

/// The examples of a document as one script, each followed by a line of its own output.
fn examples() -> String {
    blocks("docs/python-api.md", "python").join("\n\n")
}

#[track_caller]
fn runs(folder: &Folder, preload: bool) -> String {
    std::fs::write(folder.join("train.py"), examples()).expect("a script");
    let job = Job::program(folder, python()).arg("-u").arg("train.py");
    let job = job.env("PYTHONPATH", root().join("tools/python")).env("STRANDLINE_BIN", command());
    let job = if preload { job } else { job.env("LD_PRELOAD", "") };
    let ran = job.env("XDG_CACHE_HOME", cache()).run().succeeded();
    ran.stdout()
}

#[test]
fn the_examples_run_in_a_process_that_asks_for_strandline() {
    let folder = Folder::new("api");
    let said = runs(&folder, false);
    // What the document says that it prints, with the lines of this very script.
    let shown = blocks("docs/python-api.md", "text");
    let script = examples();
    let line = script.lines().position(|l| l.contains("history.append")).expect("the line") + 1;
    let words = format!("allocated at {}:{line} <module>", folder.join("train.py").display());
    assert!(said.contains(&words), "{words}: {said}");
    let [head, row, kept, at] = shown[0].lines().collect::<Vec<_>>()[..] else { panic!("{shown:?}") };
    assert!(said.lines().any(|l| l == kept), "{kept}: {said}");
    let statement = at.split(&format!("train.py:{line}: ")).nth(1).expect("the document's statement");
    let told = said
        .lines()
        .any(|l| l.contains("  kept at ") && l.ends_with(&format!("train.py:{line}: {statement}")));
    assert!(told, "{at}: {said}");
    assert!(said.contains(head), "{head}: {said}");
    assert!(said.contains(row.split("allocated at").next().expect("the figures")), "{row}: {said}");
    assert!(row.ends_with(&format!("train.py:{line} <module>")), "the document's line is {line}");
    assert!(said.contains("clean no line"), "{said}");

    // The region that the script marked itself, once it has ended.
    let recording = folder.files(".strand").pop().expect("a recording");
    let mut left = Command::new(command());
    left.arg("left").arg(&recording).args(["--region", "epoch 2"]);
    let output = left.env("XDG_CACHE_HOME", cache()).output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, "strandline: nothing is left behind by \"epoch 2\"\n");
    let output = left.args(["--region", "epoch 3"]).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_examples_run_in_a_process_that_was_preloaded() {
    let said = runs(&Folder::new("api-preload"), true);
    assert!(said.contains("4.0 MiB left behind on the GPU, 1.0 MiB allowed"), "{said}");
}

const NASTY: &str = r#"
import asyncio
import gc
import threading

import torch
import strandline

def left(function):
    with strandline.watch_region(limit=None) as region:
        function()
    return region.left

kept = []
def keep(mib):
    kept.append(torch.zeros(mib << 20, dtype=torch.uint8, device="cuda"))

# The first use of CUDA is within the region.
first = left(lambda: keep(3))
assert first.bytes == 3 << 20, first
assert first.lines[0].function == "keep", first

# An exception passes as it is, whatever was left, and the region's name is free again.
for _ in range(3):
    try:
        with strandline.watch_region(limit=0) as region:
            keep(1)
            raise KeyError("mine")
    except KeyError as e:
        assert e.args == ("mine",)
    try:
        region.left
        raise SystemExit("an unjudged region says what it left")
    except strandline.Error:
        pass

# Regions within regions, and on other threads.
with strandline.watch_region(limit=None) as outer:
    keep(1)
    inner = left(lambda: keep(2))
    thread = threading.Thread(target=keep, args=(4,))
    thread.start(); thread.join()
assert (inner.bytes, outer.left.bytes) == (2 << 20, 7 << 20), (inner, outer.left)

# A cycle is no leak, and garbage from before hides none.
gc.disable()
cycle = [torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")]
cycle.append(cycle)
del cycle
assert left(lambda: keep(1)).bytes == 1 << 20
def make_cycle():
    cycle = [torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")]
    cycle.append(cycle)
assert left(make_cycle).bytes == 0
gc.enable()

# What waits for a stream was freed.
def waits():
    side = torch.cuda.Stream()
    block = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
    block.record_stream(side)
assert left(waits).bytes == 0

# One that is entered twice, and sizes that are none.
region = strandline.watch_region(limit=None)
with region:
    try:
        region.__enter__()
        raise SystemExit("a region began twice")
    except strandline.Error:
        pass
for wrong in ("much", "1 parsec", -1, True, 1.5):
    try:
        strandline.watch_region(limit=wrong)
        raise SystemExit(f"{wrong!r} passed")
    except strandline.Error:
        pass

# Phases: the one before begins again, and a function is one each time that it is called.
@strandline.phase("function")
def within(x, *, y):
    "Documented."
    return x + y
assert within(1, y=2) == 3 and within.__doc__ == "Documented."
@strandline.phase("coroutine")
async def awaits():
    await asyncio.sleep(0)
    strandline.mark("within")
    return 4
assert asyncio.run(awaits()) == 4
try:
    @strandline.phase("generator")
    def values():
        yield 1
    raise SystemExit("a generator passed")
except strandline.Error:
    pass
with strandline.phase("outer") as outer_phase:
    assert outer_phase
    with strandline.phase("inner"):
        pass
print("done")
"#;

/// A wrong statement is worse than none.
#[test]
fn what_a_region_leaves_is_told_with_the_statement_that_keeps_it() {
    let folder = Folder::new("api-keepers");
    std::fs::copy(root().join("tests/python/region_keepers.py"), folder.join("job.py")).expect("a copy");
    let job = Job::program(&folder, python()).arg("job.py").env("LD_PRELOAD", "");
    let job = job.env("PYTHONPATH", root().join("tools/python")).env("STRANDLINE_BIN", command());
    let said = job.env("XDG_CACHE_HOME", cache()).run_imported().succeeded().stdout();
    assert!(said.contains("  kept at "), "{said}");
    assert!(said.ends_with("done\n"), "{said}");
}

#[test]
fn regions_that_are_nested_threaded_or_broken_are_told_right() {
    for preload in [true, false] {
        let folder = Folder::new("api-nasty");
        std::fs::write(folder.join("job.py"), NASTY).expect("a script");
        let job = Job::program(&folder, python()).arg("-u").arg("job.py");
        let job = job.env("PYTHONPATH", root().join("tools/python")).env("STRANDLINE_BIN", command());
        let job = if preload { job } else { job.env("LD_PRELOAD", "") };
        let ran = job.env("XDG_CACHE_HOME", cache()).run_imported().succeeded();
        assert!(ran.stdout().ends_with("done\n"), "{}", ran.stdout());
        // What an async function does is within its phase.
        let said = support::strandline(&["dump".as_ref(), ran.recording().as_os_str()]);
        let named: Vec<_> =
            said.lines().filter_map(|l| l.split_once(" name=").map(|(_, name)| name)).collect();
        assert!(named.windows(2).any(|w| w == ["coroutine", "within"]), "{named:?}");
    }
}

const STOPS: &str = r#"
import json, os, sys, threading, torch, strandline

if sys.argv[1] == "late":
    strandline.start()
if sys.argv[1] == "pluggable":
    strandline.use_allocator()
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
kept = []

def train(steps, bytes):
    for _ in range(steps):
        kept.append(torch.zeros(bytes, dtype=torch.uint8, device="cuda"))
        model(torch.randn(64, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

train(9, 1 << 20)
peak = torch.cuda.max_memory_allocated()
# Other threads allocate meanwhile, and are in the middle of a call.
busy, seen = threading.Event(), []
def allocate():
    while not busy.is_set():
        torch.zeros(1 << 10, device="cuda")
    seen.append(True)
threads = [threading.Thread(target=allocate) for _ in range(3)]
for t in threads: t.start()
path = strandline.stop()
assert strandline.stop() is None and not strandline.step(10) and not strandline.mark("after")
size = os.path.getsize(path)
busy.set()
for t in threads: t.join()
before = torch.cuda.memory_allocated()
train(9, 16 << 20)
assert torch.cuda.memory_allocated() >= before + 9 * (16 << 20) and len(seen) == 3
kept.clear()
assert torch.cuda.memory_allocated() < before
assert os.path.getsize(path) == size and strandline.recording() == path
try:
    strandline.start()
    raise SystemExit("it was started again")
except strandline.Error as e:
    assert "strandline.stop() has ended its recording" in str(e), e
if os.fork() == 0:
    os._exit(strandline.stop() is not None)
assert os.wait()[1] == 0
told = strandline.report()
html = told._repr_html_()
assert html == "<pre>" + str(told).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;").replace("'", "&#x27;") + "</pre>", html
assert told.verdict in html.lower() or "too short" in html.lower(), html
print(json.dumps({"path": path, "peak": peak, "size": size}))
"#;

/// `stop()` completes the recording, and the job goes on as without it, whichever way it was recorded.
#[test]
fn a_recording_that_the_program_ends_is_complete_and_the_program_goes_on() {
    for way in ["preload", "late", "pluggable"] {
        let folder = Folder::new("api-stop");
        std::fs::write(folder.join("job.py"), STOPS).expect("a script");
        let job = Job::program(&folder, python()).arg("-u").arg("job.py").arg(way);
        let job = job.env("PYTHONPATH", root().join("tools/python")).env("STRANDLINE_BIN", command());
        let job = if way == "preload" { job } else { job.env("LD_PRELOAD", "") };
        let ran = job.env("XDG_CACHE_HOME", cache()).run_imported().succeeded();
        let said: Value =
            serde_json::from_str(&ran.stdout()).unwrap_or_else(|e| panic!("{way}: {e}: {}", ran.stdout()));
        assert_eq!(said["path"], json!(ran.recording()), "{way}");
        assert!(folder.tails().is_empty(), "{way}: the tail is gone: {:?}", folder.tails());
        let length = std::fs::metadata(ran.recording()).expect("the recording").len();
        assert_eq!(said["size"], json!(length), "{way}: nothing was written after it");
        let report = support::report(&ran.recording());
        let p = &report.process;
        assert_eq!(
            (&p["ended"], &p["events_lost"], &p["damage"]),
            (&json!("stopped"), &json!(0), &json!([])),
            "{way}: {p:#}"
        );
        // The step that was under way has not ended in it.
        assert!(p["steps"].as_u64().is_some_and(|n| n == 8 || n == 9), "{way}: {}", p["steps"]);
        let peak = &p["devices"][0]["peak_allocated_bytes"];
        assert!(peak.as_u64() >= said["peak"].as_u64() && peak.as_u64() < Some(64 << 20), "{way}: {peak}");
        let mut text = Command::new(command());
        let text = text
            .arg("report")
            .arg(ran.recording())
            .env("COLUMNS", "300")
            .output()
            .expect("the command starts");
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains(" · the program stopped the recording"), "{way}: {text}");
    }
}

const CELLS: &str = r#"
import asyncio
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor")
AWAITS = "%%strandline\nawait __import__('asyncio').sleep(0)\nprint('awaited')"
for cell in [
    "%load_ext strandline",
    "import torch",
    "%%strandline\nkept = torch.zeros(4 << 20, dtype=torch.uint8, device='cuda')",
    "print(kept.numel())",
    "%%strandline\nfor _ in range(3):\n    torch.zeros(4 << 20, dtype=torch.uint8, device='cuda')",
    "%%strandline 1 MiB\nmore = [torch.zeros(2 << 20, dtype=torch.uint8, device='cuda')]",
    "%%strandline\nraise KeyError('mine')",
    "%%strandline much\npass",
    AWAITS,
]:
    print("CELL")
    shell.run_cell(cell)

async def kernel():
    shell.run_cell("%%strandline\nprint('ran')")
    shell.run_cell(AWAITS)

print("CELL")
asyncio.run(kernel())
"#;

#[test]
fn a_cell_of_a_notebook_says_what_it_leaves_behind() {
    let Some(installed) = packages::of_the_index("ipython-1", &["ipython==9.18.1"]) else { return };
    let folder = Folder::new("api-ipython");
    std::fs::write(folder.join("cells.py"), CELLS).expect("a script");
    let path = format!("{}:{}", root().join("tools/python").display(), installed.display());
    let job = Job::program(&folder, python()).arg("-u").arg("cells.py").env("PYTHONPATH", path);
    let job = job.env("STRANDLINE_BIN", command()).env("XDG_CACHE_HOME", cache()).env("LD_PRELOAD", "");
    let ran = job.env("IPYTHONDIR", folder.path()).run().succeeded();
    let said = ran.stdout();
    let cells: Vec<&str> = said.split("CELL\n").skip(1).collect();
    let [_, _, kept, number, freed, limited, raised, wrong, awaited, in_loop] = cells[..] else {
        panic!("{said}")
    };
    assert!(kept.contains("4.0 MiB left behind on the GPU\n"), "{kept}");
    assert!(kept.contains("allocated at ") && kept.contains("held by __main__.kept"), "{kept}");
    // The cell ran in the notebook's own names.
    assert_eq!(number, "4194304\n");
    assert_eq!(freed, "nothing left behind on the GPU\n");
    assert!(limited.contains("Leaked: 2.0 MiB left behind on the GPU, 1.0 MiB allowed"), "{limited}");
    assert_eq!(raised.matches("KeyError: 'mine'").count(), 1, "{raised}");
    assert!(!raised.contains("left behind"), "{raised}");
    assert_eq!(wrong, "");
    assert!(ran.stderr().contains("'much' is not an amount of memory"), "{}", ran.stderr());
    assert_eq!(awaited, "awaited\nnothing left behind on the GPU\n");
    // In a kernel, whose loop runs already, it is said what to do instead.
    assert_eq!(in_loop, "ran\nnothing left behind on the GPU\n");
    let said = ran.stderr();
    assert_eq!(said.matches("strandline: a cell that uses `await`").count(), 1, "{said}");
}

const AGAIN: &str = r#"
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def run(cell):
    shell.run_cell(cell, store_history=True).raise_error()
run("""
import torch
model = torch.nn.Linear(256, 256).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)""")
for _ in range(24):
    run("""
for _ in range(2):
    model(torch.randn(64, 256, device='cuda')).sum().backward()
    opt.step()
    opt.zero_grad()
model(torch.randn(2048, 256, device='cuda')).detach()""")
"#;

/// IPython gives each run of a cell a file name of its own.
#[test]
fn a_cell_that_is_run_again_and_again_is_one_line() {
    let Some(installed) = packages::of_the_index("ipython-1", &["ipython==9.18.1"]) else { return };
    let folder = Folder::new("api-cells");
    std::fs::write(folder.join("cells.py"), AGAIN).expect("a script");
    let job = Job::program(&folder, python()).arg("cells.py").env("PYTHONPATH", &installed);
    let ran = job.env("IPYTHONDIR", folder.path()).run().succeeded();
    let report = support::report(&ran.recording());
    let findings = report.process["findings"].as_array().expect("findings");
    let [finding] = &findings[..] else { panic!("{findings:#?}") };
    let site = &finding["sites"][0]["your_line"];
    assert!(site["file"].as_str().is_some_and(|f| f.starts_with("<ipython-input-")), "{site}");
    assert_eq!((&site["line"], &finding["certainty"]), (&json!(5), &json!("growing")), "{finding:#}");
    // A job of a second may end before it is asked who holds them.
    if let Some(first) = finding["held_by"]["details"].get(0) {
        let name = first["name"].as_str().unwrap_or_default();
        assert!(["__main__._oh", "__main__.Out"].contains(&name), "{finding:#}");
        assert!(finding["remedy"].as_str().is_some_and(|r| r.contains("semicolon")), "{finding:#}");
    }
}

/// Without a GPU, PyTorch or the command nothing is harmed, and what was asked for is said to be impossible.
#[test]
fn where_nothing_can_be_recorded_only_a_judgement_fails() {
    let source = "
import strandline

with strandline.phase('eval') as phase:
    assert not (phase or strandline.step(1) or strandline.mark('a') or strandline.snapshot('now.pickle'))
with strandline.watch_region(limit=0) as region:
    pass
assert region.left.bytes == 0
try:
    strandline.report()
    raise SystemExit('a report of nothing')
except strandline.Error as e:
    print(e)
";
    let folder = Folder::new("api-nothing");
    std::fs::write(folder.join("job.py"), source).expect("a script");
    let mut run = Command::new("python3");
    run.arg("job.py").current_dir(folder.path()).env("PYTHONPATH", root().join("tools/python"));
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    let output = run.env("PATH", "/usr/bin:/bin").output().expect("Python starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("set STRANDLINE_BIN to the strandline command"), "{said}");
}

/// The document's file of tests does what the document says.
#[test]
fn the_example_of_pytest_runs() {
    let Some(installed) = packages::of_the_index("pytest-1", &["pytest==9.2.0", "pytest-xdist==3.8.0"])
    else {
        return;
    };
    let folder = Folder::new("api-pytest");
    let [source] = &blocks("docs/pytest.md", "python")[..] else { panic!("one example") };
    std::fs::write(folder.join("test_train.py"), source).expect("a file");
    std::fs::write(folder.join("pytest.ini"), "[pytest]\n").expect("a file");
    let path = format!("{}:{}", root().join("tools/python").display(), installed.display());
    let words = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "strandline.pytest_plugin"];
    let job = Job::program(&folder, python()).args(words).env("PYTHONPATH", path);
    let ran = job.env("STRANDLINE_BIN", command()).env("XDG_CACHE_HOME", cache()).run();
    let said = ran.stdout();
    let [shown] = &blocks("docs/pytest.md", "text")[..] else { panic!("one output") };
    for line in shown.lines().skip(1) {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.contains("2 passed, 1 error"), "{said}");
}

#[test]
fn mypy_and_pyright_have_no_complaint() {
    let wanted = ["mypy==2.4.1", "pyright==1.1.414", "pytest==9.2.0"];
    let Some(installed) = packages::of_the_index("types-1", &wanted) else { return };
    let check = |words: &[&str]| {
        let mut run = Command::new(python());
        run.args(words).arg("tools/python/strandline").current_dir(root()).env("PYTHONPATH", &installed);
        run.env("PYTHONDONTWRITEBYTECODE", "1").env("MYPY_CACHE_DIR", "/dev/null");
        let output = run.stdin(Stdio::null()).output().expect("Python starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
    };
    check(&["-m", "mypy", "--strict"]);
    // It is a program of Node's, which its package would otherwise download from elsewhere.
    match Command::new("node").arg("--version").output() {
        Ok(node) if node.status.success() => check(&["-m", "pyright"]),
        _ => println!("skipped pyright: there is no node"),
    }
}
