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
    let of = |(f, answer): (&Value, &Value)| match HeldBy::of(f, answer, counts, &step_at) {
        HeldBy::NotFound(_) if was_freed(finding, replay) => HeldBy::Skipped(freed(replay, answer).into()),
        HeldBy::Found(mut holders) => {
            holders.retain(|h| h.part.as_deref() != Some("optimizer") || may_be_state(finding, replay));
            if holders.is_empty() {
                HeldBy::Skipped(freed(replay, answer).into())
            } else {
                HeldBy::Found(holders)
            }
        }
        held => held,
    };
    answer(replay, &about(finding, &frames(finding, replay))).map_or(HeldBy::NotRun, of)
}

/// Why nobody holds what was found, if the job has freed it.
fn freed(replay: &Replay, answer: &Value) -> &'static str {
    let is_late = answer["at_ns"].as_u64().is_some_and(|at| replay.last_step_time().0 <= at);
    match is_late {
        true => "when strandline looked, after the last step, the job had freed these blocks already",
        false => "the job freed these blocks while strandline looked, or soon after",
    }
}

/// Whether an optimizer may have made what was found, as far as is known: else its state has the address of what was freed meanwhile.
fn may_be_state(finding: &Finding, replay: &Replay) -> bool {
    let of = |c: &&Cohort| c.in_optimizer > 0;
    let is_mine =
        |c: &Cohort| c.key.device == finding.device && finding.sites.iter().any(|s| s.site == c.key.site);
    let mut made = replay.cohorts().iter().filter(of).peekable();
    made.peek().is_none() || made.any(is_mine)
}

/// Whether the job has freed most of what was found by now: nobody may have held it any more when this was answered.
fn was_freed(finding: &Finding, replay: &Replay) -> bool {
    let live = replay.blocks(finding.device).filter(|h| finding.counts(h) && !h.pending);
    live.map(|h| h.block.rounded.0).sum::<u64>() <= finding.bytes_now / 2
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

    #[test]
    fn a_finding_is_the_same_where_it_shares_a_line() {
        let about = |stream: u64, sites: &[&str]| json!({ "kind": "step-growth", "device": 0, "stream": stream, "sites": sites });
        assert!(is_same(&about(0, &["a:1", "b:2"]), &about(0, &["b:2", "c:3"])));
        assert!(!is_same(&about(0, &["a:1"]), &about(1, &["a:1"])), "another stream");
        assert!(!is_same(&about(0, &["a:1"]), &about(0, &["a:2"])));
        assert!(is_same(&about(0, &[]), &about(0, &[])));
    }
}
