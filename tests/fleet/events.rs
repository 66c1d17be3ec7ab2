//! What the table of events costs, of a recording that is made by `tests/bench/pipeline.rs`:
//!
//! ```sh
//! export STRANDLINE_BIG=/tmp/big.strand STRANDLINE_EVENTS=10000000
//! cargo test --release -p strandline --test recording big_is_written -- --ignored
//! cargo test --release -p strandline --test fleet -- --ignored --nocapture events_of_a_long_recording
//! ```

use super::support::{Folder, command, python};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the command: seconds, seconds of processors, MiB at most.
pub(crate) fn measured(words: &[&str]) -> (f64, f64, u64) {
    let source = "import resource as r, subprocess as s, sys, time\nt = time.time()\ns.run(sys.argv[1:], stdout=s.DEVNULL, check=True)\nu = r.getrusage(r.RUSAGE_CHILDREN)\nprint(time.time() - t, u.ru_utime + u.ru_stime, u.ru_maxrss // 1024)";
    let mut run = Command::new(python());
    let output = run.args(["-c", source]).arg(command()).args(words).output().expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let [wall, processor, mib] = text.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{text}") };
    let number = |text: &str| text.parse::<f64>().expect("a number");
    (number(wall), number(processor), number(mib) as u64)
}

/// Bytes of a recording's pages of events, with their frames (docs/recording.md).
fn of_events(recording: &Path) -> u64 {
    let bytes = std::fs::read(recording).expect("a recording");
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut sum) = (8192, 0);
    while at + 32 <= bytes.len() {
        assert_eq!(&bytes[at..at + 4], b"\xf5SLP", "a page at {at}");
        let length = 32 + (u64::from(number(at + 8)) | u64::from(number(at + 12)) << 32);
        if bytes[at + 4] == 3 {
            sum += length;
        }
        at += length as usize;
    }
    sum
}

#[test]
#[ignore = "a measurement: needs STRANDLINE_BIG=FILE and a release build"]
fn events_of_a_long_recording() {
    let big: PathBuf = std::env::var_os("STRANDLINE_BIG").expect("STRANDLINE_BIG=FILE").into();
    let folder = Folder::new("fleet-events");
    let tables = folder.join("tables");
    let (from, to) = (big.to_str().expect("UTF-8"), tables.to_str().expect("UTF-8"));
    let words = ["export", "--format", "parquet", "-o", to, "--job", "big", from];
    let without = measured(&words);
    let with = measured(&[&words[..], &["--events"]].concat());
    let files = super::store::files(&tables);
    let size: u64 = files.iter().filter(|(name, _)| name.starts_with("events/")).map(|(_, f)| f.0).sum();
    let said = super::strandline(&["report", from, "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let events = report["processes"][0]["events"].as_u64().expect("events");
    let (seconds, ratio) = (with.1 - without.1, size as f64 / of_events(&big) as f64);
    println!(
        "{events} events: {seconds:.1} s of a processor more than without them, {:.2} M events/s; {:.2} bytes an event, {ratio:.2} of the recording's \
         pages of events; at most {} MiB, {} without them",
        events as f64 / 1e6 / seconds,
        size as f64 / events as f64,
        with.2,
        without.2,
    );
    assert!(ratio <= 1.3, "{ratio}");
}
