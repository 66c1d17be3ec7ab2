//! What the command writes for other tools, read by those tools: flame graphs, speedscope, pprof, Perfetto, SARIF, JUnit. What they
//! read is held against the report.

#[path = "exports/readers.rs"]
mod readers;
mod support;

use readers::{readers, said};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use support::{Folder, command, python, root};

/// A name that every format has to escape: it separates frames, properties, elements.
const SCRIPT: &str = "a;b, 100%:<c>&\"d\".py";

/// A run that was recorded once, and what its report says.
struct Run {
    folder: Folder,
    report: Value,
}

fn run() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        let folder = Folder::new("exports");
        std::fs::copy(root().join("tests/exports/job.py"), folder.join(SCRIPT)).expect("a copy");
        let mut job = strandline(&folder, &["run", "--quiet", "-o", "run", "--"]);
        said(job.arg(python()).arg(SCRIPT).arg("40").env("STRANDLINE_SIM_TOTAL", "8GiB"));
        let report = said(&mut strandline(&folder, &["report", "run", "--format", "json"]));
        Run { folder, report: serde_json::from_str(&report).expect("JSON") }
    })
}

fn strandline(folder: &Folder, words: &[&str]) -> Command {
    let mut command = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        command.env_remove(name);
    }
    command.args(words).current_dir(folder.path()).env_remove("GITHUB_WORKSPACE");
    command.env("XDG_CACHE_HOME", support::cache()).env("STRANDLINE_TAIL", folder.path());
    command
}

impl Run {
    /// A file that the command writes.
    fn file(&self, name: &str, words: &[&str]) -> PathBuf {
        let words: Vec<&str> = words.iter().copied().chain(["-o", name, "run"]).collect();
        said(&mut strandline(&self.folder, &words));
        self.folder.join(name)
    }

    fn device(&self, key: &str) -> u64 {
        self.report["processes"][0]["devices"][0][key].as_u64().expect("a figure")
    }

    /// The finding about `keep`, which makes the verdict.
    fn growing(&self) -> &Value {
        let all = self.report["processes"][0]["findings"].as_array().expect("findings");
        let mut growing =
            all.iter().filter(|f| ["growing", "leak"].contains(&f["certainty"].as_str().unwrap_or("")));
        growing.next().unwrap_or_else(|| panic!("{}", self.report))
    }
}

/// Folded stacks: as inferno sums them.
#[test]
fn a_flame_graph_is_drawn_of_folded_stacks() {
    let run = run();
    for (name, words, total) in [
        ("peak.folded", &["export", "--format", "folded"][..], run.device("peak_allocated_bytes")),
        ("end.folded", &["export", "--format", "folded", "--at", "end"], run.device("end_allocated_bytes")),
    ] {
        let text = std::fs::read_to_string(run.file(name, words)).expect("text");
        let mut svg = Vec::new();
        let mut options = inferno::flamegraph::Options::default();
        options.count_name = "bytes".into();
        inferno::flamegraph::from_lines(&mut options, text.lines(), &mut svg).expect("a flame graph");
        let svg = String::from_utf8(svg).expect("UTF-8");
        let root = format!("<title>all ({} bytes, 100%)</title>", grouped(total));
        assert!(svg.contains(&root), "{root}: {text}");
        // The one sign that separates frames is not in a frame's name.
        assert!(svg.contains("a:b, 100%:&lt;c&gt;&amp;&quot;d&quot;.py:15 keep"), "{text}");
    }
    let all =
        std::fs::read_to_string(run.file("all.folded", &["export", "--format", "folded", "--allocated"]));
    let all: u64 = all.expect("text").lines().filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert!(all > run.device("peak_allocated_bytes"), "{all}");
}

/// `1,234`, as inferno writes it.
fn grouped(n: u64) -> String {
    strandline::report::thousands(n)
}

#[test]
fn speedscope_imports_its_own_form_and_both_others() {
    let run = run();
    let own = run.file("a.speedscope.json", &["export", "--format", "speedscope"]);
    readers().validate(&own, &readers().speedscope_schema());
    let folded = run.file("b.folded", &["export", "--format", "folded"]);
    let pprof = run.file("c.pb.gz", &["export", "--format", "pprof"]);
    let read = readers().speedscope(&[&own, &folded, &pprof]);
    let peak = run.device("peak_allocated_bytes");
    let totals = |file: usize| -> Vec<(String, u64)> {
        let profiles = read[file]["profiles"].as_array().expect("profiles");
        profiles
            .iter()
            .map(|p| (p["name"].as_str().unwrap_or("").to_owned(), p["total"].as_u64().unwrap_or(0)))
            .collect()
    };
    let own = totals(0);
    let names: Vec<&str> = own.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["GPU 0: held at the peak", "GPU 0: held at the end of step 40", "GPU 0: allocated in all"]
    );
    assert_eq!((own[0].1, own[1].1), (peak, run.device("end_allocated_bytes")));
    assert_eq!((totals(1)[0].1, totals(2)[0].1), (peak, peak));
    // 40 times 8 MiB are kept by one line, which each of them names with its file.
    let kept = |file: usize, name: &str| {
        let frames = read[file]["profiles"][0]["frames"].as_array().expect("frames");
        let of: Vec<&Value> =
            frames.iter().filter(|f| f["name"].as_str().is_some_and(|n| n.ends_with(name))).collect();
        let sum: u64 = of.iter().filter_map(|f| f["self"].as_u64()).sum();
        (sum, of.first().map(|f| f["file"].as_str().unwrap_or("").to_owned()))
    };
    for (file, name) in [(0, ".py:15 keep"), (1, ".py:15 keep"), (2, "keep")] {
        let (sum, at) = kept(file, name);
        assert_eq!(sum, 40 * (8 << 20), "{}", read[file]);
        assert!(file == 1 || at.is_some_and(|f| f.ends_with(SCRIPT)), "{}", read[file]);
    }
}

#[test]
fn go_tool_pprof_sums_what_was_held_and_what_was_allocated() {
    let run = run();
    let file = run.file("d.pb.gz", &["export", "--format", "pprof"]);
    let total = |sample: &str| -> u64 {
        let text = readers()
            .pprof(&["-top", "-unit=B", "-nodefraction=0", &format!("-sample_index={sample}")], &file);
        let line = text.lines().find(|l| l.contains("% of ")).unwrap_or_else(|| panic!("{text}")).to_owned();
        let figure = line.split("% of ").nth(1).and_then(|r| r.split("B total").next()).expect("a total");
        figure.parse().unwrap_or_else(|_| panic!("{line}"))
    };
    assert_eq!(total("inuse_space"), run.device("peak_allocated_bytes"));
    assert!(total("alloc_space") > total("inuse_space"));
    let top = readers().pprof(&["-top", "-nodecount=1"], &file);
    assert!(top.contains("Type: inuse_space") && top.contains(" keep\n"), "{top}");
    assert!(top.contains("held at the peak"), "its comment: {top}");
    let lines = readers().pprof(&["-top", "-lines", "-nodecount=1"], &file);
    assert!(lines.contains(&format!("{SCRIPT}:15")), "{lines}");
    let tags = readers().pprof(&["-tags"], &file);
    assert!(tags.contains("GPU 0") && tags.contains("side stream"), "{tags}");
    let earlier = run.file("earlier.pb.gz", &["export", "--format", "pprof", "--at", "step:4"]);
    let grown = readers().pprof(&["-top", "-lines", &format!("-diff_base={}", earlier.display())], &file);
    assert!(grown.contains(&format!("{SCRIPT}:15")), "{grown}");
}

#[test]
fn perfetto_has_memory_steps_phases_streams_and_findings() {
    let run = run();
    let file = run.file("e.json", &["export", "--format", "perfetto"]);
    let counters = "select t.name, cast(max(value) as int) m from counter c join process_counter_track t on t.id = track_id group by 1";
    let slices = "select s.name n, count(*) c from slice s group by 1";
    let instants = "select s.name n from slice s join thread_track tt on tt.id = track_id join thread t using(utid) where t.name = 'found'";
    let broken = "select name, value from stats where value > 0 and severity in ('error', 'data_loss')";
    let order = "select count(*) from slice a join slice b on a.name = 'step 3' and b.name = 'step 4' and a.ts + a.dur <= b.ts";
    let read = readers().perfetto(&file, &[counters, slices, instants, broken, order]);
    let figure = |rows: &Value, name: &str| {
        let rows = rows.as_array().expect("rows");
        rows.iter().find(|r| r[0].as_str() == Some(name)).and_then(|r| r[1].as_u64())
    };
    assert_eq!(
        figure(&read[0], "GPU 0 allocated bytes"),
        Some(run.device("peak_allocated_bytes")),
        "{}",
        read[0]
    );
    assert_eq!(figure(&read[0], "GPU 0 reserved bytes"), Some(run.device("peak_reserved_bytes")));
    let kept = format!("GPU 0: your {SCRIPT}:15 in keep bytes");
    assert_eq!(figure(&read[0], &kept), Some(40 * (8 << 20)), "{}", read[0]);
    for (name, count) in [("step 40", 1), ("backward", 40), ("optimizer", 40), ("GPU 0, side stream 1", 40)] {
        assert_eq!(figure(&read[1], name), Some(count), "{name}: {}", read[1]);
    }
    let said = read[2].to_string();
    assert!(
        said.contains("memory grows every step")
            || said.contains("memory allocated on a side stream grows every step"),
        "{said}"
    );
    assert_eq!(read[3], serde_json::json!([]), "nothing was misunderstood");
    assert_eq!(read[4], serde_json::json!([[1]]));
}

#[test]
fn sarif_is_valid_and_points_at_the_line() {
    let run = run();
    let file = run.file("f.sarif", &["report", "--format", "sarif"]);
    readers().validate(&file, &readers().sarif_schema());
    let said = readers().sarif(&file);
    // What it misses is a web site.
    assert!(said.iter().all(|l| l.contains("SARIF2005")), "{said:#?}");
    let log: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
    let results = log["runs"][0]["results"].as_array().expect("results");
    let (kind, certainty) = (&run.growing()["kind"], run.growing()["certainty"].as_str());
    let result = results.iter().find(|r| r["ruleId"] == *kind).expect("the finding");
    assert_eq!(result["level"], if certainty == Some("leak") { "error" } else { "warning" });
    let at = &result["locations"][0]["physicalLocation"];
    assert_eq!(at["artifactLocation"]["uri"], "a%3Bb%2C%20100%25%3A%3Cc%3E%26%22d%22.py");
    assert_eq!(at["region"]["startLine"], 15);
}

#[test]
fn junit_has_a_case_that_fails_and_a_gate_ends_as_before() {
    let run = run();
    let file = run.file("g.xml", &["report", "--format", "junit"]);
    let source = "import sys, json\nfrom junitparser import JUnitXml\nx = JUnitXml.fromfile(sys.argv[1])\n\
        print(json.dumps([x.tests, x.failures, x.errors, [[c.name, [[type(r).__name__, r.type, r.message, r.text] for r in c.result]] for s in x for c in s]]))";
    let read = said(Command::new(readers().python()).args(["-c", source]).arg(&file));
    let read: Value = serde_json::from_str(&read).expect("JSON");
    assert_eq!((&read[0], &read[1], &read[2]), (&1.into(), &1.into(), &0.into()), "{read}");
    let case = &read[3][0];
    assert!(case[0].as_str().is_some_and(|n| n.ends_with(&format!(" {SCRIPT}:15"))), "{case}");
    assert_eq!((&case[1][0][0], &case[1][0][1]), (&"Failure".into(), &run.growing()["certainty"]));
    assert!(case[1][0][3].as_str().is_some_and(|t| t.contains(&format!("{SCRIPT}:15"))), "{case}");
    let expected = if run.growing()["certainty"] == "leak" { 81 } else { 84 };
    for format in ["junit", "sarif", "github"] {
        let words = ["report", "run", "--fail-on-leak", "--format", format];
        let status = strandline(&run.folder, &words).output().expect("it starts").status;
        assert_eq!(status.code(), Some(expected), "{format}");
    }
}

/// As the runner of workflows takes lines apart: `::name key=value,key=value::data`.
#[test]
fn annotations_are_of_the_line_in_the_checkout() {
    let run = run();
    let workspace = run.folder.path().parent().expect("a folder");
    let mut report = strandline(&run.folder, &["report", "run", "--format", "github"]);
    let text = said(report.env("GITHUB_WORKSPACE", workspace));
    let certainty = run.growing()["certainty"].as_str();
    let word = if certainty == Some("leak") { "error" } else { "warning" };
    let annotations: Vec<&str> = text.lines().collect();
    assert!(annotations.iter().all(|l| l.starts_with("::")), "a line is a command: {text}");
    assert!(annotations[0].starts_with(&format!("::{word} title=strandline::")), "{text}");
    let (head, data) = annotations[1].trim_start_matches("::").split_once("::").expect("two parts");
    let (name, properties) = head.split_once(' ').expect("properties");
    assert_eq!(name, word);
    let plain = |text: &str| {
        let text = text.replace("%3A", ":").replace("%2C", ",");
        text.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    };
    let properties: Vec<(&str, String)> =
        properties.split(',').filter_map(|p| p.split_once('=')).map(|(k, v)| (k, plain(v))).collect();
    let own = run.folder.path().file_name().expect("a name").to_string_lossy();
    assert_eq!(properties[0], ("file", format!("{own}/{SCRIPT}")));
    assert_eq!(properties[1], ("line", "15".to_owned()));
    assert!(plain(data).contains(&format!("your {SCRIPT}:15 in keep")), "{data}");
}

/// With both kinds of stacks, native frames lead from the interpreter to the block; their names have dots, spaces and semicolons of C++.
#[test]
fn native_frames_follow_the_python_ones() {
    let run = run();
    std::fs::copy(root().join("tests/exports/job.py"), run.folder.join("native.py")).expect("a copy");
    let mut job = strandline(&run.folder, &["run", "--quiet", "-o", "both", "--stacks", "both", "--"]);
    said(job.arg(python()).args(["native.py", "3"]).env("STRANDLINE_SIM_TOTAL", "8GiB"));
    let text = said(&mut strandline(&run.folder, &["export", "--format", "folded", "both"]));
    let kept = text.lines().find(|l| l.contains("native.py:15 keep;")).unwrap_or_else(|| panic!("{text}"));
    let (_, native) = kept.split_once("native.py:15 keep;").expect("native frames");
    let frames: Vec<&str> = native.rsplit_once(' ').expect("a figure").0.split(';').collect();
    assert!(frames.iter().any(|f| f.contains("c10::") && f.contains("alloc")), "{frames:#?}");
    assert!(frames.iter().all(|f| f.trim() == *f && !f.is_empty() && !f.contains("PyEval")), "{frames:#?}");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let run = run();
    for (words, why) in [
        (&["--format", "folded", "--at", "peak", "--at", "end"][..], "one moment"),
        (&["--format", "perfetto", "--at", "end"], "every moment"),
        (&["--format", "pprof", "--allocated"], "--format folded"),
        (&["--format", "folded", "--at", "step:900"], "step 900"),
        (&["--format", "folded", "-o", "x.strand"], "overwritten"),
    ] {
        let words: Vec<&str> = ["export", "run"].iter().chain(words).copied().collect();
        let output = strandline(&run.folder, &words).output().expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && stderr.contains(why), "{words:?}: {stderr}");
    }
}
