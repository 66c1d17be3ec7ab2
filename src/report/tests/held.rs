//! Words for who holds what was found.

use super::*;

#[test]
fn tensors_of_many_objects_that_nobody_has_may_be_garbage() {
    let of = |kind: &str, blocks, root| Holder { kind: kind.into(), blocks, root, ..Holder::default() };
    assert!(of("Tensor", 8, false).may_be_garbage());
    for other in
        [of("Tensor", 1, false), of("Tensor", 8, true), of("list", 8, false), of("function", 8, false)]
    {
        assert!(!other.may_be_garbage(), "{other:?}");
    }
}

#[test]
fn results_of_cells_are_called_so() {
    let of = |name: &str| Holder { name: name.into(), kind: "dict".into(), ..Holder::default() };
    assert!(of("__main__._oh").in_words().starts_with("Out, the results of notebook cells, a dict"));
    assert!(of("__main__.out").in_words().starts_with("__main__.out, a dict"));
}

#[test]
fn variables_are_called_so_and_a_name_that_keeps_in_two_ways_is_said_once() {
    assert_eq!(spoken("x, a local of one"), "the local variable x of one()");
    assert_eq!(spoken("out, a closure of f.<locals>.log"), "the variable out that log() captured");
    let of =
        |graph, share| Holder { name: "m.x".into(), kind: "list".into(), graph, share, ..Holder::default() };
    let said = in_words(&[of(true, 0.86), of(false, 0.14)]);
    assert_eq!(
        said,
        ["m.x, a list: its tensors hold 14 % of the blocks, their autograd graphs 86 % of the blocks"]
    );
}

#[test]
fn types_have_the_article_that_is_spoken() {
    for kind in ["Adam", "SGD", "LSTM", "object", "NAdam", "ndarray"] {
        assert_eq!(article(kind), "an", "{kind}");
    }
    for kind in ["dict", "GRU", "UNet", "Tensor", "UserDict", "namedtuple", ""] {
        assert_eq!(article(kind), "a", "{kind}");
    }
}

#[test]
fn answers_are_worded_for_people_and_for_programs() {
    let one = json!({ "name": "OffloadActivations.bwd_tensor_stash", "type": "dict", "entries": 1116, "graph": false, "through": null, "blocks": 30 });
    let other = json!({ "name": "__main__.losses", "type": "dict", "entries": 1, "graph": true, "through": "FunctionBackward.context", "blocks": 2 });
    let answer = json!({ "status": "found", "holders": [one, other], "blocks": 32 });
    let HeldBy::Found(holders) = HeldBy::of(&answer, &Value::Null, &Value::Null, &|_| None) else {
        panic!("found")
    };
    let words: Vec<String> = holders.iter().map(Holder::in_words).collect();
    assert_eq!(
        words,
        [
            "OffloadActivations.bwd_tensor_stash, a dict with 1,116 entries; it holds 94 % of these blocks",
            "the autograd graphs of __main__.losses, a dict with 1 entry, through FunctionBackward.context; it holds 6.2 % of these blocks"
        ]
    );
    assert_eq!(holders[0].in_short(), "OffloadActivations.bwd_tensor_stash (dict, 1116 entries)");
    assert_eq!(
        holders[1].in_short(),
        "autograd graphs of __main__.losses (dict, 1 entry) through FunctionBackward.context"
    );
}

#[test]
fn parts_are_of_the_memory_and_who_has_the_same_is_told() {
    let name = |name: &str, direct, blocks: u64| json!({ "name": name, "type": "list", "entries": 9, "direct": direct, "blocks": blocks });
    let names = [name("Cb.logs", true, 8), name("__main__.some", true, 3), name("__main__.all", false, 8)];
    let first = json!({ "name": "__main__.b", "type": "dict", "entries": 60, "direct": true, "blocks": 8, "weight": 19, "names": names });
    let second = json!({ "name": "__main__.a", "type": "list", "blocks": 8, "weight": 0 });
    let finding =
        json!({ "status": "found", "holders": [first, second], "blocks": 16, "weight": 24, "at_ns": 9 });
    let HeldBy::Found(mut all) = HeldBy::of(&finding, &Value::Null, &Value::Null, &|_| Some(60)) else {
        panic!("found")
    };
    all[0].last_step = Some((8, 60));
    assert_eq!(
        all[0].in_words(),
        "__main__.b, a dict with 60 entries after step 60; it holds about 79 % of this memory; Cb.logs, a list, holds the same memory"
    );
    assert_eq!(all[1].in_words(), "__main__.a, a list; it holds less than 1 % of this memory");
    all[0].last_step = Some((9, 60));
    assert!(all[0].in_words().contains("entries in step 60;"));
}

#[test]
fn what_was_not_found_says_why() {
    let of = |v: &Value| HeldBy::of(v, &Value::Null, &Value::Null, &|_| None);
    let answer = |status: &str| json!({ "status": status, "holders": [], "reason": "because" });
    assert_eq!(of(&answer("not_found")), HeldBy::NotFound("because".into()));
    assert_eq!(of(&answer("not_run")), HeldBy::Skipped("because".into()));
    assert_eq!(of(&Value::Null), HeldBy::Skipped(String::new()));
}

#[test]
fn what_was_counted_says_when_and_where_it_ends() {
    let bound = json!({ "kind": "maxlen", "entries": 1000 });
    let deque =
        json!({ "name": "q, a local of f", "type": "deque", "entries": 40, "bound": bound, "blocks": 2 });
    let bank = json!({ "name": "__main__.bank", "type": "list", "entries": 50, "blocks": 1, "root": true });
    let finding = json!({ "status": "found", "holders": [deque, bank], "blocks": 2 });
    let counts = json!([
        { "name": "q, a local of f", "counts": [[2_000_000_000u64, 40], [3_000_000_000u64, 60]] },
        { "name": "__main__.bank", "counts": [[2_000_000_000u64, 50], [3_000_000_000u64, 4]] },
    ]);
    let answer = json!({ "at_ns": 2_000_000_000u64 });
    let step_at = |ns: u64| Some((ns / 100_000_000) as u32);
    let HeldBy::Found(all) = HeldBy::of(&finding, &answer, &counts, &step_at) else { panic!("found") };
    assert!(all[0].grew() && !all[0].shrank() && all[1].shrank() && !all[1].grew());
    assert!(all.iter().all(Holder::is_reachable));
    let said = all[0].in_words();
    assert!(
        said.starts_with("the local variable q of f(), a deque with 40 entries in step 20, 60 in"),
        "{said}"
    );
    assert!(said.contains("60 in step 30") && said.ends_with("at most 1,000 (maxlen=1000)"), "{said}");
    assert!(all[1].in_words().contains("other entries are removed from it"), "{}", all[1].in_words());
    let told = all[1].to_json();
    assert_eq!((&told["seconds"], &told["counts"][1]["entries"]), (&json!(2.0), &json!(4)));
    assert_eq!((&told["step"], &told["counts"][1]["step"]), (&json!(20), &json!(30)));
    assert_eq!((&told["shrank"], &told["reachable"]), (&json!(true), &json!(true)));
    // Deques of a container have come since, and no more do.
    let more = |open: bool| json!([{ "name": "q, a local of f", "counts": [], "most": 1200, "open": open }]);
    let most = |open| match HeldBy::of(&finding, &answer, &more(open), &step_at) {
        HeldBy::Found(all) => all[0].bound.as_ref().map(|b| b.entries),
        _ => None,
    };
    assert_eq!((most(false), most(true)), (Some(1200), None));
    // What a shorter search had found, and a longer one did not find again, was counted then.
    let early = json!({ "status": "found", "holders": [finding["holders"][1]], "blocks": 2, "at_ns": 1_000_000_000u64 });
    let HeldBy::Found(all) = HeldBy::of(&early, &answer, &json!([]), &step_at) else { panic!("found") };
    assert_eq!(all[0].to_json()["seconds"], json!(1.0));
}
