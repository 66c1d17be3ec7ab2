//! A page of a large run: a thousand steps, ten thousand lines. Written here, opened and clicked by `tests/viz/page.mjs`.
//!
//! ```sh
//! STRANDLINE_PAGE=/tmp/large.html cargo test --release -p strandline --test detect_streams large_page -- --ignored --nocapture
//! node tests/viz/page.mjs /tmp/large.html
//! ```

use crate::script::{MAIN, Script};
use std::io::Write;
use strandline::detect::{Detector, Policy, judge};
use strandline::event::{Item, Names};
use strandline::replay::Replay;
use strandline::report::{Process, Report, html};

/// The page of these items.
pub(crate) fn page(items: &[Item], names: &Names) -> Vec<u8> {
    let (mut replay, mut detector) = (Replay::new(), Detector::new(Policy::default()));
    for item in items {
        let progress = replay.apply(item, names);
        detector.after(progress, &replay);
    }
    let progress = replay.finish();
    detector.after(progress, &replay);
    detector.at_step(&replay);
    let mut pass = html::Pass::new(&replay, detector.findings());
    items.iter().for_each(|item| pass.apply(item, names));
    let verdict = judge(&replay, &detector);
    let process = Process::new(&replay, names, &verdict, detector.findings());
    let report = Report { processes: vec![process], ..Report::default() };
    let mut out = Vec::new();
    html::write(&mut out, &report, [(0, pass)].into()).expect("memory");
    out
}

#[test]
#[ignore = "a measurement: needs STRANDLINE_PAGE=FILE.html"]
fn large_page() {
    const LINES: u32 = 10_000;
    let out = std::env::var("STRANDLINE_PAGE").expect("STRANDLINE_PAGE=FILE.html");
    let mut s = Script::new();
    for line in 10..10 + LINES {
        s.line(line);
    }
    // Every line keeps a block, and has another in each step; one leaks.
    for line in 0..LINES {
        s.alloc(1 + u64::from(line) * 8, 4096, MAIN, 10 + line);
    }
    for step in 0..1000u64 {
        // A tenth of the lines at a time, so that memory goes up and down within a step.
        for part in 0..10 {
            let some =
                || (part * LINES / 10..(part + 1) * LINES / 10).map(|l| ((1 << 20) + u64::from(l) * 8, l));
            some().for_each(|(at, line)| s.alloc(at, 4096, MAIN, 10 + line));
            if part % 2 == 0 {
                some().for_each(|(at, _)| s.free(at, 4096, MAIN));
            }
        }
        for line in (0..LINES).filter(|l| l * 10 / LINES % 2 == 1) {
            s.free((1 << 20) + u64::from(line) * 8, 4096, MAIN);
        }
        s.alloc((1 << 30) + (step << 14), 8 << 20, MAIN, 10);
        s.step();
    }
    let begin = std::time::Instant::now();
    let page = page(&s.items, &s.names);
    println!(
        "{} items, a page of {} KiB in {:.1} s",
        s.items.len(),
        page.len() / 1024,
        begin.elapsed().as_secs_f64()
    );
    assert!(page.len() < 10 << 20);
    std::fs::File::create(out).and_then(|mut f| f.write_all(&page)).expect("written");
}
