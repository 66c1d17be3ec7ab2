//! Each kind of finding on PyTorch's own allocator, on the simulated device; and the page of a leak, opened and clicked.

mod support;

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Folder, Job, cache, python, report, root, strandline};

/// What is found in `findings.py WHAT`: nothing that is worse than a note.
#[track_caller]
fn found(what: &str) -> Vec<Value> {
    let folder = Folder::new("findings");
    let job = Job::python(&folder, "tests/python/findings.py", &[what]);
    // What waits for a stream waits until somebody waits for the stream, however fast the machine is.
    let ran = job.env("STRANDLINE_SIM_CLOCK", "manual").run_imported().succeeded();
    let report = report(&ran.recording()).whole();
    let found = report.process["findings"].as_array().expect("findings").clone();
    assert!(found.iter().all(|f| f["severity"] == "info"), "{found:#?}");
    found
}

/// The finding of this kind whose largest part comes from this function.
#[track_caller]
fn of<'a>(found: &'a [Value], kind: &str, function: &str) -> &'a Value {
    let is = |f: &&Value| f["kind"] == kind && has_line(f, function);
    found.iter().find(is).unwrap_or_else(|| panic!("no {kind} at {function}: {found:#?}"))
}

fn has_line(f: &Value, function: &str) -> bool {
    let frames = f["sites"][0]["frames"].as_array();
    frames.into_iter().flatten().any(|f| f["function"].as_str().is_some_and(|f| f.ends_with(function)))
}

#[track_caller]
fn says(f: &Value, words: &[&str]) {
    let explain = f["explain"].as_str().expect("a sentence");
    for w in words {
        assert!(explain.contains(w), "{w}: {explain}");
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn every_note_of_a_real_allocator() {
    let found = found("notes");
    let stranded = of(&found, "stranded-cache", "transfer");
    says(stranded, &["8 streams", "each used once", "128 MiB each", "when memory runs short"]);
    assert_eq!(stranded["bytes_now"], 8 * 128 * MIB, "{stranded}");
    says(of(&found, "stranded-cache", "transfer_in_pool"), &["1 stream", "256 MiB"]);
    let fragments = of(&found, "fragmentation", "pin");
    says(fragments, &[" old blocks (", " segments split up ", " of free memory"]);
    let side = of(&found, "resident-on-side-stream", "average");
    assert_eq!((&side["stream"]["side"], &side["bytes_now"]), (&true.into(), &(200 * MIB).into()), "{side}");
    let deferred = of(&found, "deferred-free", "wait");
    says(deferred, &[&format!("until stream {} has finished using them", deferred["stream"]["id"])]);
    assert_eq!(deferred["stream"]["side"], true, "{deferred}");
    let per_step = deferred["bytes_per_step"].as_f64().expect("a rate") / (32 * MIB) as f64;
    assert!((per_step - 1.0).abs() < 0.1, "{deferred}");
    let state = found.iter().find(|f| f["kind"] == "lazy-state").expect("the optimizer's state");
    assert!(state["bytes_now"].as_u64().is_some_and(|b| b >= 2 * 128 * MIB), "{state}");
    says(
        found.iter().find(|f| f["kind"] == "opaque-pool").expect("the graph's pool"),
        &["captured CUDA graphs"],
    );
    // The Python of the tests is 3.11 to 3.13, whose collector is seen at work.
    says(of(&found, "cycle-garbage", "Cycle.__init__"), &["until Python's garbage collector runs"]);
}

#[test]
fn memory_that_goes_back_to_the_driver_with_every_step() {
    let found = found("pressure");
    says(found.iter().find(|f| f["kind"] == "allocator-pressure").expect("it"), &["empty_cache()"]);
}

#[test]
fn what_is_live_at_the_end_of_a_brief_job() {
    let found = found("brief");
    let live = found.iter().find(|f| f["kind"] == "live-at-exit").expect("it");
    assert!(live["bytes_now"].as_u64().is_some_and(|b| b >= 3 * 128 * MIB), "{live}");
}

/// What fills the card in a hundred steps is an alert. But while Python's collector was never there, it may be that cycles keep it: then
/// it is a warning, which says so.
#[test]
fn what_reference_cycles_may_keep_is_no_alert() {
    let found = |what: &str| {
        let folder = Folder::new("findings");
        let job = Job::python(&folder, "tests/python/findings.py", &[what]);
        let ran = job.env("STRANDLINE_SIM_TOTAL", "6GiB").run().succeeded();
        let report = report(&ran.recording()).whole();
        report.process["findings"].as_array().expect("findings")[0].clone()
    };
    for (what, severity, is_said) in [("kept", "warning", true), ("kept-collected", "alert", false)] {
        let leak = found(what);
        assert_eq!((&leak["kind"], &leak["severity"]), (&"step-growth".into(), &severity.into()), "{leak:#}");
        let explain = leak["explain"].as_str().expect("a sentence");
        assert_eq!(explain.contains("Python has not run a full garbage collection"), is_said, "{explain}");
        let full = leak["steps_to_oom"]["mid"].as_u64();
        assert!(full.is_some_and(|steps| (50..200).contains(&steps)), "{leak:#}");
    }
}

/// A job without steps that ends too soon to be judged by seconds is judged by the iterations of its loop. One that only loads has none. So is what a
/// job does after its training, if it takes longer and keeps more and more.
#[test]
fn what_grows_with_every_iteration_of_a_brief_job() {
    let judged = |what: &str| {
        let folder = Folder::new("findings");
        let job = Job::python(&folder, "tests/python/iterations.py", &[what]);
        let ran = job.env("STRANDLINE_SIM_TOTAL", "6GiB").run_imported();
        report(&ran.recording()).whole().process
    };
    for (what, outcome, source) in [
        ("collects", "growing", "iteration"),
        ("fails", "growing", "iteration"),
        ("answers", "clean", "iteration"),
        ("serves", "growing", "iteration"),
        ("threads", "growing", "iteration"),
        ("tunes", "growing", "iteration"),
        ("evaluates", "clean", "optimizer"),
        ("predicts", "clean", "optimizer"),
    ] {
        let p = judged(what);
        assert_eq!((&p["verdict"], &p["step_source"]), (&outcome.into(), &source.into()), "{what}: {p:#}");
        if what != "fails" {
            assert_eq!(p["steps"], if source == "optimizer" { 30 } else { 60 }, "{p:#}");
        }
        let growing = p["findings"].as_array().expect("findings").iter().any(|f| f["certainty"] == "growing");
        assert_eq!(growing, outcome == "growing", "{p:#}");
    }
    let loads = judged("loads");
    assert_eq!(loads["verdict"], "unknown", "{loads:#}");
}

/// Pinned memory of the host: PyTorch gives none of it back, and uses again what the job has let go of.
#[test]
fn pinned_memory_that_grows_with_every_step() {
    let found = |what: &str| {
        let folder = Folder::new("findings");
        let ran = Job::python(&folder, "tests/python/findings.py", &[what]).run_imported().succeeded();
        let recording = ran.recording();
        let process = report(&recording).whole().process;
        let findings = process["findings"].as_array().expect("findings").clone();
        let text = strandline(&["report".into(), recording.into_os_string()]);
        (findings, process["pinned_host"]["bytes"].as_u64().expect("how much"), text)
    };
    for (what, function, bytes) in [("batches", "_pin_memory_loop", 4 * MIB), ("saved", "logged", 8 * MIB)] {
        let (healthy, held, text) = found(what);
        assert!(healthy.iter().all(|f| f["kind"] != "pinned-growth"), "{healthy:#?}");
        assert!((bytes..12 * bytes).contains(&held), "{what}: {held}");
        assert!(!text.contains("pinned host memory grows"), "{text}");
        let (kept, held, text) = found(&format!("{what}-kept"));
        assert!(held >= 64 * bytes, "{what}: {held}");
        let f = of(&kept, "pinned-growth", function);
        assert_eq!((&f["certainty"], &f["severity"]), (&"note".into(), &"info".into()), "{f:#}");
        let rate = f["bytes_per_step"].as_f64().expect("a rate") / bytes as f64;
        assert!((rate - 1.0).abs() < 0.15, "{f:#}");
        assert!(f["bytes_now"].as_u64().is_some_and(|now| now >= 60 * bytes), "{f:#}");
        says(f, &["were never freed", "has not slowed down", "not GPU memory"]);
        assert!(text.contains("pinned host memory grows with every step"), "{text}");
        let note = text.split("pinned host memory grows with every step").nth(1).expect("its note");
        let note = note.split("\n    try ").next().expect("it comes before the advice");
        assert!(!note.contains("too little"), "{note}");
        assert!(text.contains("\n    try    release pinned tensors"), "{text}");
        let remedy = f["remedy"].as_str().expect("what helps");
        assert!(remedy.contains("DataLoader(pin_memory=True)") && remedy.contains("save_on_cpu"), "{remedy}");
    }
}

/// Graphs and pools that are kept, and what the driver is asked for, which no block tells of. `torch.cuda.graph` empties the cache, and a
/// `MemPool` gives back what it had.
#[test]
fn memory_that_is_no_block_and_grows_with_every_step() {
    for (what, kind, function, bytes) in [
        ("graphs", "pool-growth", "captured", 2 * MIB),
        ("pools", "pool-growth", "pooled", 16 * MIB),
        ("outside", "outside-growth", "asked", 8 * MIB),
    ] {
        let found = |what: &str| {
            let folder = Folder::new("findings");
            let ran = Job::python(&folder, "tests/python/findings.py", &[what]).run_imported().succeeded();
            let process = report(&ran.recording()).whole().process;
            (process["verdict"].clone(), process["findings"].as_array().expect("findings").clone())
        };
        let (verdict, healthy) = found(what);
        assert_eq!(verdict, "clean", "{healthy:#?}");
        let (verdict, kept) = found(&format!("{what}-kept"));
        let f = of(&kept, kind, function);
        assert_eq!((verdict, &f["certainty"]), ("growing".into(), &"growing".into()), "{f:#}");
        let rate = f["bytes_per_step"].as_f64().expect("a rate") / bytes as f64;
        assert!((rate - 1.0).abs() < 0.1, "{f:#}");
        assert!(f["remedy"].is_string(), "{f:#}");
        assert!(f["steps_to_oom"].is_object(), "{f:#}");
    }
}

/// Where there is Node: pages of a leak, of names that are meant for a browser, and of comparisons are drawn at three widths, dark and
/// light, everything on them is pressed, and axe-core finds nothing. Their sizes and times are in docs/measurements.md.
#[test]
fn pages_are_clicked_in_chromium() {
    let folder = Folder::new("page");
    let page = |name: &str, words: &[&OsStr]| {
        let all = words.iter().copied().chain(["--format", "html"].map(OsStr::new)).map(OsString::from);
        let (path, text) = (folder.join(&format!("{name}.html")), strandline(&all.collect::<Vec<_>>()));
        assert!(text.len() <= 400 << 10, "{name}: {} bytes", text.len());
        std::fs::write(&path, text).expect("the page");
        path
    };
    // As `run` says it in a checkout of git.
    let checkout = format!("{} https://github.com/owner/name {}", "0123456789".repeat(4), root().display());
    let leak =
        Job::python(&folder, "tests/python/judged.py", &[] as &[&str]).env("STRANDLINE_CHECKOUT", checkout);
    let leak = leak.run().succeeded().recording();
    let names = Folder::new("page-names");
    let victim = names.join("nobody");
    let names = Job::python(&names, "tests/python/hostile.py", &[victim.to_str().expect("UTF-8"), "--"])
        .run()
        .succeeded()
        .recording();
    // Its peak comes after its last step, with its last event.
    let code = format!(
        "exec(open({:?}).read())\nimport os\nos.kill(os.getpid(), 9)",
        root().join("tests/python/judged.py")
    );
    let killed = Folder::new("page-killed");
    let killed = Job::program(&killed, python()).args(["-c", &code]).run().recording();
    let [report, diff] = ["report", "diff"].map(OsStr::new);
    let leak_page = page("leak", &[report, leak.as_os_str()]);
    let mut more =
        vec![page("names", &[report, names.as_os_str(), OsStr::new("--source-links"), OsStr::new("vscode")])];
    let linked = ["--source-links", "github"].map(OsStr::new);
    more.push(page("linked", &[report, leak.as_os_str(), linked[0], linked[1]]));
    more.push(page("diff", &[diff, leak.as_os_str(), names.as_os_str()]));
    more.push(page("killed", &[report, killed.as_os_str()]));
    let named = |name: &str, path: &Path| [OsStr::new(name), path.as_os_str()].join(OsStr::new("="));
    let runs = [("base", &leak), ("patch", &names)].map(|(name, path)| named(name, path));
    let again = named("again", &leak);
    more.push(page("runs", &[diff, &runs[0], &runs[1], &again]));
    are_clicked(&folder.join("shots"), &["--leak".as_ref(), leak_page.as_os_str()]);
    are_clicked(&folder.join("shots"), &more.iter().map(|p| p.as_os_str()).collect::<Vec<_>>());
}

/// What `tests/viz/page.mjs` says of pages. The browser is that of the machine, or the one that npm has as a package.
#[track_caller]
fn are_clicked(shots: &Path, words: &[&OsStr]) {
    let is_there = |program: &str| {
        let version =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|s| s.success())
    };
    if !is_there("node") || !is_there("npm") {
        println!("SKIPPED: there is no Node or no npm on the PATH");
        return;
    }
    let found = |name: &str| {
        let all = std::env::var_os("PATH")?;
        std::env::split_paths(&all).map(|folder| folder.join(name)).find(|p| p.is_file())
    };
    let chromium = ["chromium", "chromium-browser", "google-chrome", "chrome"].into_iter().find_map(found);
    let packages = cache().join("page");
    if !packages.join("node_modules/@sparticuz/chromium").exists() {
        std::fs::create_dir_all(&packages).expect("a folder");
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&packages);
        npm.args(["puppeteer-core@24", "axe-core@4", "@sparticuz/chromium@147"]);
        let done = npm.stdin(Stdio::null()).stdout(Stdio::null()).status();
        assert!(done.is_ok_and(|s| s.success()), "npm installs a browser, and what drives it");
    }
    let mut node = Command::new("node");
    node.arg(root().join("tests/viz/page.mjs")).arg(&packages).arg(shots).args(words);
    node.envs(chromium.map(|path| ("CHROMIUM", path)));
    let output = node.stdin(Stdio::null()).output().expect("node starts");
    let text = [output.stdout, output.stderr].map(|t| String::from_utf8_lossy(&t).into_owned()).concat();
    println!("{text}");
    assert!(output.status.success(), "{text}");
}

/// Jobs of `tests/leakbench/others.py`: what is said of each at its end, on a small card and on a large one, and that what grows is
/// told of the line that the script marks.
#[track_caller]
fn is_judged(cases: &[&str], sizes: &[&str]) {
    let script = std::fs::read_to_string(root().join("tests/leakbench/others.py")).expect("the script");
    let mut wrong = Vec::new();
    for case in cases {
        let (before, after) = script.split_once(&format!("def {case}(")).expect("a case");
        let leaks = before.trim_end().ends_with("# leaks\n@case");
        let body = after.split("\n@case").next().unwrap_or_default();
        let site = body.lines().position(|l| l.ends_with("# SITE")).map(|n| before.lines().count() + n + 1);
        for size in sizes {
            let folder = Folder::new(case);
            let ran = Job::python(&folder, "tests/leakbench/others.py", &[case])
                .env("STRANDLINE_SIM_TOTAL", size)
                .run_imported()
                .succeeded();
            let report = report(&ran.recording()).whole();
            let (verdict, reason) = report.verdict();
            let findings = report.process["findings"].as_array().expect("findings");
            let line = |f: &Value| f["sites"][0]["your_line"]["line"].as_u64();
            let named = || site.is_none_or(|n| findings.iter().any(|f| line(f) == Some(n as u64)));
            if verdict != if leaks { "growing" } else { "clean" } || leaks && !named() {
                wrong.push(format!("{case} on {size}: {verdict}: {reason}, not of line {site:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_put_together_anew_grows_unless_it_is_bounded() {
    is_judged(&["buffer_by_cat", "window_by_cat", "answers_by_token", "losses_as_tensors"], &["80GiB"]);
}

/// `cargo test --test findings every_job -- --ignored --nocapture`.
#[test]
#[ignore = "nine minutes: 30 jobs, each on two cards"]
fn every_job_that_no_rule_was_made_for_is_judged() {
    let script = std::fs::read_to_string(root().join("tests/leakbench/others.py")).expect("the script");
    let names = script.split("\n@case\ndef ").skip(1).filter_map(|c| c.split('(').next());
    is_judged(&names.collect::<Vec<_>>(), &["4GiB", "80GiB"]);
}
