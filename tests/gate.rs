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

/// A report without its line breaks.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
        let told = unwrapped(&stderr);
        assert!(told.contains("exit 84: memory grows (--fail-on-leak)"), "{told}");
        assert!(told.contains("grows by 64 MiB every step") && told.contains("judged.py:2"), "{told}");
    }

    let report = |more: &[&str], variables: &[(&str, &str)]| {
        let words: Vec<&str> = ["report", "--fail-on-leak", "small"].iter().chain(more).copied().collect();
        strandline(&folder, &words, variables)
    };
    assert_eq!(report(&[], &[]).0, 84);
    let (status, stdout, _) = report(&["--allow-growth", "65MiB/step"], &[]);
    assert_eq!(status, 0);
    assert!(
        stdout.starts_with("strandline: NO LEAK. Apart from suppressed findings, no line"),
        "one judgement: {stdout}"
    );
    assert!(unwrapped(&stdout).contains("suppressed by --allow-growth 65 MiB/step"), "{stdout}");
    assert_eq!(report(&["--allow-growth", "63MiB/step"], &[]).0, 84);
    assert_eq!(report(&["--allow-growth", "fast"], &[]).0, 2);

    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
    // What the user knows as a leak is one, wherever the list lies; a list that is none is bad usage, or is left out.
    let known =
        r#"[{"known": "page 12", "kinds": ["step-growth"], "files": ["judged.py"], "remedy": "clear it"}]"#;
    write("mine.json", known);
    write("wrong.json", &known.replace("files", "file"));
    let (status, stdout, _) = report(&["--known", "mine.json"], &[]);
    assert!(
        status == 81 && unwrapped(&stdout).contains("fix known: page 12, clear it"),
        "{status}: {stdout}"
    );
    let (status, _, stderr) = report(&["--known", "wrong.json"], &[]);
    assert!(status == 2 && stderr.contains("entry 1: \"file\" is not a key"), "{status}: {stderr}");
    std::fs::create_dir_all(folder.join("config/strandline")).expect("a folder");
    let configured = folder.join("config");
    let configured = [("XDG_CONFIG_HOME", configured.to_str().expect("UTF-8"))];
    write("config/strandline/known.json", known);
    assert_eq!(report(&[], &configured).0, 81);
    write("config/strandline/known.json", "{}");
    let (status, _, stderr) = report(&[], &configured);
    assert!(status == 84 && stderr.contains("not a list of objects"), "{status}: {stderr}");

    write("known.supp", "# a list\ngrowing:^*judged.py$\ngrowing:nobody_has_this\n");
    write("leaks.supp", "leak:judged.py\n");
    write("bad.supp", "growing:judged.py\n\njudged.py\n");
    let (status, stdout, stderr) = report(&["--suppressions", "known.supp"], &[]);
    assert_eq!(status, 0, "{stdout}{stderr}");
    assert!(stdout.starts_with("strandline: NO LEAK. Apart from suppressed findings, no line"), "{stdout}");
    assert!(unwrapped(&stdout).contains("suppressed by known.supp:2"), "{stdout}");
    assert!(stderr.contains("matched nothing: growing:nobody_has_this (known.supp:3)"), "{stderr}");
    assert!(!stderr.contains("known.supp:2"), "{stderr}");
    let json = report(&["--format", "json"], &[("STRANDLINE_SUPPRESSIONS", "known.supp")]);
    let told: Value = serde_json::from_str(&json.1).expect("JSON");
    let findings = told["processes"][0]["findings"].as_array().expect("a list");
    assert!(findings.iter().any(|f| f["suppressed_by"] == "known.supp:2"), "{told}");
    assert_eq!((json.0, told["verdict"].as_str()), (0, Some("clean")));
    let detectable = told["detectable_bytes_per_step"].as_f64().expect("a figure");
    assert!(detectable < 1048576.0, "what is suppressed hides nothing: {detectable}");
    // The page, the alerts and the figures of a run leave out what its report leaves out.
    let page = report(&["--format", "html", "--suppressions", "known.supp"], &[]).1;
    let (_, data) = page.split_once(r#"type="application/json">"#).expect("a page has its data");
    let data: Value = serde_json::from_str(data.split_once("</script>").expect("an end").0).expect("JSON");
    assert_eq!(data["told"]["phrase"], "NO LEAK");
    let rows = data["charts"][0][0]["table"].as_array().expect("lines");
    assert!(!rows.is_empty() && rows.iter().all(|row| row[6] == 0), "{rows:?}");
    for (suppressions, is_told) in [("known.supp", false), ("leaks.supp", true)] {
        let run = [
            "run",
            "--fail-on-leak",
            "-o",
            if is_told { "told" } else { "quiet" },
            "--alert-growth",
            "1MiB/step",
        ];
        let more = ["--metrics", "file:figures", "--suppressions", suppressions, "--", job[0], job[1]];
        let words: Vec<&str> = run.iter().chain(&more).copied().collect();
        let (status, _, stderr) = strandline(&folder, &words, &[("STRANDLINE_SIM_TOTAL", "8GiB")]);
        assert_eq!(status, if is_told { 84 } else { 0 }, "{stderr}");
        assert_eq!(stderr.contains("strandline: ALERT"), is_told, "{stderr}");
        let figures = std::fs::read_to_string(folder.join("figures")).expect("figures");
        assert_eq!(figures.contains("strandline_leak_bytes"), is_told, "{figures}");
    }
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
