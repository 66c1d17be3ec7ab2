//! The recorded jobs against what their scripts said of themselves on an H200 (`tests/leakbench/truth_h200.jsonl`).

use crate::judged::{Judged, job};
use serde_json::Value;
use strandline::detect::{Finding, Kind, Severity};
use strandline::event::DeviceId;

fn truth() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/leakbench/truth_h200.jsonl");
    let text = std::fs::read_to_string(path).expect("the truth");
    text.lines().map(|l| serde_json::from_str(l).expect("json")).collect()
}

fn number(t: &Value, key: &str) -> f64 {
    t[key].as_f64().unwrap_or_else(|| panic!("{}: no {key}", t["run"]))
}

/// What leaked is explained: by the right kind, on the right stream, with the right lines, at the right rate.
fn explains(t: &Value, j: &Judged) {
    let (name, deferred) = (&t["run"], t["kind"] == "deferred_free");
    let is_ours = |f: &&Finding| if deferred { f.kind == Kind::DeferredFree } else { f.kind.is_leak() };
    let ours: Vec<&Finding> = j.standing().into_iter().filter(is_ours).collect();
    // What vanished when the holder was cleared; where frees wait, what still waited.
    let leaked = number(t, if deferred { "deferred_last" } else { "released_bytes" });
    let told: u64 = ours.iter().map(|f| f.bytes_now).sum();
    assert!(told as f64 >= 0.9 * leaked, "{name}: {told} of {leaked} bytes are explained");
    let (rate, want): (f64, f64) =
        (ours.iter().map(|f| f.bytes_per_step).sum(), number(t, "leak_bytes_per_step"));
    assert!((rate / want - 1.0).abs() <= 0.15, "{name}: {rate} bytes a step are told, {want} are true");
    let lines = j.lines(ours[0]);
    let sites = t["leak_sites"].as_array().expect("sites");
    // Of several lines the script means the first is the one that most is born at.
    assert!(
        sites.iter().any(|s| s.as_str().is_some_and(|s| s.ends_with(&lines[0]))),
        "{name}: {lines:?} for {sites:?}"
    );
    let side = ours[0].stream.is_some_and(|s| s.side);
    assert_eq!(side, t["kind"] == "stranded_on_side_stream", "{name}");
    // Nearly all of what is accused comes from the lines that are guilty.
    let old = j.replay.steps().saturating_sub(1);
    let guilty: u64 = j
        .replay
        .blocks(DeviceId(0))
        .filter(|h| h.pending == deferred && h.step < old)
        .filter(|h| ours.iter().any(|f| f.sites.iter().any(|s| s.site == h.site)))
        .map(|h| h.block.rounded.0)
        .sum();
    assert!(guilty as f64 >= 0.9 * leaked, "{name}: blocks of these lines: {guilty} of {leaked}");
}

#[test]
fn every_leak_is_explained_and_no_control_is_accused_at_any_step() {
    let (mut leaks, mut controls) = (0, 0);
    for t in truth() {
        let name = t["run"].as_str().expect("a run");
        let (_, j) = job(name);
        if t["true_leak"] == true {
            explains(&t, &j);
            leaks += 1;
        } else {
            let worst = j.worst.as_ref().map_or(Severity::Info, |w| w.0);
            assert_eq!(worst, Severity::Info, "{name}: {:?}", j.worst);
            controls += 1;
        }
        let at_most = match name {
            "a_offload_vl" => 7,
            "c_fastllm" => 12,
            _ => continue,
        };
        let step = j.standing()[0].detected_step;
        assert!(step <= at_most, "{name} is named at mark {step}");
    }
    assert_eq!((leaks, controls), (5, 19));
}
