//! `strandline fit`: the largest value with which a job fits a card is found by running it, and one more does not fit.

mod support;

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use support::{Folder, cache, command, root};

const JOB: &str = "tests/python/fitted.py";

fn fit(folder: &Folder, options: &[&str], job: &[&str]) -> Output {
    let mut fit = Command::new(command());
    fit.arg("fit").args(options).arg("--").args(job).current_dir(root());
    fit.env("STRANDLINE_CACHE", cache()).env("XDG_CACHE_HOME", cache()).env("TMPDIR", folder.join(""));
    fit.env_remove("SEQUENCE").env("STRANDLINE_TEST_DEPTH", "3").stdin(Stdio::null());
    fit.output().expect("the command starts")
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// What a card needs for a value.
fn needed(varied: &Value, value: &Value) -> u64 {
    let runs = varied["runs"].as_array().expect("runs");
    let run = runs.iter().find(|r| r["value"] == *value).unwrap_or_else(|| panic!("{value}: {varied}"));
    run["needed_bytes"].as_u64().expect("bytes")
}

#[test]
fn the_largest_value_fits_and_the_next_one_does_not() {
    let folder = Folder::new("fit-range");
    // 771 MiB beside PyTorch's, and what a batch takes is 9 MiB.
    let options = ["--json", "--steps", "3", "--gpu", "991MiB", "--vary", "batch_size=1..40"];
    let output = fit(&folder, &options, &["python", JOB, "--batch-size", "7"]);
    let told = json(&output);
    let varied = &told["varied"][0];
    let card = &varied["cards"][0];
    assert_eq!((&card["outcome"], output.status.code()), (&"largest".into(), Some(0)), "{told}");
    let (value, beyond) = (&card["value"], &card["does_not_fit"]);
    assert_eq!(value.as_u64().map(|v| v + 1), beyond.as_u64(), "{told}");
    // What is reserved may be more than the card has, if PyTorch gives cached memory back in time; what is allocated may not.
    assert!(needed(varied, beyond) > 991 << 20, "{told}");
    let runs = varied["runs"].as_array().expect("runs");
    let allocated =
        runs.iter().find(|r| r["value"] == *value).and_then(|r| r["peak_allocated_bytes"].as_u64());
    assert!(allocated.is_some_and(|b| b + (771 << 20) <= 991 << 20), "{told}");
    assert_eq!(varied["replaced"], "the value of --batch-size (it was 7)");
    let left: Vec<_> = std::fs::read_dir(folder.join("")).expect("the folder").flatten().collect();
    let left: Vec<_> =
        left.iter().flat_map(|f| std::fs::read_dir(f.path()).into_iter().flatten().flatten()).collect();
    assert!(left.is_empty(), "recordings are removed: {left:?}");
}

#[test]
fn lists_of_several_names_are_tried_one_after_the_other_and_kept_where_asked() {
    let folder = Folder::new("fit-lists");
    let kept = folder.join("kept");
    let kept = kept.to_str().expect("UTF-8");
    let vary = ["--vary", "batch=1,4", "--vary", "STRANDLINE_TEST_DEPTH=2,6"];
    let options = ["--steps", "3", "--gpu", "h100", "-o", kept, "--json"];
    let job = ["python", JOB, "--batch-size", "{batch}"];
    let output = fit(&folder, &[&options[..], &vary].concat(), &job);
    let told = json(&output);
    assert_eq!(output.status.code(), Some(0));
    let outcomes = [&told["varied"][0]["cards"][0]["outcome"], &told["varied"][1]["cards"][0]["outcome"]];
    assert_eq!(outcomes, [&Value::from("all"), &Value::from("all")], "{told}");
    let (batch, depth) = (&told["varied"][0], &told["varied"][1]);
    assert!(needed(batch, &4.into()) > needed(batch, &1.into()), "{told}");
    assert!(needed(depth, &6.into()) > needed(depth, &2.into()), "{told}");
    assert_eq!((&depth["others"]["batch"], &batch["others"]), (&1.into(), &serde_json::json!({})), "{told}");
    assert!(folder.join("kept/batch-4/output.txt").exists(), "{output:?}");
}

#[test]
fn what_fails_and_what_fits_nowhere_are_told_with_a_status_of_their_own() {
    let folder = Folder::new("fit-fails");
    let job = ["python", JOB, "--fail-above", "2", "--batch-size", "1"];
    let output = fit(&folder, &["--steps", "3", "--gpu", "h100", "--vary", "batch-size=1..64x2"], &job);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text.contains("FAILS with batch-size=64") && text.contains("a batch of 64 is too large"),
        "{text}"
    );
    let output = fit(&folder, &["--steps", "3", "--gpu", "1GiB", "--vary", "batch-size=8,9"], &job[..2]);
    assert_eq!(output.status.code(), Some(2), "no such option in the command: {output:?}");
    let output = fit(
        &folder,
        &["--steps", "3", "--gpu", "1GiB", "--vary", "bs=32,33"],
        &["python", JOB, "--batch-size={}"],
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(86) && text.contains("NO bs of 32,33 fits 1GiB"), "{output:?}");
}
