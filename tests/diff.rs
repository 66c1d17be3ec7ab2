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
    assert!(text.contains("train.py:17 keep (was line 15)") && text.contains("moved and hold"), "{text}");

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
            stderr.contains("exit status 85, for --fail-if-worse: 16 MiB more"),
            status == 85,
            "{stderr}"
        );
    }
    let less = strandline(&folder, &["diff", "new", "base", "--fail-if-worse", "0%"]);
    assert_eq!(less.0, 0, "less is not worse");
    let (status, _, stderr) = strandline(&folder, &["diff", "base@step:99", "base"]);
    assert!(status == 2 && stderr.contains("step 99"), "{stderr}");
    // What lies there under that name is meant.
    std::fs::rename(folder.join("new"), folder.join("run@end")).expect("renamed");
    assert_eq!(row(&diff(&["base", "run@end"]))["more_bytes"], 2 * KEPT);
}
