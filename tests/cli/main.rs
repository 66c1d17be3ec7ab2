//! The commands that read recordings, on frozen ones: what goes to which stream, which status they end with, and that
//! what is no recording is an error that says what and where.

mod documented;
mod page;
mod shown;
mod support;

use std::path::Path;
use std::process::{Command, Output};
use support::{Folder, root, strandline};

/// A frozen recording of a small job.
fn frozen(name: &str) -> String {
    root().join("tests/recordings").join(name).to_string_lossy().into_owned()
}

fn run(folder: &Folder, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(strandline());
    let Output { status, stdout, stderr } =
        command.args(words).current_dir(folder.path()).output().expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().expect("never a signal"), text(stdout), text(stderr))
}

#[test]
fn a_report_begins_with_the_verdict_and_json_is_schema_1() {
    let folder = Folder::new("report");
    let (status, stdout, stderr) = run(&folder, &["report", &frozen("v1-plain.strand")]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let words = ["LEAK", "NO LEAK", "NOT JUDGED", "OUT OF MEMORY, NO LEAK", "KILLED BY THE HOST"];
    let verdict = stdout.strip_prefix("strandline: ").expect("the verdict first");
    assert!(words.iter().any(|w| verdict.starts_with(w)), "{stdout}");
    let (_, json, _) = run(&folder, &["report", &frozen("v1-plain.strand"), "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["schema"], 1);
    assert!(report["processes"][0]["events"].as_u64().is_some_and(|n| n > 0), "{json}");
    let (_, stdout, stderr) = run(&folder, &["report", &frozen("v1-plain.strand"), "-o", "out.txt"]);
    assert_eq!((stdout.as_str(), stderr.as_str()), ("", "strandline: report written to out.txt\n"));
    assert!(folder.path().join("out.txt").exists());
}

/// PyTorch is 500 MB: a machine on which its libraries cannot be linked is told before.
#[test]
fn the_simulated_device_asks_for_a_linker_before_it_downloads() {
    let folder = Folder::new("linker");
    let mut command = Command::new(strandline());
    command.args(["simulate", "--python"]).current_dir(folder.path());
    let ran =
        command.env("CC", "no-such-compiler").env("STRANDLINE_CACHE", folder.path().join("cache")).output();
    let Output { status, stderr, .. } = ran.expect("the command starts");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(!status.success() && stderr.contains("apt install gcc"), "{stderr}");
    assert!(!stderr.contains("downloading"), "{stderr}");
}

#[test]
fn a_gate_on_a_recording_ends_as_its_verdict_says() {
    let folder = Folder::new("gate");
    for name in ["v1-plain.strand", "v1-gap.strand", "v1-dropped.strand"] {
        let recording = frozen(name);
        let (_, json, _) = run(&folder, &["report", &recording, "--format", "json"]);
        let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let expected = match report["verdict"].as_str().expect("a verdict") {
            "leak" => 81,
            "unknown" | "warning" => 83,
            _ => 0,
        };
        assert_eq!(run(&folder, &["report", &recording, "--fail-on-leak"]).0, expected, "{name}: {json}");
    }
}

#[test]
fn a_dump_has_a_line_for_each_event_in_both_forms() {
    let folder = Folder::new("dump");
    let (status, text, stderr) = run(&folder, &["dump", &frozen("v1-plain.strand")]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().any(|l| l.contains(" alloc ")), "{text}");
    assert!(!text.contains(" unknown"), "every kind of item has a name");
    let (_, json, _) = run(&folder, &["dump", "--format", "json", &frozen("v1-plain.strand")]);
    assert_eq!(json.lines().count(), lines.len());
    for (line, text) in json.lines().zip(&lines) {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(text.split(' ').nth(1), value["what"].as_str(), "{line}\n{text}");
    }
}

#[test]
fn a_snapshot_lies_beside_the_recording_and_its_path_is_told() {
    let folder = Folder::new("snapshot");
    let recording = folder.path().join("job-r0.strand");
    std::fs::copy(frozen("v1-plain.strand"), &recording).expect("a copy");
    let (status, stdout, stderr) = run(&folder, &["snapshot", "job-r0.strand"]);
    assert_eq!((status, stdout.as_str()), (0, "job-r0.end.pickle\n"));
    assert!(stderr.contains("pytorch.org/memory_viz"), "{stderr}");
    let bytes = std::fs::read(folder.path().join("job-r0.end.pickle")).expect("it is there");
    assert!(bytes.starts_with(b"\x80") && bytes.ends_with(b"."), "a pickle from its first byte to its last");
}

#[test]
fn what_is_no_recording_is_an_error_that_says_what_and_where() {
    let folder = Folder::new("garbage");
    folder.file("text.strand", "these are no bytes of ours");
    folder.file("empty.strand", "");
    let whole = std::fs::read(frozen("v1-plain.strand")).expect("frozen");
    std::fs::write(folder.path().join("header.strand"), &whole[..40]).expect("written");
    for command in ["report", "snapshot", "dump"] {
        for file in ["text.strand", "empty.strand", "header.strand", "missing.strand"] {
            let (status, stdout, stderr) = run(&folder, &[command, file]);
            assert_eq!((status, stdout.as_str()), (2, ""), "{command} {file}: {stderr}");
            assert!(stderr.starts_with(&format!("strandline: {file}: ")), "{command} {file}: {stderr}");
        }
    }
    let (status, _, stderr) = run(&folder, &["report"]);
    assert_eq!(status, 2);
    assert!(
        stderr.contains("no recording under ./strandline") && stderr.contains("strandline demo"),
        "{stderr}"
    );
}

#[test]
fn a_torn_recording_is_read_up_to_its_tear() {
    let folder = Folder::new("torn");
    let whole = std::fs::read(frozen("v1-plain.strand")).expect("frozen");
    for keep in [whole.len() / 3, whole.len() / 2, whole.len() - 1] {
        std::fs::write(folder.path().join("torn.strand"), &whole[..keep]).expect("written");
        let (status, stdout, stderr) = run(&folder, &["report", "torn.strand"]);
        assert_eq!(status, 0, "{keep}: {stderr}");
        assert!(stdout.starts_with("strandline: "), "{stdout}");
    }
}

#[test]
fn a_doctor_gives_the_verdict_first() {
    let folder = Folder::new("doctor");
    let (status, stdout, _) = run(&folder, &["doctor", "--", "no-such-command"]);
    assert_eq!(status, 1);
    assert!(
        stdout.starts_with("strandline: NOT READY: no-such-command was not found on this machine\n"),
        "{stdout}"
    );
    let (_, stdout, _) = run(&folder, &["doctor", "--", "/bin/sh"]);
    let lines: Vec<&str> = stdout.lines().skip(1).collect();
    assert!(lines.iter().all(|l| l.starts_with("  ")), "{stdout}");
}

#[test]
fn help_shows_every_command_and_nothing_that_is_not_there() {
    let folder = Folder::new("help");
    let (status, stdout, _) = run(&folder, &["--help"]);
    assert_eq!(status, 0);
    let commands = [
        "run", "watch", "top", "report", "snapshot", "diff", "export", "dump", "env", "doctor", "demo",
        "left",
    ];
    for command in commands.into_iter().chain(["simulate", "predict", "fit", "advise", "completions", "man"])
    {
        assert!(stdout.contains(&format!("\n  {command} ")), "{command}: {stdout}");
        let (status, help, _) = run(&folder, &[command, "--help"]);
        assert!(status == 0 && help.is_ascii(), "{help}");
        assert_eq!(run(&folder, &["help", command]), (0, help, String::new()));
    }
    for absent in ["record", "replay"] {
        assert_eq!(run(&folder, &[absent]).0, 2, "{absent}");
    }
    assert!(Path::new(strandline()).exists());
    // A table: what is wrapped begins in the first column, and its numbers are lost in the middle of a line.
    let (_, table) = stdout.split_once("\nExit status of `run`:\n").expect("the exit statuses");
    for status in ["0", "81", "84", "83", "82", "2", "126", "127"] {
        assert!(table.contains(&format!("\n  {status} ")), "{status}: {table}");
    }
    assert!(table.lines().all(|l| l.starts_with("  ") && l.len() <= 80), "{table}");
}

#[test]
fn top_needs_a_terminal_and_puts_it_back() {
    let folder = Folder::new("top");
    let (status, stdout, stderr) = run(&folder, &["top", &frozen("v1-plain.strand")]);
    assert_eq!((status, stdout.as_str()), (2, ""));
    assert!(stderr.contains("top needs a terminal"), "{stderr}");
    let mut command = Command::new("python3");
    command.arg(root().join("tests/cli/top.py")).arg(strandline()).arg("top");
    command.arg(frozen("v1-plain.strand")).current_dir(folder.path());
    let Output { status, stdout, stderr } = command.output().expect("python3 starts");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let said = "drawn, opened, status 0, put back\nended with its terminal\nended with its terminal\n";
    assert_eq!(String::from_utf8_lossy(&stdout), said);
}
