//! All that is printed of a recording, whatever it says.

use super::each;
use std::collections::BTreeMap;
use std::io::sink;
use strandline::detect::{Finding, Verdict};
use strandline::event::Names;
use strandline::reader::Reader;
use strandline::replay::anatomy::{self, Pass};
use strandline::replay::{Held, Replay};
use strandline::report::export::tables;
use strandline::report::metrics::Metrics;
use strandline::report::snapshot::{Filter, Language, Snapshot, Source, Standing, Steps};
use strandline::report::{Moment, Process, Report, Style, ci, html, json, text};

/// Devices that get a table of what filled them, as in a report.
const DEVICES: usize = 8;

/// Prints it as text, JSON, page, remarks for CI, metrics, rows of tables and snapshots. `again`: the same recording, for what takes a second pass.
pub(super) fn printed(
    replay: &Replay,
    steps: &Steps,
    names: &Names,
    verdict: &Verdict,
    findings: &[Finding],
    mut again: Reader,
) {
    let mut page = html::Pass::new(replay, findings);
    let peaks = replay.devices().filter(|d| d.peak_allocated.bytes.0 > 0).take(DEVICES);
    let mut passes: Vec<_> = peaks.map(anatomy::Moment::of).map(|m| (m, Pass::new(m))).collect();
    let filter = Filter::default();
    let (epoch_us, alloc_conf, from) = (1_700_000_000_000_000, "", 0);
    let source =
        |language| Source { replay, names, steps, epoch_us, alloc_conf, from, filter: &filter, language };
    let standing = |held: &Held| held.pending.then_some(Standing::Deferred);
    let mut snapshots = [Language::Pickle, Language::Json]
        .map(|language| Snapshot::begin(sink(), source(language), &standing).expect("a sink takes it"));
    each(&mut again, &mut |item, names| {
        page.apply(item, names);
        snapshots.iter_mut().for_each(|s| s.apply(item).expect("a sink takes it"));
        passes.iter_mut().for_each(|(_, pass)| pass.apply(item, names));
    });
    for snapshot in snapshots {
        snapshot.finish().expect("a sink takes it");
    }
    let mut process = Process::new(replay, names, verdict, findings);
    process.anatomies = passes
        .into_iter()
        .filter_map(|(moment, mut pass)| {
            pass.ends();
            let anatomy = pass.finish(&|_| true, &|_, _| None)?;
            Some(Moment { device: moment.device, at: moment.at, anatomy })
        })
        .collect();
    let mut metrics = Metrics::default();
    metrics.add(&process, 0);
    let _ = (metrics.prometheus(), metrics.otlp(1, 2, &[]));
    let report = Report { processes: vec![process], ..Report::default() };
    let _ = tables::rows(&report, 0, 1_700_000_000_000_000_000);
    let written = [
        text::write(&mut sink(), &report, Style::default()),
        json::write(&mut sink(), &report),
        ci::github(&mut sink(), &report, "/job"),
        ci::sarif(&mut sink(), &report, "/job"),
        ci::junit(&mut sink(), &report, "/job"),
        html::write(&mut sink(), &report, BTreeMap::from([(0, page)])),
    ];
    assert!(written.iter().all(Result::is_ok), "{written:?}");
}
