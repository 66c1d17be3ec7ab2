//! What the job's probe has answered (the fact `holders`), beside what the events say of the blocks that it was asked about.
//!
//! A search takes many slices, and the job goes on between them: blocks may be freed and their addresses used again before it ends. So each
//! finding of an answer gets `freed`: the part of its blocks, 0 to 1, that had been freed when it was answered; null where that is not known.

use super::state::Replay;
use crate::event::{Addr, DeviceId, Nanos, SiteId};
use serde_json::Value;

/// The findings of an answer.
fn findings(answer: &mut Value) -> impl Iterator<Item = &mut Value> {
    answer.get_mut("findings").and_then(Value::as_array_mut).into_iter().flatten()
}

impl Replay {
    /// The fact has come: what is known of its answers is kept, and new ones are looked at when they were answered. `before`: the fact as it was.
    pub(super) fn take_answers(&mut self, before: &Value) {
        let mut answers = self.meta["holders"].take();
        self.answer_due = None;
        for answer in answers.as_array_mut().into_iter().flatten() {
            let is_it = |b: &&Value| ["number", "at_ns"].iter().all(|key| b.get(key) == answer.get(key));
            let known = before.as_array().into_iter().flatten().find(is_it);
            for (i, f) in findings(answer).enumerate() {
                if let Some(freed) = known.and_then(|known| known["findings"][i].get("freed")) {
                    f["freed"] = freed.clone();
                }
            }
            let is_open = findings(answer).any(|f| f.get("freed").is_none());
            let at = answer["at_ns"].as_u64().filter(|_| is_open).map(Nanos);
            self.answer_due = self.answer_due.into_iter().chain(at).min();
        }
        self.meta["holders"] = answers;
    }

    /// The replay begins anew at this moment: nobody knows what had been freed when an answer of before came.
    pub(super) fn forget_answers(&mut self, until: Nanos) {
        self.settle_answers(Nanos(until.0.saturating_add(1)), |_, _| None);
    }

    /// Something is to be applied that happened at this moment: first what the answers of before are about is looked at.
    #[inline]
    pub(super) fn note_answers(&mut self, now: Nanos) {
        if self.answer_due.is_some_and(|due| due < now) {
            // What was answered before the first event is of a part that this recording has no more. A fact may come long before the events of
            // its time, which are written a page at a time.
            self.settle_answers(now, |replay, about| replay.freed_of(about).filter(|_| replay.events > 0));
        }
    }

    /// Notes in the answers of before this moment what had been freed of what was asked about, as `freed` says.
    #[cold]
    fn settle_answers(&mut self, now: Nanos, freed: impl Fn(&Replay, &Value) -> Option<f64>) {
        let Some(mut answers) = self.meta.get_mut("holders").map(Value::take) else { return };
        self.answer_due = None;
        for answer in answers.as_array_mut().into_iter().flatten() {
            let at = Nanos(answer["at_ns"].as_u64().unwrap_or(0));
            for f in findings(answer).filter(|f| f.get("freed").is_none()) {
                if at < now {
                    f["freed"] = freed(self, &f["about"]).into();
                } else {
                    self.answer_due = self.answer_due.into_iter().chain([at]).min();
                }
            }
        }
        self.meta["holders"] = answers;
    }

    /// The part of what was asked about that has been freed since, 0 to 1.
    fn freed_of(&self, about: &Value) -> Option<f64> {
        let asked = &about["asked"];
        let device = DeviceId(about["device"].as_u64()?.try_into().ok()?);
        let (at, blocks) = (asked["ns"].as_u64()?, asked["blocks"].as_array()?);
        // What is made anew with every step may have been since: it is as good if its lines made what is there now.
        let is_anew = asked["anew"] == true;
        let is_of_its_lines = |site: SiteId| {
            let frame = self.site(site).map(|s| &s.frame);
            let line = frame.map(|f| format!("{}:{}", f.file, f.line));
            about["sites"].as_array().is_some_and(|all| all.iter().any(|s| s.as_str() == line.as_deref()))
        };
        let is_freed = |address: &&Value| {
            let block = address.as_u64().and_then(|a| self.block(device, Addr(a)));
            block.is_none_or(|h| h.pending || h.born.0 > at && !(is_anew && is_of_its_lines(h.site)))
        };
        let freed = blocks.iter().filter(is_freed).count();
        // Some may have been freed before it was asked: what is told are those that were left.
        let left = 1.0 - asked["freed"].as_f64().unwrap_or(0.0);
        (self.lost == 0 && !blocks.is_empty())
            .then(|| 1.0 - left * (1.0 - freed as f64 / blocks.len() as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Block, Body, Bytes, Event, Item, Names, ThreadId};
    use serde_json::json;

    fn block(addr: u64) -> Block {
        Block { addr: Addr(addr), size: Bytes(512), rounded: Bytes(512), ..Block::default() }
    }

    fn say(r: &mut Replay, time: u64, body: Body) {
        let event = Event { time: Nanos(time), thread: ThreadId(0), body };
        r.apply(&Item::Event(event), &Names::default());
    }

    fn answer(number: u64, at: u64) -> Value {
        let about = json!({ "device": 0, "asked": { "ns": 40, "blocks": [512, 1024, 1536, 2048] } });
        json!({ "number": number, "at_ns": at, "findings": [{ "about": about, "status": "not_found" }] })
    }

    fn tell(r: &mut Replay, answers: &[Value]) {
        r.apply(&Item::Meta(json!({ "holders": answers })), &Names::default());
    }

    fn freed(r: &Replay) -> Vec<Value> {
        let all = r.meta()["holders"].as_array().into_iter().flatten();
        all.map(|a| a["findings"][0]["freed"].clone()).collect()
    }

    #[test]
    fn what_is_made_anew_may_be_asked_about_by_an_older_ones_address() {
        let mut r = Replay::new();
        say(&mut r, 60, Body::Alloc(block(512)));
        let line = r.site(r.block(DeviceId(0), Addr(512)).unwrap().site).unwrap().frame.clone();
        let about = |anew: bool, line: String| json!({ "device": 0, "sites": [line], "asked": { "ns": 40, "anew": anew, "blocks": [512] } });
        let mine = format!("{}:{}", line.file, line.line);
        assert_eq!(r.freed_of(&about(true, mine.clone())), Some(0.0));
        assert_eq!(r.freed_of(&about(false, mine)), Some(1.0));
        assert_eq!(r.freed_of(&about(true, "other.py:1".into())), Some(1.0));
    }

    #[test]
    fn what_was_freed_before_the_answer_is_told_from_what_was_freed_after_it() {
        let mut r = Replay::new();
        (1..=4).for_each(|i| say(&mut r, i * 10, Body::Alloc(block(i * 512))));
        say(&mut r, 50, Body::FreeCompleted(block(512)));
        // The address comes again, to another block.
        say(&mut r, 55, Body::FreeCompleted(block(1024)));
        say(&mut r, 60, Body::Alloc(block(1024)));
        tell(&mut r, &[answer(1, 80)]);
        // This event was before the answer, and was read after it.
        say(&mut r, 70, Body::FreeCompleted(block(1536)));
        say(&mut r, 90, Body::FreeCompleted(block(2048)));
        assert_eq!(freed(&r), [json!(0.75)]);
        // All answers are told again with each, and later frees change nothing.
        tell(&mut r, &[answer(1, 80), answer(2, 95)]);
        r.apply(&Item::End(Nanos(100)), &Names::default());
        assert_eq!(freed(&r), [json!(0.75), json!(1.0)]);
    }

    #[test]
    fn what_was_freed_before_it_was_asked_counts() {
        let mut r = Replay::new();
        (1..=4).for_each(|i| say(&mut r, i * 10, Body::Alloc(block(i * 512))));
        say(&mut r, 50, Body::FreeCompleted(block(512)));
        let mut late = answer(1, 80);
        late["findings"][0]["about"]["asked"]["freed"] = json!(0.5);
        tell(&mut r, &[late]);
        r.apply(&Item::End(Nanos(100)), &Names::default());
        assert_eq!(freed(&r), [json!(0.625)]);
    }

    #[test]
    fn an_answer_that_is_read_before_all_events_is_of_its_own_time() {
        let mut r = Replay::new();
        tell(&mut r, &[answer(1, 80)]);
        (1..=4).for_each(|i| say(&mut r, i * 10, Body::Alloc(block(i * 512))));
        (1..=3).for_each(|i| say(&mut r, 50 + i, Body::FreeCompleted(block(i * 512))));
        say(&mut r, 90, Body::FreeCompleted(block(2048)));
        assert_eq!(freed(&r), [json!(0.75)]);
    }

    #[test]
    fn of_a_part_that_was_cut_off_nothing_is_said() {
        let mut r = Replay::new();
        tell(&mut r, &[answer(1, 80)]);
        say(&mut r, 90, Body::Alloc(block(512)));
        assert_eq!(freed(&r), [Value::Null]);
    }
}
