//! What a recording says of its own cost: measured, plausible, and printed.

mod support;

use support::{Folder, Job, Recording, report, strandline};

const MIB: u64 = 1 << 20;

#[test]
fn the_cost_is_measured_in_the_job_and_printed() {
    let folder = Folder::new("cost");
    let ran = Job::python(&folder, "tests/bench/overhead.py", &["--worker", "pair", "nothing", "5", "500"])
        .run()
        .succeeded();
    let path = ran.recording();
    let recording = Recording::read(&path).whole();
    let fact = recording.fact("cost");
    let number = |key: &str| fact[key].as_u64().unwrap_or_else(|| panic!("{key} of {fact}"));
    // Each pair of the job enters our hooks four times at least: two events, and the report of each.
    let pairs = 15 * 500;
    let counted = number("timed_hooks") * number("one_in");
    assert!(counted > 4 * pairs * 9 / 10, "{counted} entries told by {fact}");
    assert!(counted < 100 * pairs, "{counted} entries told by {fact}");
    assert!(number("timed_ns") > number("timed_hooks"), "a hook takes longer than a nanosecond: {fact}");
    let host = number("host_bytes");
    assert!((20 * MIB..48 * MIB).contains(&host), "the rings alone are 23 MiB: {fact}");

    let said = report(&path).process["cost"].clone();
    let fraction = said["step_time_fraction"].as_f64().unwrap_or_else(|| panic!("{said}"));
    assert!(fraction > 1e-6 && fraction < 1.0, "{said}");
    assert_eq!(said["host_bytes"], host);
    assert_eq!(said["disk_bytes"], std::fs::metadata(&path).expect("the recording").len());
    let text = strandline(&["report".as_ref(), path.as_os_str()]);
    let line = text.lines().find(|l| l.trim_start().starts_with("cost ")).unwrap_or_else(|| panic!("{text}"));
    for part in [" of the job's time · ", " host memory · ", " · 0 bytes of GPU memory · ", " on disk"] {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
}
