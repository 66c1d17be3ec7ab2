//! Who holds what was found: what the job's probe has answered. `watch/asker.rs` asks it while the job runs.
//!
//! The job answers in the fact `holders` of its recording, so a report knows it too, much later and elsewhere.

use serde_json::{Value, json};
use strandline::detect::{Finding, GrainName, holds_enough};
use strandline::event::{Frame, Nanos};
use strandline::replay::{Cohort, Replay};
use strandline::report::{HeldBy, Holder};

/// What the job has answered about a finding, by the lines as the replay has them.
pub(crate) fn held_by(finding: &Finding, replay: &Replay) -> HeldBy {
    if replay.meta().get("holders").is_none() {
        return HeldBy::NotRun;
    }
    let counts = counts(replay).unwrap_or(&Value::Null);
    // What was looked up as the job ended, after its last step, is told of that step.
    let last = replay.ended().map_or(u32::MAX, |_| replay.steps().max(1));
    let last_step = replay.ended().map(|_| (replay.last_step_time().0, last));
    // Of a moment that the replay does not reach, as in a report of an earlier one, nobody knows the step.
    let reaches = |ns: u64| replay.ended().is_some() || ns <= replay.time().0;
    let step_at = |ns: u64| replay.step_at(Nanos(ns)).filter(|_| reaches(ns)).map(|step| step.min(last));
    let of = |(f, answer): (&Value, &Value)| {
        let held = HeldBy::of(f, answer, counts, &step_at);
        let held = believed(held, f["freed"].as_f64(), may_be_state(finding, replay), freed(replay, answer));
        let held = if is_of_a_rest(f) || is_outlived(finding, f) {
            HeldBy::Skipped(freed(replay, answer).into())
        } else {
            held
        };
        match held {
            HeldBy::Found(mut holders) => {
                for h in &mut holders {
                    h.counted_by = replay.step_source();
                    h.last_step = last_step;
                    // A report of an earlier moment does not know what was counted later.
                    h.counts.retain(|c| reaches(c.taken));
                    h.entries = h.entries.filter(|_| h.taken.is_none_or(reaches));
                }
                // What is made anew grows in an entry: their number says nothing.
                let blocks_at = |step| blocks_at(finding, step).filter(|_| !finding.is_remade());
                HeldBy::Found(growing_first(holders, &blocks_at))
            }
            held => held,
        }
    };
    answer(replay, &about(finding, &frames(finding, replay))).map_or(HeldBy::NotRun, of)
}

/// What is more than this part is most of it.
pub(crate) const HALF: f64 = 0.5;

/// Whether nearly all of what was found had been freed when it was asked about: the answer is of what else there is at its lines.
fn is_of_a_rest(f: &Value) -> bool {
    const NEARLY_ALL: f64 = 0.75;
    f["about"]["asked"]["freed"].as_f64().is_some_and(|freed| freed > NEARLY_ALL)
}

/// Whether what is made anew at each step, and was asked about, was made anew before the answer came: that may be about whatever has its address.
pub(crate) fn is_outlived(finding: &Finding, f: &Value) -> bool {
    finding.is_remade() && f["freed"].as_f64() != Some(0.0)
}

/// What is to be believed of an answer. `freed`: the part of what was asked about that was freed before it came, where that is known: what it says
/// of these blocks, it says of whatever has their addresses, as an optimizer's state may have that did not make what was found
/// (`may_be_state`). `why`: what is told where it says no more.
fn believed(held: HeldBy, freed: Option<f64>, may_be_state: bool, why: &str) -> HeldBy {
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

/// Holders with those last that do not grow while the finding does, a ring of the newest 24 beside a list that gets every tenth, and before them
/// those that end, where another grows without an end.
/// `blocks_at`: how many blocks it had at a step, where that is known.
fn growing_first(mut holders: Vec<Holder>, blocks_at: &dyn Fn(u32) -> Option<f64>) -> Vec<Holder> {
    let stays =
        |h: &Holder| is_still(h) && (is_outgrown(h, blocks_at) || holders.iter().any(|o| grew_since(o, h)));
    let stays: Vec<bool> = holders.iter().map(stays).collect();
    holders.iter_mut().zip(stays).for_each(|(h, stays)| h.stays = stays);
    let most = holders.iter().map(|h| h.blocks).max().unwrap_or(0);
    let has_endless = holders.iter().any(|h| is_endless(h, most));
    holders.iter_mut().for_each(|h| h.ends = has_endless && h.bound.is_some());
    holders.sort_by_key(|h| (h.stays, h.ends));
    holders
}

/// Whether it got more entries and has no bound, and some of the blocks, beside the holder that has most.
fn is_endless(h: &Holder, most: u64) -> bool {
    let grew = h.counts.first().zip(h.counts.last()).is_some_and(|(then, now)| now.entries > then.entries);
    h.bound.is_none() && h.part.is_none() && !h.shrank() && grew && holds_enough(h.blocks, most)
}

/// Whether it has had as many tensors in it for a while: in its entries themselves, so that nothing in these can grow.
fn is_still(h: &Holder) -> bool {
    /// Steps.
    const WHILE: u32 = 8;
    h.direct && !h.graph && !h.rebound && h.still() > WHILE
}

/// How many blocks a finding had at a step, as far as its pace tells.
fn blocks_at(finding: &Finding, step: u32) -> Option<f64> {
    let since = f64::from(finding.last_step.saturating_sub(step));
    let blocks = finding.blocks_now as f64 - since * finding.blocks_per_step;
    (finding.grain != GrainName::Microbatch).then_some(blocks)
}

/// Whether there were more than twice as many blocks at the last look as a holder had entries, each of which holds one.
fn is_outgrown(h: &Holder, blocks_at: &dyn Fn(u32) -> Option<f64>) -> bool {
    let last = h.counts.last().and_then(|c| Some((blocks_at(c.step?)?, c.entries)));
    last.is_some_and(|(blocks, entries)| blocks > 2.0 * entries as f64)
}

/// Whether a holder got more entries since another one has had as many.
fn grew_since(h: &Holder, still: &Holder) -> bool {
    let Some(since) = still.still_since() else { return false };
    let then = h.counts.iter().rev().find(|c| c.taken <= since.taken).or(h.counts.first());
    !h.shrank() && then.zip(h.counts.last()).is_some_and(|(then, now)| now.entries > then.entries)
}

/// Why nobody holds what was found, if the job has freed it.
fn freed(replay: &Replay, answer: &Value) -> &'static str {
    // The last step of a job that has ended lasts until its end.
    let in_last = |at| replay.ended().is_some() && replay.step_at(Nanos(at)) >= Some(replay.steps());
    let is_late = answer["at_ns"].as_u64().is_some_and(|at| replay.last_step_time().0 <= at || in_last(at));
    match is_late {
        true => "the job freed these blocks after its last step, before strandline found their holder",
        false => "the job had freed these blocks before strandline found their holder",
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
    use strandline::report::Count;

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
    fn who_holds_the_last_of_what_was_freed_did_not_hold_it_all() {
        let asked = |freed: Value| is_of_a_rest(&json!({ "about": { "asked": { "freed": freed } } }));
        assert_eq!(
            [json!(0.99), json!(0.5), json!(0.0), Value::Null].map(asked),
            [true, false, false, false]
        );
    }

    #[test]
    fn who_does_not_grow_comes_after_who_does() {
        let of = |name: &str, direct, entries: &[u64]| {
            let count =
                |(i, n): (usize, &u64)| Count { step: Some(10 * i as u32), entries: *n, taken: i as u64 };
            let counts: Vec<Count> = entries.iter().enumerate().map(count).collect();
            Holder { name: name.into(), direct, counts, ..Holder::default() }
        };
        let order = |all: Vec<Holder>, blocks: f64| -> Vec<(String, bool)> {
            growing_first(all, &|_| Some(blocks)).into_iter().map(|h| (h.name, h.stays)).collect()
        };
        let is = |names: &[(&str, bool)]| names.iter().map(|(n, s)| (n.to_string(), *s)).collect::<Vec<_>>();
        let (ring, list) = (of("ring", true, &[16, 24, 24, 24, 24]), of("list", true, &[2, 3, 4, 5, 6]));
        assert_eq!(order(vec![ring.clone(), list.clone()], 30.0), is(&[("list", false), ("ring", true)]));
        // Alone it is none only where the finding has far more than it can have.
        assert_eq!(order(vec![ring.clone()], 30.0), is(&[("ring", false)]));
        assert_eq!(order(vec![ring], 64.0), is(&[("ring", true)]));
        // What is in its entries may grow; and what was full just now has not been seen to stay so.
        for may in [of("lists", false, &[24; 5]), of("full", true, &[4, 8, 16, 20, 24])] {
            assert_eq!(order(vec![may.clone(), list.clone()], 64.0)[0], (may.name, false));
        }
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
