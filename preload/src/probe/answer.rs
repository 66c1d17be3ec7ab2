//! What is told of a finding: the fact `holders` of the recording.

use super::climb::Named;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What a sample is named by, and the nearest name on the way.
type Way<'a> = (&'a Named, Option<&'a Named>);

/// Most holders that are told of a finding.
const MOST: usize = 3;

/// A finding's answer. `group`: its samples; `found`: samples that are tensors of Python's; what was named on the way up from those,
/// and from the tops of graphs.
pub(super) fn of(about: &Value, group: u64, found: u64, climbed: &[Named], risen: &[Named]) -> Value {
    let mut places: HashMap<(&str, bool), Vec<Way<'_>>> = HashMap::new();
    for bit in (0..64).map(|i| 1u64 << i).filter(|b| group & b != 0) {
        let (direct, above) = (best(climbed, bit), best(risen, bit));
        let chosen = match (direct, above) {
            (Some(d), Some(a)) if !d.is_final => Some((a, true)),
            (Some(d), _) => Some((d, false)),
            (None, a) => a.map(|a| (a, true)),
        };
        let Some((named, graph)) = chosen else { continue };
        // The nearest name on the way, where it is another one.
        let near = climbed.iter().filter(|n| n.mask & bit != 0).min_by_key(|n| (n.level, n.rank));
        let near = near.filter(|n| n.place != named.place && (graph || n.level < named.level));
        places.entry((&named.place, graph)).or_default().push((named, near));
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by_key(|(place, all)| (std::cmp::Reverse(all.len()), *place));
    let samples = group.count_ones();
    let holders: Vec<Value> = places
        .iter()
        .take(MOST)
        .filter_map(|((place, graph), all)| {
            // Of several objects with the name the one that most is in.
            let (named, _) = all.iter().max_by_key(|(n, _)| n.entries)?;
            Some(json!({
                "name": place,
                "type": named.kind,
                "entries": named.entries,
                "graph": graph,
                "through": all.iter().find_map(|(_, near)| near.map(|n| &n.place)),
                "blocks": all.len(),
            }))
        })
        .collect();
    let reason = match (holders.is_empty(), found & group) {
        (false, _) => Value::Null,
        (true, 0) => "no tensor of Python's is in these blocks, nor does the graph of one keep them: torch or an extension holds them".into(),
        (true, _) => "their tensors are held by nothing that has a name".into(),
    };
    let status = if holders.is_empty() { "not_found" } else { "found" };
    json!({ "about": about, "status": status, "holders": holders, "reason": reason, "blocks": samples })
}

/// The name that says most of a sample.
fn best(all: &[Named], bit: u64) -> Option<&Named> {
    let mine = all.iter().filter(|n| n.mask & bit != 0);
    mine.min_by_key(|n| (!n.is_final, n.rank, n.level))
}

/// The answer to findings that could not be asked about.
pub(super) fn not_run(about: &Value, reason: &str) -> Value {
    json!({ "about": about, "status": "not_run", "holders": [], "reason": reason, "blocks": 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::climb::Rank;

    fn named(place: &str, mask: u64, is_final: bool, level: u32) -> Named {
        let (kind, entries) = ("dict".to_string(), Some(u64::from(level) * 10));
        let rank = if place.starts_with("__main__") { Rank::Global } else { Rank::Attribute };
        Named {
            place: place.into(),
            rank,
            object: 1,
            owner: 2,
            owner_kind: 3,
            kind,
            entries,
            mask,
            is_final,
            level,
            is_verified: true,
        }
    }

    #[test]
    fn the_place_that_most_is_in_comes_first_and_the_way_is_told() {
        let climbed = [
            named("Rec.loss", 1, false, 1),
            named("Rec.loss", 2, false, 1),
            named("Trainer.history", 3, true, 3),
            named("__main__.trainer", 3, true, 5),
            named("Other.cache", 4, true, 2),
            named("FunctionBackward.context", 8, false, 2),
        ];
        let risen = [named("__main__.losses", 8 | 16, true, 2)];
        let answer = of(&json!({"n": 1}), 31, 15, &climbed, &risen);
        let told = |i: usize, key: &str| answer["holders"][i][key].clone();
        assert_eq!((&answer["status"], &answer["blocks"]), (&json!("found"), &json!(5)));
        assert_eq!((told(0, "name"), told(0, "blocks")), (json!("Trainer.history"), json!(2)));
        assert_eq!((told(0, "through"), told(0, "graph")), (json!("Rec.loss"), json!(false)));
        assert_eq!((told(1, "name"), told(1, "graph")), (json!("__main__.losses"), json!(true)));
        assert_eq!(told(1, "through"), json!("FunctionBackward.context"));
        assert_eq!((told(2, "name"), told(2, "through")), (json!("Other.cache"), Value::Null));
    }

    #[test]
    fn nothing_found_says_why() {
        let none = of(&json!(1), 3, 0, &[], &[]);
        assert_eq!(none["status"], json!("not_found"));
        assert!(none["reason"].as_str().is_some_and(|r| r.contains("an extension holds them")));
        let unnamed = of(&json!(1), 3, 1, &[], &[]);
        assert!(unnamed["reason"].as_str().is_some_and(|r| r.contains("nothing that has a name")));
        assert_eq!(not_run(&json!(1), "off")["status"], json!("not_run"));
    }
}
