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
    let python = strandline(&["simulate", "--with-transformers", "--python"]);
    let script = support::root().join("tests/python/anatomy.py");
    let mut job = Job::program(&folder, python.trim_end()).arg(script).devices(models.len() as u32);
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

#[test]
fn models_count_as_they_count_themselves() {
    agrees(&["gpt2", "llama", "vit"]);
}

#[test]
#[ignore = "seven more models: the same code, for three times the time"]
fn more_models_count_as_they_count_themselves() {
    agrees(&["bert", "qwen2", "gemma", "neox", "t5", "electra", "deit"]);
}
