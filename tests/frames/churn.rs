//! Threads that allocate while code objects are made and destroyed: no crash, and no wrong frame.

use crate::support::{Folder, Recording};
use crate::{interpreters, job};
use strandline::event::Body;

const FIRST: u64 = 1000;
const NAMES: u64 = 48;
const THREADS: u64 = 8;
/// Seconds for all interpreters together, where `STRANDLINE_CHURN_SECONDS` says nothing else.
const SECONDS: f64 = 15.0;

#[test]
fn code_objects_that_come_and_go_are_never_taken_for_each_other() {
    let seconds =
        std::env::var("STRANDLINE_CHURN_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(SECONDS);
    let known: Vec<_> = interpreters::all().iter().filter(|i| i.is_known()).collect();
    let each = format!("{:.1}", seconds / known.len() as f64);
    let mut told = Vec::new();
    for with in known {
        let folder = Folder::new("churn");
        let ran = job(&folder, with, "churn.py", &each, &[]).run_for(seconds).succeeded();
        let recording = Recording::read(&ran.recording());
        assert!(recording.reader.damage().is_empty(), "{:?}", recording.reader.damage());
        let (mut right, mut without) = (0u64, 0u64);
        for e in &recording.events {
            let Body::Alloc(b) = &e.body else { continue };
            let Some(n) = b.size.0.checked_sub(FIRST) else { continue };
            let (name, line) = (n / THREADS % NAMES, n / THREADS / NAMES);
            let frames = recording.frames(b.stack);
            if frames.is_empty() {
                without += 1;
                continue;
            }
            let file = format!("<churn {name}>");
            let expected = [
                (file.clone(), line as u32 + 2, format!("f{name}")),
                (file, line as u32 + [3, 3, 4][name as usize % 3], "<module>".to_string()),
            ];
            assert_eq!(frames.get(..2), Some(&expected[..]), "{}: size {}", with.version, b.size.0);
            assert_eq!(
                frames.get(2).map(|f| f.2.as_str()),
                Some("work"),
                "{}: size {}",
                with.version,
                b.size.0
            );
            right += 1;
        }
        assert!(right > 200 && right > without, "{}: {right} right, {without} without", with.version);
        told.push(format!("{} ({right}, {without} without)", with.version));
    }
    println!("right under churn: {}", told.join(", "));
}

#[test]
fn more_stacks_than_there_is_room_for_are_counted_and_said() {
    let with = interpreters::all().iter().find(|i| i.is_known()).expect("an interpreter");
    let folder = Folder::new("crowd");
    let ran = job(&folder, with, "crowd.py", "4000", &[]).run().succeeded();
    let full: Vec<_> = ran.ours().into_iter().filter(|l| l.contains("different stacks")).collect();
    assert_eq!(full.len(), 1, "{:?}", ran.ours());
    let recording = Recording::read(&ran.recording());
    let undefined = recording.fact("stacks_undefined").as_u64().expect("a number");
    let (mut right, mut without) = (0, 0);
    for e in &recording.events {
        let Body::Alloc(b) = &e.body else { continue };
        match recording.frames(b.stack).first() {
            Some((file, ..)) => {
                assert!(
                    file.starts_with(&format!("{} xxx", b.size.0 - FIRST)),
                    "{}: {}",
                    b.size.0,
                    &file[..20]
                );
                right += 1;
            }
            None => without += 1,
        }
    }
    assert!(right > 500 && without > 500, "{right} right, {without} without");
    assert_eq!(without, undefined);
}
