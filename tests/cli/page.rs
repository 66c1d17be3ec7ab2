//! `strandline report --html`: the page is whole by itself, its data is what the report says, and it stays small.

use crate::support::{Folder, root};
use crate::{frozen, run};
use serde_json::Value;

/// The data within a page.
#[track_caller]
fn data(page: &str) -> Value {
    let (_, rest) =
        page.split_once(r#"<script id="data" type="application/json">"#).expect("a page has its data");
    let (data, _) = rest.split_once("</script>").expect("an end of the data");
    assert!(!data.contains('<'), "nothing within the data looks like markup");
    serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}"))
}

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array().expect("numbers").iter().map(|n| n.as_u64().expect("a number")).collect()
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
        let end = &chart["end"];
        let ages: u64 = end["ages"].as_array().expect("ages").iter().filter_map(|a| a[1].as_u64()).sum();
        assert_eq!(end["flame"][1], ages, "{name}: both are all that is held at the end");
        let within: Vec<u64> =
            chart["within"].as_array().expect("a curve").iter().filter_map(|p| p[1].as_u64()).collect();
        if name == "v1-plain.strand" {
            let peak = &report["devices"][0]["peak_allocated_bytes"];
            assert_eq!(within.iter().max().map(|b| Value::from(*b)).as_ref(), Some(peak));
            assert_eq!(&chart["at_peak"]["allocated"], peak);
            assert_eq!(allocated.last().map(|b| Value::from(*b)), Some(end["allocated"].clone()));
        }
    }
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
