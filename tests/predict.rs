//! `strandline predict`: a job that would go on for a million steps is ended when its memory has settled, and what it needs is told.

mod support;

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use support::{Folder, cache, command, root};

/// Of a folder of its own.
fn predict(folder: &Folder, options: &[&str], job: &[&str]) -> Output {
    let mut predict = Command::new(command());
    predict.arg("predict").args(options).arg("-o").arg(folder.join("recorded")).arg("--").args(job);
    predict.current_dir(root()).env("STRANDLINE_CACHE", cache()).env("XDG_CACHE_HOME", cache());
    predict.stdin(Stdio::null()).output().expect("the command starts")
}

/// The prediction and the exit status.
#[track_caller]
fn told(folder: &Folder, options: &[&str], what: &str) -> (Value, Option<i32>) {
    let options: Vec<&str> = options.iter().copied().chain(["--json"]).collect();
    let output = predict(folder, &options, &["tests/python/predicted.py", what]);
    let text = String::from_utf8_lossy(&output.stdout);
    // The job's own lines come first.
    let json = text.find("{\n").map(|at| &text[at..]).unwrap_or_else(|| panic!("{output:?}"));
    (serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}")), output.status.code())
}

#[test]
fn a_job_is_ended_when_its_memory_has_settled_and_its_peak_is_the_jobs_own() {
    let folder = Folder::new("predict-late");
    let output = predict(&folder, &["--json", "--gpu", "24GiB"], &["tests/python/predicted.py", "late"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let at = text.find("{\n").unwrap_or_else(|| panic!("{output:?}"));
    // What the job says itself, of the steps after its largest batch: its last whole line, as it may be ended in the middle of one.
    let (whole, _) = text[..at].rsplit_once('\n').expect("a line");
    let last = whole.lines().last().expect("a line");
    let own: Vec<u64> = last.split(' ').map(|n| n.parse().expect("bytes")).collect();
    let told: Value = serde_json::from_str(&text[at..]).expect("JSON");
    let device = &told["devices"][0];
    assert_eq!(
        (device["peak_allocated_bytes"].as_u64(), device["peak_reserved_bytes"].as_u64()),
        (Some(own[0]), Some(own[1]))
    );
    assert_eq!((&told["ended"], device["peak_step"].as_u64()), (&"settled".into(), Some(31)), "{told}");
    assert!(told["steps"].as_u64().is_some_and(|n| (62..1_000_000).contains(&n)), "{told}");
    assert_eq!((&told["cards"][0]["fits"], &told["verdict"]), (&"yes".into(), &"clean".into()));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn growth_is_told_and_a_card_that_is_too_small_is_another_exit_status() {
    let folder = Folder::new("predict-grows");
    let (told, status) = told(&folder, &["--gpu", "h100", "--gpu", "512MiB"], "grows");
    assert_eq!((&told["ended"], &told["verdict"]), (&"grows".into(), &"growing".into()), "{told}");
    assert!(told["growth_bytes_per_step"].as_f64().is_some_and(|b| b > 0.0), "{told}");
    let fits: Vec<&str> =
        told["cards"].as_array().expect("cards").iter().filter_map(|c| c["fits"].as_str()).collect();
    assert_eq!((fits, status), (vec!["yes", "no"], Some(86)));
}

#[test]
fn a_job_that_never_settles_is_ended_all_the_same() {
    let folder = Folder::new("predict-creeps");
    let (told, status) = told(&folder, &["--gpu", "h100"], "creeps");
    assert_eq!((&told["ended"], status), (&"unsettled".into(), Some(0)), "{told}");
    assert!(told["steps"].as_u64().is_some_and(|n| (1000..1_000_000).contains(&n)), "{told}");
}

#[test]
fn a_job_that_fails_predicts_nothing_and_keeps_its_status() {
    let folder = Folder::new("predict-fails");
    let output = predict(
        &folder,
        &[],
        &["python", "-c", "import torch; torch.zeros(1, device='cuda'); raise SystemExit(7)"],
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(7), 0), "{stderr}");
    assert!(stderr.contains("failed with status 7"), "{stderr}");
    let output = predict(&Folder::new("predict-card"), &["--gpu", "abacus"], &["true"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("RTX 4090"), "{stderr}");
}

#[test]
fn changes_are_tried_and_what_they_save_is_told() {
    let folder = Folder::new("predict-try");
    let job = ["tests/python/fitted.py", "--batch-size", "8"];
    let tries = ["--json", "--steps", "3", "--try", "batch-size=1", "--try", "--fail-above 2"];
    let output = predict(&folder, &tries, &job);
    let text = String::from_utf8_lossy(&output.stdout);
    let told: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let (smaller, failing) = (&told["tried"][0], &told["tried"][1]);
    let (before, now) = (told["needed_bytes"].as_i64(), smaller["needed_bytes"].as_i64());
    assert_eq!(
        smaller["saved_bytes"].as_i64(),
        before.zip(now).map(|(before, now)| before - now),
        "{told:#}"
    );
    // Seven batches of 1 MiB at each of four layers, at least.
    assert!(smaller["saved_bytes"].as_i64().is_some_and(|b| b > 28 << 20), "{told:#}");
    assert_eq!(smaller["replaced"], "the value of --batch-size (it was 8)");
    assert_eq!(
        (&failing["failed"]["status"], &failing["needed_bytes"]),
        (&1.into(), &Value::Null),
        "{told:#}"
    );
    let output = predict(&Folder::new("predict-try-none"), &["--try", "bs=1"], &job);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && stderr.contains("--try \"--bs"), "{stderr}");
}

#[test]
fn ranks_run_with_a_simulated_nccl_and_each_has_its_own_peak() {
    let folder = Folder::new("predict-ranks");
    let job = ["torchrun", "--nproc-per-node", "2", "tests/python/predicted_ranks.py"];
    let output = predict(&folder, &["--json", "--devices", "2", "--gpu", "24GiB"], &job);
    let text = String::from_utf8_lossy(&output.stdout);
    let at = text.find("{\n").unwrap_or_else(|| panic!("{output:?}"));
    let told: Value = serde_json::from_str(&text[at..]).expect("JSON");
    let devices = told["devices"].as_array().expect("devices");
    assert_eq!((devices.len(), output.status.code()), (2, Some(0)), "{told:#}");
    // NCCL's, too.
    assert_eq!(told["beside_bytes"], (771 + 770) << 20, "{told:#}");
    // DDP's first buckets hold as much as the weights and biases, of 4 bytes each, and may be there beside the second ones.
    let buckets = 4 * 2 * (2048 * 2048 + 2048);
    assert_eq!(told["first_buckets_bytes"], buckets, "{told:#}");
    let reserved = devices.iter().filter_map(|d| d["peak_reserved_bytes"].as_u64()).max();
    assert_eq!(
        told["needed_bytes"].as_u64(),
        reserved.map(|r| r + ((771 + 770) << 20) + buckets),
        "{told:#}"
    );
    for line in text[..at].lines() {
        let (rank, peak) = line.split_once(' ').expect("a rank and its peak");
        let rank: u64 = rank.parse().expect("a number");
        let device = devices.iter().find(|d| d["device"] == rank).expect("its device");
        assert_eq!(device["peak_allocated_bytes"].to_string(), peak, "rank {rank}: {told:#}");
    }
    let peak = |rank: u64| {
        devices.iter().find(|d| d["device"] == rank).and_then(|d| d["peak_allocated_bytes"].as_u64())
    };
    assert!(peak(1) > peak(0), "the batch of rank 1 is larger: {told:#}");
}
