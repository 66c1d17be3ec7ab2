//! What a recording costs: printed, not judged.

use crate::job::{BEGAN, Job, expected, leakbench};
use std::path::Path;
use strandline::event::Body;
use strandline::format::region::Geometry;
use strandline::reader::{Batch, Reader};
use strandline::writer::{Memory, Options};

/// Figures, not a test: `cargo test --release --test recording -- --ignored --nocapture figures`.
#[test]
#[ignore = "prints figures; run it in release"]
fn figures() {
    use std::time::Instant;
    let geometry = Geometry { lanes: 15, records: 32_768, overflow: 4096, definitions: 1 << 20 };
    for name in ["a_offload_vl", "a_offload_text", "b_tracker", "c_fastllm"] {
        let path = Path::new("tests/leakbench/events").join(format!("{name}.events.gz"));
        let mut job =
            Job::new(geometry, 1, Options { max_size: None, ..Options::default() }, Memory::default());
        let records = leakbench(&path, &mut job);
        let end = job.now;
        let entries: usize =
            expected(&records).iter().filter(|e| !matches!(e.body, Body::ManualStep(_))).count();
        let (mut at, rounds) = (BEGAN, 10);
        let mut written = std::time::Duration::ZERO;
        for round in 0..rounds {
            for r in &records {
                let mut r = *r;
                r.ticks += round * (end - BEGAN);
                assert!(job.lanes[0].push(r), "swept in time");
                // The drain looks every 10 ms.
                if r.ticks - at > 10_000_000 {
                    (at, job.now) = (r.ticks, r.ticks);
                    let t = Instant::now();
                    job.sweep().unwrap();
                    written += t.elapsed();
                }
            }
        }
        let t = Instant::now();
        let file = job.end();
        written += t.elapsed();
        let n = records.len() * rounds as usize;
        let t = Instant::now();
        let mut reader = Reader::from_source(Box::new(file.clone()), None).unwrap();
        let mut events = 0;
        while let Some(b) = reader.next_batch() {
            if let Batch::Events(e) = b {
                events += e.len();
            }
        }
        let took = t.elapsed();
        println!(
            "{name}: {n} records, {} entries, {:.2} bytes an entry, {:.0} ns a record written, {:.1} M events/s read, {} damage",
            entries * rounds as usize,
            file.len() as f64 / (entries * rounds as usize) as f64,
            written.as_nanos() as f64 / n as f64,
            events as f64 / took.as_secs_f64() / 1e6,
            reader.damage().len(),
        );
    }
}
