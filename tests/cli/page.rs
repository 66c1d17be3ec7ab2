//! `strandline report --html`: the page is whole by itself, its data is what the report says, and it stays small.

use crate::support::{Folder, root};
use crate::{frozen, run};
use serde_json::{Value, json};

/// The data within a page.
#[track_caller]
fn data(page: &str) -> Value {
    let (_, rest) =
        page.split_once(r#"<script id="data" type="application/json">"#).expect("a page has its data");
    let (data, _) = rest.split_once("</script>").expect("an end of the data");
    assert!(!data.contains('<'), "nothing within the data looks like markup");
    serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}"))
}

/// A column of the page, which has what each number is more than the one before; `[n, times]` is many of the same.
fn numbers(v: &Value) -> Vec<u64> {
    let mut sum = 0;
    let all = v.as_array().expect("numbers").iter();
    let more = all.flat_map(|n| {
        let (n, times) = (if n.is_array() { &n[0] } else { n }, n[1].as_u64().unwrap_or(1));
        std::iter::repeat_n(n.as_i64().expect("a number"), times as usize)
    });
    more.map(|n| {
        sum += n;
        u64::try_from(sum).expect("no number is below zero")
    })
    .collect()
}

/// The sum of all parts at each point.
fn sums(parts: &Value, points: usize) -> Vec<u64> {
    let parts = parts.as_array().expect("parts");
    let mut sums = vec![0; points];
    for part in parts {
        numbers(&part["bytes"]).iter().zip(&mut sums).for_each(|(b, s)| *s += b);
    }
    sums
}

#[test]
fn places_are_links_to_an_editor_where_that_is_asked_for() {
    let folder = Folder::new("page-links");
    let recording = frozen("v1-plain.strand");
    let vscode = json!({ "before": "vscode://file", "root": "", "line": ":" });
    for (words, links) in [(&[][..], Value::Null), (&["--source-links", "vscode"], vscode)] {
        let all = [&["report", &recording, "--html=page.html"], words].concat();
        let (status, _, stderr) = run(&folder, &all);
        assert_eq!(status, 0, "{stderr}");
        let page = std::fs::read_to_string(folder.path().join("page.html")).expect("the page");
        assert_eq!(data(&page)["told"]["links"], links);
    }
    for wrong in [
        &["--source-links", "vscode"][..],
        &["--html=page.html", "--source-links", "javascript:alert(1)//"],
        &["--html=page.html", "--share", "--source-links", "vscode"],
        // The recording knows no commit.
        &["--html=page.html", "--source-links", "github"],
    ] {
        let (status, _, stderr) = run(&folder, &[&["report", &recording], wrong].concat());
        assert_eq!(status, 2, "{wrong:?}: {stderr}");
    }
}

#[test]
fn a_page_is_whole_and_sums_to_what_the_report_says() {
    let folder = Folder::new("page");
    for name in ["v1-plain.strand", "v1-gap.strand", "v1-dropped.strand"] {
        let (status, stdout, stderr) = run(&folder, &["report", &frozen(name), "--html=page.html"]);
        assert_eq!((status, stdout.as_str()), (0, ""), "{stderr}");
        let page = std::fs::read_to_string(folder.path().join("page.html")).expect("the page");
        assert!(page.len() < 1 << 20, "{name}: {} bytes", page.len());
        for outside in ["http:", "https:", " src=", "url(", "@import", "<link", "fetch(", "import("] {
            assert!(!page.contains(outside), "{name}: the page reaches outside: {outside}");
        }
        let data = data(&page);
        let report = &data["report"]["processes"][0];
        let chart = &data["charts"][0][0];
        let (steps, allocated) = (numbers(&chart["steps"]), numbers(&chart["allocated"]));
        assert!(!steps.is_empty() && steps.is_sorted(), "{name}: {steps:?}");
        for column in ["reserved", "pending", "peak", "left"] {
            assert_eq!(numbers(&chart[column]).len(), steps.len(), "{name}: {column}");
        }
        // Blocks whose fate a loss hides, and those from before the recording, are in no part.
        for by in ["stream", "phase"] {
            let sums = sums(&chart["by"][by], steps.len());
            let whole = sums
                .iter()
                .zip(&allocated)
                .all(|(s, a)| if name == "v1-plain.strand" { s == a } else { s <= a });
            assert!(whole, "{name} by {by}: {sums:?} of {allocated:?}");
        }
        // What was there before has no block, and is the class "other".
        let classes = sums(&chart["classes"], steps.len());
        assert!(classes.iter().zip(&allocated).all(|(s, a)| s == a), "{name}: {classes:?} of {allocated:?}");
        let end = &chart["end"];
        let ages: u64 = end["ages"].as_array().expect("ages").iter().filter_map(|a| a[1].as_u64()).sum();
        assert_eq!(end["flame"][1], ages, "{name}: both are all that is held at the end");
        let within = numbers(&chart["within"][1]);
        if name == "v1-plain.strand" {
            let peak = &report["devices"][0]["peak_allocated_bytes"];
            assert_eq!(within.iter().max().map(|b| Value::from(*b)).as_ref(), Some(peak));
            assert_eq!(&chart["at_peak"]["allocated"], peak);
            assert_eq!(allocated.last().map(|b| Value::from(*b)), Some(end["allocated"].clone()));
        }
    }
}

/// `--at step:N` and a click on step N in the page tell the same.
#[test]
fn a_past_step_is_told_as_it_was() {
    let folder = Folder::new("past");
    let plain = frozen("v1-plain.strand");
    assert_eq!(run(&folder, &["report", &plain, "--html=page.html"]).0, 0);
    let data = data(&std::fs::read_to_string(folder.path().join("page.html")).expect("the page"));
    let chart = &data["charts"][0][0];
    let (steps, allocated) = (numbers(&chart["steps"]), numbers(&chart["allocated"]));
    for i in [0, steps.len() / 2, steps.len() - 1] {
        let at = format!("step:{}", steps[i]);
        let (status, json, stderr) = run(&folder, &["report", &plain, "--at", &at, "--format", "json"]);
        assert_eq!(status, 0, "{stderr}");
        let report: Value = serde_json::from_str(&json).expect("JSON");
        let process = &report["processes"][0];
        assert_eq!(
            (process["at_step"].as_u64(), process["steps"].as_u64()),
            (Some(steps[i]), Some(steps[i]))
        );
        let device = &process["devices"][0];
        assert_eq!(device["end_allocated_bytes"].as_u64(), Some(allocated[i]), "{at}");
        let a = &device["anatomy"];
        assert_eq!((a["at"].as_str(), a["step"].as_u64()), (Some("step"), Some(steps[i])), "{at}: {a}");
        for class in chart["classes"].as_array().expect("classes") {
            let name = class["name"].as_str().expect("a name");
            assert_eq!(a[name], numbers(&class["bytes"])[i], "{at}: {name}");
        }
        let (_, text, _) = run(&folder, &["report", &plain, "--at", &at]);
        assert!(text.contains(&format!("at the end of step {}", steps[i])), "{text}");
    }
    let wrong = |at: &str| run(&folder, &["report", &plain, "--at", at]);
    let (status, _, stderr) = wrong("step:99999999");
    assert!(status == 2 && stderr.contains("has no step 99,999,999"), "{stderr}");
    assert_eq!((wrong("step:x").0, wrong("peak").0), (2, 2));
}

#[test]
fn a_page_lies_beside_its_recording_and_never_over_it() {
    let folder = Folder::new("page-place");
    let recording = folder.path().join("job.strand");
    std::fs::copy(root().join("tests/recordings/v1-plain.strand"), &recording).expect("a copy");
    let before = std::fs::read(&recording).expect("the recording");
    let (status, _, stderr) = run(&folder, &["report", "job.strand", "--html"]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stderr.contains("job.html: open it in a browser"), "{stderr}");
    assert!(folder.path().join("job.html").exists());
    let (status, _, stderr) = run(&folder, &["report", "job.strand", "--html=job.strand"]);
    assert_eq!(status, 2);
    assert!(stderr.contains("would be overwritten"), "{stderr}");
    assert_eq!(std::fs::read(&recording).expect("the recording"), before);
    let (status, stdout, _) = run(&folder, &["report", "job.strand", "--format", "html"]);
    assert!(status == 0 && stdout.starts_with("<!doctype html>"), "{stdout}");
}
