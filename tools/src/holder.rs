//! Who holds what was found: what the job's probe has answered. `watch/asker.rs` asks it while the job runs.
//!
//! The job answers in the fact `holders` of its recording, so a report knows it too, much later and elsewhere.

use serde_json::{Value, json};
use strandline::detect::Finding;
use strandline::event::{Frame, Nanos};
use strandline::replay::{Cohort, Replay};
use strandline::report::HeldBy;

/// What the job has answered about a finding, by the lines as the replay has them.
pub(crate) fn held_by(finding: &Finding, replay: &Replay) -> HeldBy {
    if replay.meta().get("holders").is_none() {
        return HeldBy::NotRun;
    }
    let counts = counts(replay).unwrap_or(&Value::Null);
    // What was looked up as the job ended, after its last step, is told of that step.
    let last = replay.ended().map_or(u32::MAX, |_| replay.steps().max(1));
    // Of a moment that the replay does not reach, as in a report of an earlier one, nobody knows the step.
    let reaches = |ns: u64| replay.ended().is_some() || ns <= replay.time().0;
    let step_at = |ns: u64| replay.step_at(Nanos(ns)).filter(|_| reaches(ns)).map(|step| step.min(last));
    let of = |(f, answer): (&Value, &Value)| {
        let held = HeldBy::of(f, answer, counts, &step_at);
        believed(held, f["freed"].as_f64(), may_be_state(finding, replay), freed(replay, answer))
    };
    answer(replay, &about(finding, &frames(finding, replay))).map_or(HeldBy::NotRun, of)
}

/// What is to be believed of an answer. `freed`: the part of what was asked about that was freed before it came, where that is known: what it says
/// of these blocks, it says of whatever has their addresses, as an optimizer's state may have that did not make what was found
/// (`may_be_state`). `why`: what is told where it says no more.
fn believed(held: HeldBy, freed: Option<f64>, may_be_state: bool, why: &str) -> HeldBy {
    /// What is more than this part is most of it.
    const HALF: f64 = 0.5;
    match held {
        HeldBy::NotFound(_) if freed.is_some_and(|freed| freed > HALF) => HeldBy::Skipped(why.into()),
        HeldBy::Found(mut holders) => {
            let is_reused = |share: f64| !may_be_state && freed.is_some_and(|freed| share <= freed);
            holders.retain(|h| h.part.as_deref() != Some("optimizer") || !is_reused(h.share));
            if holders.is_empty() { HeldBy::Skipped(why.into()) } else { HeldBy::Found(holders) }
        }
        held => held,
    }
}

/// Why nobody holds what was found, if the job has freed it.
fn freed(replay: &Replay, answer: &Value) -> &'static str {
    let is_late = answer["at_ns"].as_u64().is_some_and(|at| replay.last_step_time().0 <= at);
    match is_late {
        true => "when strandline looked, after the last step, the job had freed these blocks already",
        false => "the job freed these blocks while strandline looked, or soon after",
    }
}

/// Whether an optimizer may have made what was found, as far as is known.
fn may_be_state(finding: &Finding, replay: &Replay) -> bool {
    let of = |c: &&Cohort| c.in_optimizer > 0;
    let is_mine =
        |c: &Cohort| c.key.device == finding.device && finding.sites.iter().any(|s| s.site == c.key.site);
    let mut made = replay.cohorts().iter().filter(of).peekable();
    made.peek().is_none() || made.any(is_mine)
}

/// What the job has answered about a finding, as it stands in the recording.
pub(crate) fn answer_of<'a>(finding: &Finding, replay: &'a Replay) -> Option<&'a Value> {
    answer(replay, &about(finding, &frames(finding, replay))).map(|(f, _)| f)
}

/// What was counted in holders since they were found: the last that was told.
fn counts(replay: &Replay) -> Option<&Value> {
    replay.meta()["holders"].as_array()?.iter().rev().find_map(|a| a.get("counts"))
}

/// The lines that a finding names.
pub(crate) fn frames<'a>(finding: &Finding, replay: &'a Replay) -> Vec<&'a Frame> {
    finding.sites.iter().filter_map(|s| replay.site(s.site)).map(|s| &s.frame).collect()
}

/// Its newest answer about this, one that found something before one that did not and that before one that was not looked up, and all that
/// was answered with it.
pub(crate) fn answer<'a>(replay: &'a Replay, about: &Value) -> Option<(&'a Value, &'a Value)> {
    let all = replay.meta()["holders"].as_array()?.iter().rev();
    let findings = all.flat_map(|a| a["findings"].as_array().into_iter().flatten().map(move |f| (f, a)));
    let mine: Vec<_> = findings.filter(|(f, _)| f.get("about").is_some_and(|a| is_same(a, about))).collect();
    let status = |s: &str| mine.iter().find(|(f, _)| f["status"] == s);
    status("found").or_else(|| status("not_found")).or(mine.first()).copied()
}

/// What tells a finding from the others of its process, whatever numbers a replay gives to lines.
pub(crate) fn about(finding: &Finding, frames: &[&Frame]) -> Value {
    json!({
        "kind": finding.kind.name(),
        "device": finding.device.0,
        "stream": finding.stream.map(|s| s.handle.0),
        "sites": frames.iter().take(16).map(|f| format!("{}:{}", f.file, f.line)).collect::<Vec<_>>(),
    })
}

/// The same kind on the same device and stream, with a line in common: lines come and go with the steps.
pub(crate) fn is_same(a: &Value, b: &Value) -> bool {
    let list = |v: &'_ Value| v["sites"].as_array().cloned().unwrap_or_default();
    let same = ["kind", "device", "stream"].iter().all(|key| a.get(key) == b.get(key));
    let (a, b) = (list(a), list(b));
    same && (a == b || a.iter().any(|site| b.contains(site)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline::report::Holder;

    #[test]
    fn only_what_was_freed_before_the_answer_is_not_believed() {
        let holder =
            |part: Option<&str>, share| Holder { part: part.map(str::to_owned), share, ..Holder::default() };
        let state = |share| HeldBy::Found(vec![holder(Some("optimizer"), share)]);
        let is = |held: HeldBy, freed, mine| believed(held, freed, mine, "freed");
        let skipped = HeldBy::Skipped("freed".into());
        // The state of an optimizer that was loaded or copied was made outside of any step.
        for freed in [None, Some(0.0), Some(0.25)] {
            assert_eq!(is(state(0.75), freed, false), state(0.75), "{freed:?}");
        }
        assert_eq!(is(state(0.75), Some(0.75), false), skipped);
        assert_eq!(is(state(0.75), Some(0.75), true), state(0.75), "its own lines made it");
        let both = HeldBy::Found(vec![holder(Some("optimizer"), 0.5), holder(None, 0.5)]);
        assert_eq!(is(both, Some(0.5), false), HeldBy::Found(vec![holder(None, 0.5)]));
        let none = || HeldBy::NotFound("no name".into());
        assert_eq!((is(none(), Some(1.0), true), is(none(), Some(0.5), true)), (skipped, none()));
        assert_eq!(is(none(), None, true), none(), "nothing is known of that");
    }

    #[test]
    fn a_finding_is_the_same_where_it_shares_a_line() {
        let about = |stream: u64, sites: &[&str]| json!({ "kind": "step-growth", "device": 0, "stream": stream, "sites": sites });
        assert!(is_same(&about(0, &["a:1", "b:2"]), &about(0, &["b:2", "c:3"])));
        assert!(!is_same(&about(0, &["a:1"]), &about(1, &["a:1"])), "another stream");
        assert!(!is_same(&about(0, &["a:1"]), &about(0, &["a:2"])));
        assert!(is_same(&about(0, &[]), &about(0, &[])));
    }
}
