//! Jobs, judged step by step to their end.

use crate::load::{self, Job};
use std::path::{Path, PathBuf};
use strandline::detect::{Detector, Finding, FindingSite, Kind, Outcome, Policy, Severity, judge};
use strandline::event::{Item, Names};
use strandline::replay::Replay;

/// Size of the card, bytes.
pub(crate) const CARD: u64 = 24 << 30;

/// A job, judged to its end.
pub(crate) struct Judged {
    pub(crate) replay: Replay,
    pub(crate) detector: Detector,
    /// The worst severity of a standing finding at any step, and when.
    pub(crate) worst: Option<(Severity, u32, String)>,
    /// The step at which a leak finding stood first.
    pub(crate) first: Option<(Kind, u32)>,
}

impl Judged {
    pub(crate) fn of(items: &[Item], names: &Names) -> Judged {
        let mut j = Judged {
            replay: Replay::new(),
            detector: Detector::new(Policy::default()),
            worst: None,
            first: None,
        };
        for item in items {
            let p = j.replay.apply(item, names);
            j.detector.after(p, &j.replay);
            if p.step.is_some() {
                j.look();
            }
        }
        j.replay.finish();
        j.detector.at_step(&j.replay);
        j
    }

    pub(crate) fn look(&mut self) {
        for f in self.detector.findings().iter().filter(|f| f.withdrawn_step.is_none()) {
            let step = self.replay.steps();
            if f.kind.is_leak() {
                self.first = self.first.or(Some((f.kind, step)));
            }
            if self.worst.as_ref().is_none_or(|w| w.0 < f.severity) {
                self.worst = Some((f.severity, step, f.explain.clone()));
            }
        }
    }

    pub(crate) fn standing(&self) -> Vec<&Finding> {
        self.detector.findings().iter().filter(|f| f.withdrawn_step.is_none()).collect()
    }

    /// Lines ("file:function:line") of a finding, largest share first.
    pub(crate) fn lines(&self, f: &Finding) -> Vec<String> {
        let frame = |s: &FindingSite| {
            let f = &self.replay.site(s.site).expect("a site").frame;
            format!("{}:{}:{}", f.file, f.function, f.line)
        };
        f.sites.iter().map(frame).collect()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        judge(&self.replay, &self.detector).outcome
    }
}

pub(crate) fn events() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/leakbench/events")
}

pub(crate) fn job(name: &str) -> (Job, Judged) {
    let job = load::load(&events().join(format!("{name}.events.gz")), CARD);
    let judged = Judged::of(&job.items, &job.names);
    assert_eq!(judged.replay.inconsistencies(), [], "{name}");
    (job, judged)
}
