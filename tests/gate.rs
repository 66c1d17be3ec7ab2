//! The gate of `--fail-on-leak`: the same status on every card, what it lets pass, and the line that says why it fails.

mod support;

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use support::{Folder, command, python, root};

/// Status, stdout and stderr of the command in a folder, on a card of this size.
fn strandline(folder: &Folder, words: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let mut run = Command::new(command());
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        run.env_remove(name);
    }
    run.args(words).current_dir(folder.path()).env_remove("LD_PRELOAD").stdin(Stdio::null());
    run.env("XDG_CACHE_HOME", support::cache()).env("STRANDLINE_TAIL", folder.path());
    run.envs(variables.iter().copied());
    let Output { status, stdout, stderr } = run.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().expect("never a signal"), text(stdout), text(stderr))
}

/// `judged.py` keeps 64 MiB a step in a list, for 40 steps.
#[test]
fn a_growing_list_fails_the_gate_unless_it_is_allowed_or_suppressed() {
    let folder = Folder::new("gate");
    let (python, script) = (python(), root().join("tests/python/judged.py"));
    let job = [python.to_str().expect("UTF-8"), script.to_str().expect("UTF-8")];
    for (out, size) in [("small", 4u64 << 30), ("large", 140 << 30)] {
        let words = ["run", "--fail-on-leak", "-o", out, "--", job[0], job[1]];
        let (status, _, stderr) = strandline(&folder, &words, &[("STRANDLINE_SIM_TOTAL", &size.to_string())]);
        assert_eq!(status, 84, "on {size} bytes: {stderr}");
        let why = stderr.lines().find(|l| l.starts_with("strandline: exit status 84")).expect("why");
        assert!(why.contains("64") && why.contains("judged.py:2"), "{why}");
    }

    let report = |more: &[&str], variables: &[(&str, &str)]| {
        let words: Vec<&str> = ["report", "--fail-on-leak", "small"].iter().chain(more).copied().collect();
        strandline(&folder, &words, variables)
    };
    assert_eq!(report(&[], &[]).0, 84);
    assert_eq!(report(&["--allow-growth", "65MiB/step"], &[]).0, 0);
    assert_eq!(report(&["--allow-growth", "63MiB/step"], &[]).0, 84);
    assert_eq!(report(&["--allow-growth", "fast"], &[]).0, 2);

    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
    write("known.supp", "# a list\ngrowing:^*judged.py$\ngrowing:nobody_has_this\n");
    write("leaks.supp", "leak:judged.py\n");
    write("bad.supp", "growing:judged.py\n\njudged.py\n");
    let (status, stdout, stderr) = report(&["--suppressions", "known.supp"], &[]);
    assert_eq!(status, 0, "{stdout}{stderr}");
    assert!(stdout.starts_with("strandline: NO LEAK. No other line"), "{stdout}");
    assert!(stdout.contains("suppressed by known.supp:2"), "{stdout}");
    assert!(stderr.contains("matched nothing: growing:nobody_has_this (known.supp:3)"), "{stderr}");
    assert!(!stderr.contains("known.supp:2"), "{stderr}");
    let json = report(&["--format", "json"], &[("STRANDLINE_SUPPRESSIONS", "known.supp")]);
    let told: Value = serde_json::from_str(&json.1).expect("JSON");
    let findings = told["processes"][0]["findings"].as_array().expect("a list");
    assert!(findings.iter().any(|f| f["suppressed_by"] == "known.supp:2"), "{told}");
    assert_eq!((json.0, told["verdict"].as_str()), (0, Some("clean")));
    // A pattern is of one certainty: what is growing is no leak.
    let (status, _, stderr) = report(&["--suppressions", "leaks.supp"], &[]);
    assert_eq!(status, 84, "{stderr}");
    assert!(stderr.contains("matched nothing: leak:judged.py (leaks.supp:1)"), "{stderr}");

    for refused in ["bad.supp", "absent.supp"] {
        let words = ["run", "--suppressions", refused, "-o", "none", "touch", "ran"];
        let (status, _, stderr) = strandline(&folder, &words, &[]);
        assert_eq!(status, 2, "{stderr}");
        assert!(stderr.contains(refused), "{stderr}");
    }
    assert!(
        strandline(&folder, &["report", "small", "--suppressions", "bad.supp"], &[]).2.contains("bad.supp:3")
    );
    assert!(!folder.join("ran").exists(), "what cannot be understood is refused before the job starts");
}
