//! Two recordings, or two moments of one, compared by `strandline diff`: also after the script was edited in between.

mod support;

use serde_json::Value;
use std::process::Command;
use support::{Folder, command, python, root};

const KEPT: i64 = 8 << 20;

fn strandline(folder: &Folder, words: &[&str]) -> (i32, String, String) {
    let mut run = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    run.args(words)
        .current_dir(folder.path())
        .env_remove("LD_PRELOAD")
        .env("XDG_CACHE_HOME", support::cache());
    run.env("STRANDLINE_TAIL", folder.path()).env("STRANDLINE_SIM_TOTAL", "8GiB");
    let output = run.output().expect("it starts");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("never a signal"), text(&output.stdout), text(&output.stderr))
}

/// `job.py` keeps 8 MiB a step at its line 15.
#[test]
fn lines_are_the_same_after_an_edit_and_moments_of_one_run_are_compared() {
    let folder = Folder::new("diff");
    let script = std::fs::read_to_string(root().join("tests/exports/job.py")).expect("a script");
    let record = |out: &str, text: &str, steps: &str| {
        std::fs::write(folder.join("train.py"), text).expect("written");
        let python = python().to_str().expect("UTF-8");
        let (status, _, stderr) =
            strandline(&folder, &["run", "--quiet", "-o", out, "--", python, "train.py", steps]);
        assert_eq!(status, 0, "{stderr}");
    };
    record("base", &script, "10");
    record("new", &format!("# Two lines,\n# above all others.\n{script}"), "12");

    let diff = |words: &[&str]| {
        let (status, stdout, stderr) =
            strandline(&folder, &[&["diff"], words, &["--format", "json"]].concat());
        assert_eq!(status, 0, "{stderr}");
        serde_json::from_str::<Value>(&stdout).expect("JSON")
    };
    let row = |told: &Value| {
        let rows = told["sites"].as_array().expect("rows").iter();
        let kept: Vec<Value> = rows.filter(|r| r["function"] == "keep").cloned().collect();
        assert_eq!(kept.len(), 1, "one line: {told}");
        kept[0].clone()
    };
    let told = diff(&["base", "new"]);
    let kept = row(&told);
    assert_eq!((&kept["line"], &kept["base_line"]), (&17.into(), &15.into()), "{told}");
    assert_eq!(kept["more_bytes"], 2 * KEPT, "{told}");
    assert_eq!(told["more_bytes"], 2 * KEPT, "nothing else differs: {told}");
    assert!(told["moved_and_equal"].as_u64() > Some(0), "{told}");
    let one_sided = |r: &&Value| r["base"]["blocks"] == 0 || r["new"]["blocks"] == 0;
    assert_eq!(told["sites"].as_array().expect("rows").iter().find(one_sided), None, "{told}");
    let (_, text, _) = strandline(&folder, &["diff", "base", "new"]);
    assert!(text.contains("train.py:17 keep (was line 15)") && text.contains("other line number"), "{text}");

    let told = diff(&["base@step:3", "base@step:8"]);
    let kept = row(&told);
    assert_eq!((&kept["line"], &kept["base_line"]), (&15.into(), &15.into()), "{told}");
    assert_eq!(kept["more_bytes"], 5 * KEPT, "{told}");
    assert_eq!(told["new"]["at"], "the end of step 8", "{told}");
    assert_eq!(diff(&["base@step:8", "base", "--at", "step:8"])["sites"], serde_json::json!([]));

    // 16 MiB of about 100 more.
    for (amount, status) in [("2%", 85), ("0%", 85), ("90%", 0), ("15MiB", 85), ("16MiB", 0), ("much", 2)] {
        let (ended, _, stderr) = strandline(&folder, &["diff", "base", "new", "--fail-if-worse", amount]);
        assert_eq!(ended, status, "{amount}: {stderr}");
        assert_eq!(
            stderr.contains("exit status 85 (--fail-if-worse): 16 MiB more"),
            status == 85,
            "{stderr}"
        );
    }
    let less = strandline(&folder, &["diff", "new", "base", "--fail-if-worse", "0%"]);
    assert_eq!(less.0, 0, "less is not worse");
    let (status, _, stderr) = strandline(&folder, &["diff", "base@step:99", "base"]);
    assert!(status == 2 && stderr.contains("step 99"), "{stderr}");
    // A recording that was cut off.
    let whole = std::fs::read_dir(folder.join("base")).expect("a folder").flatten().map(|e| e.path());
    let whole = whole.filter(|p| p.extension().is_some_and(|e| e == "strand")).last().expect("a recording");
    let bytes = std::fs::read(&whole).expect("read");
    std::fs::write(folder.join("cut.strand"), &bytes[..bytes.len() - 64]).expect("written");
    let (status, said, stderr) = strandline(&folder, &["diff", "cut.strand", "new"]);
    let first = said.lines().next().unwrap_or_default();
    assert!(
        status == 0 && first.ends_with("than BASE; part of BASE is missing, so they cannot be compared"),
        "{said}{stderr}"
    );
    // What lies there under that name is meant.
    std::fs::rename(folder.join("new"), folder.join("run@end")).expect("renamed");
    assert_eq!(row(&diff(&["base", "run@end"]))["more_bytes"], 2 * KEPT);
}

/// Two runs that keep 8 MiB a step, one that keeps nothing, one of a larger batch, and one that runs out of memory.
#[test]
fn several_runs_are_one_table() {
    let folder = Folder::new("diff-runs");
    let script = std::fs::read_to_string(root().join("tests/exports/job.py")).expect("a script");
    let record = |name: &str, text: &str| {
        std::fs::write(folder.join("train.py"), text).expect("written");
        let (out, python) = (format!("runs/{name}"), python().to_str().expect("UTF-8"));
        strandline(&folder, &["run", "--quiet", "-o", &out, "--", python, "train.py", "20"]).0
    };
    let cleans = script.replace("    keep()\n", "    keep()\n    kept.clear()\n");
    assert_ne!(cleans, script);
    let dies = script
        .replace("    keep()\n", "    keep()\n    if step == 14: torch.zeros(9 << 30, device=\"cuda\")\n");
    for (name, text, status) in
        [("a-1", &script, 0), ("a-2", &script, 0), ("cleans", &cleans, 0), ("z-dies", &dies, 1)]
    {
        assert_eq!(record(name, text), status, "{name}");
    }

    let (status, text, stderr) = strandline(&folder, &["diff", "runs", "--fail-if-worse", "2%"]);
    assert_eq!(
        (status, stderr.trim()),
        (85, "strandline: exit status 85 (--fail-if-worse): z-dies"),
        "{text}"
    );
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("strandline: cleans is best: saved 152 MiB ("), "{text}");
    let names: Vec<_> = lines[2..].iter().filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(names, ["a", "cleans", "z-dies"], "{text}");
    assert!(lines[2].contains("± 0 bytes") && lines[2].ends_with("8 MiB a step  the base"), "{text}");
    assert!(lines[3].ends_with("; does not grow") && lines[4].contains("out of memory in step 16"), "{text}");

    let words = ["diff", "kept=runs/a-2", "kept=runs/a-1", "mended=runs/cleans", "--format"];
    let told = |format: &str| strandline(&folder, &[&words[..], &[format]].concat()).1;
    let json: Value = serde_json::from_str(&told("json")).expect("JSON");
    let variants = json["variants"].as_array().expect("variants");
    assert_eq!((&variants[0]["name"], &variants[0]["died"]), (&"kept".into(), &0.into()), "{json}");
    assert_eq!(variants[0]["runs"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(variants[0]["growth_bytes_per_step"], KEPT as f64, "{json}");
    assert_eq!(
        (&variants[1]["effect"], &variants[1]["saved_bytes"]),
        (&"saved".into(), &(19 * KEPT).into()),
        "{json}"
    );
    let page = told("html");
    assert!(page.contains(">mended</td>") && page.contains("saved 152 MiB"), "{page}");
    assert!(!page.contains("<script") && page.contains("style-src 'sha256-"), "{page}");

    two_modes_have_a_base_each(&folder);

    for wrong in
        [&["diff", "runs/a-1"][..], &["diff", "a=runs/a-1", "a=runs/a-2"], &["diff", "runs", "--at", "end"]]
    {
        let (status, _, stderr) = strandline(&folder, wrong);
        assert_eq!(status, 2, "{wrong:?}: {stderr}");
    }
}

/// The same runs as two modes of seven runs each: two of the base, and five patches. What mends one mode does nothing in the other.
fn two_modes_have_a_base_each(folder: &Folder) {
    let copy = |mode: &str, name: &str, run: &str| {
        let to = folder.join(&format!("modes/{mode}/{name}"));
        std::fs::create_dir_all(&to).expect("a folder");
        for entry in std::fs::read_dir(folder.join(&format!("runs/{run}"))).expect("a run").flatten() {
            if entry.path().extension().is_some_and(|e| e == "strand") {
                std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
            }
        }
    };
    let patches =
        [("clear", "cleans"), ("dies", "z-dies"), ("keep", "a-1"), ("same", "a-2"), ("smaller", "cleans")];
    for (mode, bases) in [("full", ["a-1", "a-2"]), ("lora", ["cleans", "cleans"])] {
        copy(mode, "base-1", bases[0]);
        copy(mode, "base-2", bases[1]);
        patches.iter().for_each(|(name, run)| copy(mode, name, run));
    }
    let (status, text, stderr) = strandline(folder, &["diff", "modes", "--fail-if-worse", "2%"]);
    assert_eq!(status, 85, "{stderr}");
    assert!(stderr.contains("full/dies, lora/keep, lora/same, lora/dies"), "{stderr}");
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().take_while(|l| !l.contains("variant  ")).copied().collect::<Vec<_>>().join(" ");
    let first = first.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(first.starts_with("strandline: full: clear is best: saved 152 MiB ("), "{text}");
    assert!(
        first.contains(
            "lora: no run needs measurably less memory than base; the worst is dies: out of memory in step 16"
        ),
        "{text}"
    );
    let rows: Vec<&str> = lines.iter().copied().filter(|l| l.trim_start().starts_with(['f', 'l'])).collect();
    let is = |name: &str, words: &str| {
        assert!(
            rows.iter().any(|l| l.contains(&format!("{name} ")) && l.contains(words)),
            "{name}: {words}: {text}"
        );
    };
    for (name, words) in [
        ("full/base", "the base"),
        ("full/smaller", "saved 152 MiB"),
        ("full/same", "no measurable effect"),
        ("full/dies", "out of memory in step 16"),
        ("lora/base", "the base"),
        ("lora/clear", "no measurable effect"),
        ("lora/keep", "worse: grows 8 MiB a step"),
    ] {
        is(name, words);
    }
    assert_eq!(rows.len(), 12, "two bases of two runs, and five patches each: {text}");
    let json: Value =
        serde_json::from_str(&strandline(folder, &["diff", "modes", "--format", "json"]).1).expect("JSON");
    assert_eq!(json["modes"].as_array().map(Vec::len), Some(2), "{json}");
    let variants = json["variants"].as_array().expect("variants");
    let runs: usize = variants.iter().filter_map(|v| Some(v["runs"].as_array()?.len())).sum();
    assert_eq!((variants.len(), runs, &variants[6]["mode"]), (12, 14, &"lora".into()), "{json}");
    let page = strandline(folder, &["diff", "modes", "--format", "html"]).1;
    assert!(page.contains(">lora/keep</td>"), "{page}");
}
