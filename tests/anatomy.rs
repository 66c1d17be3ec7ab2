//! What fills a device, against what models count of themselves: real models from configs on simulated
//! devices, one on each.

mod support;

use serde_json::Value;
use support::{Folder, Job, report, strandline};

/// Weights, gradients and optimizer state at each device's peak are within 2 % of what its model says. The inputs
/// are small: all three are there at the peak.
#[track_caller]
fn agrees(models: &[&str]) {
    let folder = Folder::new("anatomy");
    let python = support::python_with_transformers();
    let script = support::root().join("tests/python/anatomy.py");
    let mut job = Job::program(&folder, python).arg(script).devices(models.len() as u32);
    for model in models {
        job = job.arg(model);
    }
    let ran = job.run().succeeded();
    let report = report(&ran.recording()).whole();
    let own = ran.stdout();
    let own: Vec<Value> =
        own.lines().filter(|l| l.starts_with('{')).map(|l| serde_json::from_str(l).expect("json")).collect();
    assert_eq!(own.len(), models.len(), "{}", ran.stderr());
    for (i, own) in own.iter().enumerate() {
        let d = &report.process["devices"][i];
        let (peak, anatomy) = (&d["peak_phase"], &d["anatomy"]);
        for class in ["weights", "gradients", "optimizer"] {
            let (ours, theirs) = (anatomy[class].as_f64(), own[class].as_f64());
            let (ours, theirs) = ours.zip(theirs).unwrap_or_else(|| panic!("{class}: {anatomy} {own}"));
            println!(
                "{} {class}: {ours}, itself {theirs} ({:+.3} %)",
                own["name"],
                100.0 * (ours / theirs - 1.0)
            );
            assert!(
                (ours / theirs - 1.0).abs() <= 0.02,
                "{class} of {} in {peak}: {ours}, itself {theirs}: {anatomy}",
                own["name"]
            );
        }
    }
}

/// A job that frees all it held right after its last optimizer: its last step is told as it was before that, at the peak, by
/// `--at` and in a snapshot alike.
#[test]
fn the_last_step_is_told_as_it_was_before_the_job_freed_what_it_held() {
    for steps in ["1", "2", "20"] {
        let folder = Folder::new("teardown");
        let ran = Job::python(&folder, "tests/python/teardown.py", &[steps]).run().succeeded();
        let own: Value = serde_json::from_str(ran.stdout().trim()).expect("json");
        let recording = ran.recording();
        let recording = recording.to_str().expect("UTF-8");
        let at = format!("step:{steps}");
        let told = |at: &[&str]| -> Value {
            let words = [&["report", recording, "--format", "json"], at].concat();
            let report: Value = serde_json::from_str(&strandline(&words)).expect("json");
            report["processes"][0]["devices"][0].clone()
        };
        let (end, last) = (told(&[]), told(&["--at", &at]));
        assert_eq!(last["end_allocated_bytes"], own["allocated"], "{steps} steps: {last}");
        assert_eq!(end["end_allocated_bytes"], own["allocated"], "{steps} steps: {end}");
        assert_eq!(last["per_step"], end["per_step"], "{steps} steps");
        // In a job of one step nothing tells a library's workspace from gradients.
        let classes =
            if steps == "1" { &["weights", "optimizer"][..] } else { &["weights", "optimizer", "gradients"] };
        for class in classes {
            assert_eq!(last["anatomy"][class], own[class], "{class}, {steps} steps: {}", last["anatomy"]);
            assert_eq!(
                end["anatomy"][class], own[class],
                "{class} at the peak, {steps} steps: {}",
                end["anatomy"]
            );
        }
        assert_eq!(last["anatomy"]["at"], "step");
        assert_eq!(last["anatomy"]["step"].to_string(), steps);
        assert_eq!(last["peak_step"], end["peak_step"], "{steps} steps: {last}");
        let file = folder.join("last.json");
        let path = file.to_str().expect("UTF-8");
        strandline(&["snapshot", recording, "--at", &at, "--format", "json", "-o", path]);
        let text = std::fs::read_to_string(&file).expect("a snapshot");
        let snapshot: Value = serde_json::from_str(&text).expect("json");
        let segments = snapshot["segments"].as_array().expect("segments").iter();
        let blocks = segments.flat_map(|s| s["blocks"].as_array().expect("blocks"));
        let live = blocks.filter(|b| b["state"] == "active_allocated").filter_map(|b| b["size"].as_u64());
        assert_eq!(Value::from(live.sum::<u64>()), own["allocated"], "a snapshot of step {steps}");
        let path = folder.join("end.pickle");
        let path = path.to_str().expect("UTF-8");
        strandline(&["snapshot", recording, "-o", path]);
        let read = strandline(&["report", path, "--format", "json"]);
        let read: Value = serde_json::from_str(&read).expect("json");
        let (read, device) = (&read["processes"][0], &read["processes"][0]["devices"][0]);
        assert_eq!(read["steps"].to_string(), steps, "as the snapshot has them");
        for class in classes {
            assert_eq!(device["anatomy"][class], end["anatomy"][class], "{class}, {steps} steps: {device}");
        }
    }
}

#[test]
fn models_count_as_they_count_themselves() {
    agrees(&["gpt2", "llama", "vit"]);
}

#[test]
#[ignore = "seven more models: the same code, for three times the time"]
fn more_models_count_as_they_count_themselves() {
    agrees(&["bert", "qwen2", "gemma", "neox", "t5", "electra", "deit"]);
}
