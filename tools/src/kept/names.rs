//! Of the names on the way to a holder, which come first where its statement is looked for.

use serde_json::Value;
use strandline::report::{Count, Holder};

/// Steps between two looks before which as many entries tell nothing: what gets one every few steps has as many then, too.
const WHILE: u32 = 8;

/// Where the names stand whose statements are looked for, and whose types are told there, in their order: the holder's own, then those on the way to
/// it. Where the holder has as many entries at each look, something in them grows: then the innermost container comes first. So does that of
/// an object of a class of the user's own.
pub(super) fn scopes<'a>(
    told: &'a Value,
    holder: &Holder,
    is_own: &dyn Fn(&str) -> bool,
) -> Option<Vec<(&'a Value, &'a Value)>> {
    let own = (told.get("scope")?, told);
    let near = told.get("names").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let near = near.iter().filter(|n| number(n, "blocks") * 2 >= holder.blocks);
    let is_long = holder.counts.iter().any(|c| c.step.is_none()) || holder.still() >= WHILE;
    let is_same = |c: &Count| Some(c.entries) == holder.entries;
    let is_still = holder.counts.len() > 1 && is_long && holder.counts.iter().all(is_same);
    let is_nested = is_still && !holder.graph && !holder.rebound && holder.part.is_none();
    let is_object = holder.entries.is_none() && !holder.graph && !holder.rebound;
    let is_users = |n: &Value| n["class"].is_string() && n["file"].as_str().is_some_and(is_own);
    let is_first = |n: &&Value| n["entries"].is_u64() && (is_nested || is_object && is_users(n));
    let (first, rest): (Vec<_>, Vec<_>) = near.partition(is_first);
    let pairs = |all: Vec<&'a Value>| all.into_iter().map(|n| (n, n));
    Some(pairs(first).chain([own]).chain(pairs(rest)).collect())
}

/// A number of an answer; 0 where it has none.
pub(super) fn number(v: &Value, key: &str) -> u64 {
    v.get(key).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_grows_in_entries_that_stay_as_many_is_kept_by_the_innermost_container() {
        let names = json!([
            { "variable": "t", "entries": null, "blocks": 8 },
            { "variable": "turns", "entries": 40, "blocks": 8 },
            { "variable": "few", "entries": 3, "blocks": 1 },
        ]);
        let told = json!({ "scope": { "variable": "session" }, "names": names });
        let order_apart = |counts: &[u64], graph, apart: u32| {
            let count = |(i, n): (usize, &u64)| Count {
                entries: *n,
                step: Some(i as u32 * apart),
                ..Count::default()
            };
            let counts = counts.iter().enumerate().map(count).collect();
            let holder = Holder { entries: Some(8), blocks: 8, graph, counts, ..Holder::default() };
            let all = scopes(&told, &holder, &|_| true).unwrap();
            all.iter().map(|(scope, _)| scope["variable"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let order = |counts, graph| order_apart(counts, graph, 4);
        assert_eq!(order(&[8, 8, 8], false), ["turns", "session", "t"]);
        assert_eq!(
            order_apart(&[8, 8, 8], false, 1),
            ["session", "t", "turns"],
            "looks at nearly one moment"
        );
        for (counts, graph) in [(&[8, 9, 12][..], false), (&[8][..], false), (&[8, 8, 8][..], true)] {
            assert_eq!(order(counts, graph), ["session", "t", "turns"], "{counts:?}");
        }
    }

    #[test]
    fn what_an_object_of_the_users_own_has_grows_in_an_attribute_of_its_class() {
        let of = |file: &str, class: Value| json!({ "variable": "trace", "class": class, "file": file, "entries": 9, "blocks": 8 });
        let first = |name: Value, entries| {
            let told = json!({ "scope": { "variable": "st" }, "names": [name] });
            let holder = Holder { blocks: 8, entries, ..Holder::default() };
            let all = scopes(&told, &holder, &|file| file == "mine.py").unwrap();
            all.first().unwrap().0["variable"].as_str().unwrap().to_owned()
        };
        assert_eq!(first(of("mine.py", "State".into()), None), "trace");
        assert_eq!(first(of("mine.py", "State".into()), Some(3)), "st", "it is a container itself");
        assert_eq!(first(of("theirs.py", "State".into()), None), "st");
        assert_eq!(first(of("mine.py", Value::Null), None), "st", "a variable");
    }
}
