//! `strandline advise`: the waste that was planted in a job is named by its line, with the peak that the job has without it; a tuned job
//! gets no advice.

mod support;

use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use support::{Folder, cache, command, root};

/// The line on which each job's waste is made, by what stands in it.
const LINES: [(&str, &str); 5] = [
    ("late_zero_grad", "loss.backward()"),
    ("kept_from_step_before", "logits = student(x)"),
    ("wide_copy", "logits = logits.float()"),
    ("optimizer_temporaries", "optimizer.step()"),
    ("collected_in_evaluation", "result = net("),
];

fn strandline(arguments: &[&str]) -> String {
    let mut strandline = Command::new(command());
    strandline
        .args(arguments)
        .current_dir(root())
        .env("STRANDLINE_CACHE", cache())
        .env("XDG_CACHE_HOME", cache());
    let output = strandline.stdin(Stdio::null()).output().expect("the command starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A job that ran: its recording, and the peak that it told itself.
struct Ran {
    job: String,
    wasteful: bool,
    peak: u64,
    told: Value,
}

/// All jobs, each with waste and without, in one run.
fn ran(folder: &Folder) -> Vec<Ran> {
    let place = folder.join("recorded");
    let place = place.to_str().expect("UTF-8");
    let run = ["run", "--simulate", "24GiB", "-q", "-o", place, "--", "python", "tests/python/advised.py"];
    let printed = strandline(&run);
    let mut files: Vec<_> = fs::read_dir(place).expect("the folder").flatten().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "strand"));
    let told = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        // The first process of a run has no number in its name.
        let ends = format!("-p{}.strand", words[2]);
        let of = |name: &str| name.ends_with(&ends);
        let name = |f: &std::path::PathBuf| f.to_string_lossy().into_owned();
        let file = files.iter().map(name).find(|n| of(n));
        let file = file.or_else(|| files.iter().map(name).find(|n| !n.contains("-p"))).expect("a recording");
        let advice: Value = serde_json::from_str(&strandline(&["advise", &file, "--json"])).expect("JSON");
        let device = &advice["processes"][0]["devices"][0];
        Ran {
            job: words[0].into(),
            wasteful: words[1] == "waste",
            peak: words[3].parse().expect("bytes"),
            told: device.clone(),
        }
    };
    printed.lines().map(told).collect()
}

#[test]
fn planted_waste_is_named_with_the_peak_of_the_tuned_job_and_tuned_jobs_get_no_advice() {
    let folder = Folder::new("advise");
    let source = fs::read_to_string(root().join("tests/python/advised.py")).expect("the jobs");
    let ran = ran(&folder);
    assert_eq!(ran.len(), 10);
    for (kind, text) in LINES {
        let find = |wasteful| ran.iter().find(|r| r.job == kind && r.wasteful == wasteful).expect("it ran");
        let (waste, tuned) = (find(true), find(false));
        assert_eq!(waste.told["peak_allocated_bytes"].as_u64(), Some(waste.peak), "{kind}");
        let first = &waste.told["advice"][0];
        assert_eq!(first["kind"], kind, "{:#}", waste.told);
        let line = first["line"].as_u64().expect("a line") as usize;
        assert!(
            source.lines().nth(line - 1).is_some_and(|l| l.contains(text)),
            "{kind}: line {line}: {first:#}"
        );
        let without = first["peak_without_bytes"].as_u64().expect("bytes");
        let off = without.abs_diff(tuned.peak) as f64 / tuned.peak as f64;
        assert!(off < 0.02, "{kind}: {without} foretold, {} when changed, of {}", tuned.peak, waste.peak);
        assert_eq!(tuned.told["advice"], serde_json::json!([]), "{kind}: {:#}", tuned.told);
    }
}

#[test]
fn a_recording_of_which_events_are_missing_says_so() {
    let told = |name: &str| strandline(&["advise", &format!("tests/recordings/{name}.strand")]);
    for name in ["v2-gap", "v2-dropped"] {
        assert!(told(name).contains("events are missing"), "{name}: {}", told(name));
    }
    assert!(!told("v2-plain").contains("events are missing"));
}

#[test]
fn a_change_that_makes_no_room_for_what_failed_is_told_as_such() {
    let folder = Folder::new("advise-oom");
    let script = folder.join("train.py");
    let job = "import sys, torch\nsys.path.insert(0, 'tests/python')\nimport advised\nadvised.late_zero_grad(True)\n\
               torch.empty(1 << 36, dtype=torch.uint8, device='cuda')\n";
    fs::write(&script, job).expect("written");
    let place = folder.join("recorded");
    let (script, place) = (script.to_str().expect("UTF-8"), place.to_str().expect("UTF-8"));
    let mut run = Command::new(command());
    run.args(["run", "--simulate", "8GiB", "-q", "-o", place, "--", "python", script]).current_dir(root());
    let run = run.env("STRANDLINE_CACHE", cache()).stdin(Stdio::null()).output().expect("it starts");
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let told = strandline(&["advise", place]);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("ADVICE")
            && told.contains("failed memory ran out in step")
            && told.contains("which needed 64."),
        "{told}"
    );
    assert!(
        told.contains("and the job can use 8.0 GiB: none of these changes alone makes room for that"),
        "{told}"
    );
}

#[test]
fn a_recording_without_blocks_is_bad_usage() {
    let folder = Folder::new("advise-none");
    let output =
        Command::new(command()).arg("advise").arg(folder.join("nothing.strand")).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
