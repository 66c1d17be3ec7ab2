//! Who holds what was found: asks the job's probe while it runs, and reads what it has answered.
//!
//! The job answers in the fact `holders` of its recording, so a report knows it too, much later and elsewhere.

use crate::watch::Live;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use strandline::detect::{Finding, GrainName, Kind, Severity};
use strandline::event::Frame;
use strandline::format::holders::{Ask, BLOCKS, FINDINGS, Flagged, place};
use strandline::replay::Replay;
use strandline::report::HeldBy;

/// The job looks for questions once a minute at most; a little later is soon enough.
const INTERVAL: Duration = Duration::from_secs(61);
/// Leaks of a job are found within a few steps of each other: what is found first waits so long for the others.
const GATHER: Duration = Duration::from_millis(500);
/// Where no finding is more than an `info`, it may be what a job does as it begins, and a question asked of that is one that the leak behind
/// it would have to wait for: so long something worse is waited for.
const NO_HURRY: Duration = Duration::from_secs(20);
/// A finding whose holder is not found is asked about so many times.
const TIMES: u32 = 3;

/// What the job has answered about a finding, by the lines as the replay has them.
pub(crate) fn of(finding: &Finding, replay: &Replay) -> HeldBy {
    if !replay.meta().contains_key("holders") {
        return HeldBy::NotRun;
    }
    answer(replay, &about(finding, &frames(finding, replay))).map_or(HeldBy::NotRun, HeldBy::of)
}

/// The lines that a finding names.
fn frames<'a>(finding: &Finding, replay: &'a Replay) -> Vec<&'a Frame> {
    finding.sites.iter().filter_map(|s| replay.site(s.site)).map(|s| &s.frame).collect()
}

/// Its newest answer about this, a found one before any other.
fn answer<'a>(replay: &'a Replay, about: &Value) -> Option<&'a Value> {
    let all = replay.meta().get("holders")?.as_array()?.iter().rev();
    let findings = all.filter_map(|a| a.get("findings")?.as_array()).flatten();
    let mine: Vec<&Value> = findings.filter(|f| f.get("about").is_some_and(|a| is_same(a, about))).collect();
    let found = mine.iter().find(|f| f.get("status").and_then(Value::as_str) == Some("found"));
    found.or(mine.first()).copied()
}

/// What tells a finding from the others of its process, whatever numbers a replay gives to lines.
fn about(finding: &Finding, frames: &[&Frame]) -> Value {
    json!({
        "kind": finding.kind.name(),
        "device": finding.device.0,
        "stream": finding.stream.map(|s| s.handle.0),
        "sites": frames.iter().take(16).map(|f| format!("{}:{}", f.file, f.line)).collect::<Vec<_>>(),
    })
}

/// The same kind on the same device and stream, with a line in common: lines come and go with the steps.
fn is_same(a: &Value, b: &Value) -> bool {
    let list = |v: &'_ Value| v.get("sites").and_then(Value::as_array).cloned().unwrap_or_default();
    let same = ["kind", "device", "stream"].iter().all(|key| a.get(key) == b.get(key));
    let (a, b) = (list(a), list(b));
    same && (a == b || a.iter().any(|site| b.contains(site)))
}

/// Asks the jobs that are watched.
#[derive(Default)]
pub(crate) struct Asker {
    jobs: HashMap<usize, Asked>,
}

/// What a job was asked.
#[derive(Default)]
struct Asked {
    last: Option<Instant>,
    /// Since when there is something to ask, and whether it is more than an `info`.
    since: Option<(Instant, bool)>,
    number: u64,
    /// Findings, with how often.
    times: Vec<(Value, u32)>,
    place: Option<PathBuf>,
}

impl Asker {
    /// Asks about what was found in a process since it was last asked. `tail`: where its tail lies.
    pub(crate) fn look(&mut self, live: &Live<'_>, tail: Option<&str>) {
        let (answers, all) = match live.replay().meta().get("probe") {
            Some(Value::Bool(all)) => (*all, *all),
            Some(Value::String(s)) => (s == "leaks", false),
            _ => (false, false),
        };
        let Some(tail) = tail.filter(|_| answers) else { return };
        let asked = self.jobs.entry(live.id()).or_default();
        if asked.last.is_some_and(|t| t.elapsed() < INTERVAL) || !std::path::Path::new(tail).exists() {
            return;
        }
        let replay = live.replay();
        let (mut flagged, mut presses) = (Vec::new(), false);
        let asks = |f: &Finding| all || f.severity > Severity::Info;
        let holds = |f: &&Finding| f.withdrawn_step.is_none() && is_held(f.kind) && asks(f);
        for finding in live.findings().iter().filter(holds) {
            let about = about(finding, &frames(finding, replay));
            let found = answer(replay, &about).and_then(|a| a.get("status")?.as_str()) == Some("found");
            let blocks = blocks(finding, replay);
            if found || blocks.is_empty() || flagged.len() == FINDINGS || !asked.may_ask(&about) {
                continue;
            }
            presses |= finding.severity != Severity::Info;
            flagged.push(Flagged { about, blocks });
        }
        if flagged.is_empty() {
            return;
        }
        if !asked.is_due(presses, Instant::now()) {
            return;
        }
        asked.since = None;
        flagged.iter().for_each(|f: &Flagged| asked.count(&f.about));
        asked.number += 1;
        asked.last = Some(Instant::now());
        let place = PathBuf::from(place(tail));
        // Where it cannot be written nobody is asked: the report says so.
        let _ = write(&place, &Ask { number: asked.number, findings: flagged });
        asked.place = Some(place);
    }

    /// A process has ended: a question that it has not read is taken away.
    pub(crate) fn forget(&mut self, id: usize) {
        let asked = self.jobs.remove(&id);
        asked.and_then(|a| a.place).into_iter().for_each(|p| drop(std::fs::remove_file(p)));
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let ids: Vec<usize> = self.jobs.keys().copied().collect();
        ids.into_iter().for_each(|id| self.forget(id));
    }
}

impl Asked {
    /// Whether what is there to be asked, which is more than an `info` or is not, has been waited for long enough.
    fn is_due(&mut self, presses: bool, now: Instant) -> bool {
        let (since, _) = self.since.filter(|(_, p)| *p == presses).unwrap_or((now, presses));
        self.since = Some((since, presses));
        now.duration_since(since) >= if presses { GATHER } else { NO_HURRY }
    }

    /// Whether this was not asked often enough yet.
    fn may_ask(&self, about: &Value) -> bool {
        self.times.iter().find(|(a, _)| is_same(a, about)).is_none_or(|(_, times)| *times < TIMES)
    }

    /// It is asked.
    fn count(&mut self, about: &Value) {
        match self.times.iter_mut().find(|(a, _)| is_same(a, about)) {
            Some((_, times)) => *times += 1,
            None => self.times.push((about.clone(), 1)),
        }
    }
}

/// Whether blocks of this kind are kept by an object.
fn is_held(kind: Kind) -> bool {
    matches!(kind, Kind::LiveAfterStreamExit | Kind::StepGrowth | Kind::CycleGarbage)
}

/// Addresses of what a finding counts, oldest first; of many, some of every age.
fn blocks(finding: &Finding, replay: &Replay) -> Vec<u64> {
    let mut all: Vec<_> = replay
        .blocks(finding.device)
        .filter(|h| finding.counts(h) && !h.pending && !h.unverified)
        .filter(|h| match finding.grain {
            GrainName::Microbatch => h.microbatch + 2 <= replay.microbatches(),
            GrainName::Step => h.step + 2 <= replay.steps(),
            GrainName::Tick => true,
        })
        .map(|h| (h.born, h.block.addr.0))
        .collect();
    all.sort_unstable();
    let count = all.len().min(BLOCKS);
    (0..count).filter_map(|i| all.get(i * all.len() / count)).map(|(_, address)| *address).collect()
}

/// Writes it whole: the job may look at any moment.
fn write(place: &std::path::Path, ask: &Ask) -> std::io::Result<()> {
    let new = place.with_extension("asking");
    let mut file = crate::recording::create_private(&new)?;
    file.write_all(ask.to_json().to_string().as_bytes())?;
    std::fs::rename(&new, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_the_same_where_it_shares_a_line() {
        let about = |stream: u64, sites: &[&str]| json!({ "kind": "step-growth", "device": 0, "stream": stream, "sites": sites });
        assert!(is_same(&about(0, &["a:1", "b:2"]), &about(0, &["b:2", "c:3"])));
        assert!(!is_same(&about(0, &["a:1"]), &about(1, &["a:1"])), "another stream");
        assert!(!is_same(&about(0, &["a:1"]), &about(0, &["a:2"])));
        assert!(is_same(&about(0, &[]), &about(0, &[])));
    }

    #[test]
    fn a_leak_need_not_wait_for_what_a_job_does_as_it_begins() {
        let (mut asked, began) = (Asked::default(), Instant::now());
        let mut due = |presses, ms| asked.is_due(presses, began + Duration::from_millis(ms));
        assert!(!due(false, 0) && !due(false, 5_000), "an info waits");
        assert!(!due(true, 6_000) && !due(true, 6_400), "a warning for its like");
        assert!(due(true, 6_500));
        assert!(!due(false, 8_000) && due(false, 28_000));
    }

    #[test]
    fn what_is_not_found_is_asked_again_and_then_let_be() {
        let mut asked = Asked::default();
        let about = json!({ "kind": "step-growth", "device": 0, "sites": ["a:1"] });
        let may = [0; 4].map(|_| {
            let may = asked.may_ask(&about);
            asked.count(&about);
            may
        });
        assert_eq!(may, [true, true, true, false]);
    }
}
