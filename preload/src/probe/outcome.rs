//! What a search has come to: the answer to each finding, and the holders that are worth another look.

use super::answer;
use super::named::Named;
use super::work::Work;
use crate::platform::clock;
use crate::recorder::since_began;
use serde_json::Value;

/// Holders that are looked at again.
const HOLDERS: usize = 16;

impl Work {
    /// The answer to each finding, as of now: names were counted as they were looked at for the last time, and the next slice, or who tells
    /// it, may come many steps later. What the user's own names told before is better than nothing.
    pub(super) fn answers(&self) -> Vec<Value> {
        let climbed = self.climb.as_ref().map_or(&[][..], |c| &c.named);
        let risen: Vec<Named> =
            self.now.iter().chain(self.rise.iter().flat_map(|c| &c.named)).cloned().collect();
        let found = self.tensors.values().fold(0, |a, m| a | m);
        // What something else keeps as well is kept by that.
        let seen = [found, self.of_gradients(), self.by_gradients];
        let one = |(f, group): (_, &u64)| answer::answer_for(f, *group, seen, climbed, &risen, &self.weights);
        let mut all: Vec<Value> = self.about().zip(&self.groups).map(one).collect();
        let now = since_began(clock::moment().mono_ns);
        for finding in all.iter_mut().filter_map(Value::as_object_mut) {
            finding.insert("at_ns".to_owned(), now.into());
        }
        for (mine, before) in all.iter_mut().zip(&self.close) {
            if !is_found(mine) && is_found(before) {
                *mine = before.clone();
            }
        }
        all
    }

    /// Samples that gradients lie in, and no other tensor: an optimizer at work may have the gradients themselves as well.
    fn of_gradients(&self) -> u64 {
        let others = self.own.iter().filter(|(at, _)| !self.gradients.contains_key(at));
        let others = others.fold(0, |all, (_, mask)| all | mask);
        self.gradients.values().fold(0, |all, mask| all | mask) & !others
    }

    /// What is told of each finding where the search could not be ended, because of `why`.
    pub(super) fn unfinished(&self, why: &str) -> Vec<Value> {
        let mut before = self.close.iter();
        let mut one = |about| {
            let found = before.next().filter(|a| is_found(a));
            found.cloned().unwrap_or_else(|| answer::not_run(about, why))
        };
        self.about().map(&mut one).collect()
    }

    /// What was named as a holder in the answers, to be looked at again, each with the finding's place among them.
    pub(super) fn holders(&self) -> Vec<Named> {
        let all = [&self.climb, &self.rise].into_iter().flatten().flat_map(|c| &c.named).chain(&self.now);
        let told = |n: &&Named| n.is_final && n.entries.is_some() && !n.is_rebound;
        let mut all: Vec<Named> = all.filter(told).cloned().collect();
        all.sort_by_key(|n| std::cmp::Reverse(n.mask.count_ones()));
        all.truncate(HOLDERS);
        all
    }
}

fn is_found(answer: &Value) -> bool {
    answer["status"] == "found"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::HashMap;
    use strandline_core::format::holders::{Ask, Flagged};

    #[test]
    fn what_was_found_close_by_is_told_where_the_search_could_not_be_ended() {
        let finding = |n: u64| Flagged { about: json!(n), blocks: vec![n], ..Flagged::default() };
        let ask = Ask { number: 1, findings: vec![finding(1), finding(2)], last: false };
        let close = |of: u64, status: &str| json!({ "about": of, "status": status });
        let mut work = Work::default();
        (work.ask, work.groups) = (ask, vec![1, 2]);
        work.close = vec![close(1, "found"), close(2, "not_found")];
        let told = |all: Vec<Value>| {
            all.iter().map(|a| a["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(told(work.unfinished("the job ended before the search did")), ["found", "not_run"]);
        assert_eq!(told(work.answers()), ["found", "not_found"], "nothing better was found later");
        work.close.clear();
        assert_eq!(told(work.unfinished("the job ended before the search did")), ["not_run", "not_run"]);
    }

    #[test]
    fn whoever_has_the_gradients_themselves_does_not_make_them_another_tensor() {
        let gradients = HashMap::from([(10, 1), (11, 2), (0, 0)]);
        let own = |at: u64, mask| [(at, mask), (0, 0)].into();
        for (own, expected) in [(own(10, 1), 3), (own(20, 1), 2), (own(20, 4), 3)] {
            let mut work = Work::default();
            (work.own, work.gradients) = (own, gradients.clone());
            assert_eq!(work.of_gradients(), expected);
        }
    }
}
