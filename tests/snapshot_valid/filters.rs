//! What filters leave out, and the second language a snapshot is written in.

use super::*;

/// What a filter leaves out is gone from the history and is free memory in the end; what it keeps is as it was.
#[test]
fn a_filter_keeps_snapshots_valid() {
    let names = names();
    for seed in 1..=10u64 {
        let job = Job::run(seed * 0x0bad_5eed, 1500);
        let of_train =
            Filter { stacks: Some(Filter::stacks_with(&names, "train.py:10 ")), ..Filter::default() };
        let large = Filter { min_size: Bytes(4096), ..Filter::default() };
        let side =
            Filter { streams: Some(vec![(DeviceId(0), StreamHandle(0x5555_0000))]), ..Filter::default() };
        let (whole, all) = snapshot(&job.items, &names, None);
        for filter in [of_train, large, side] {
            let (bytes, few) = written(&job.items, &names, None, &filter, Language::Pickle);
            let t = tree(&bytes);
            assert_valid(&t, &format!("seed {seed}, {filter:?}"));
            assert!(
                few.entries < all.entries && few.blocks < all.blocks && few.blocks > 0,
                "{few:?} of {all:?}"
            );
            assert_eq!((few.segments, few.repaired), (all.segments, 0));
            let kept = in_use(&t);
            assert!(kept.iter().all(|b| in_use(&whole).contains(b)), "seed {seed}");
        }
    }
}

/// The two languages say the same.
#[test]
fn json_says_what_the_pickle_says() {
    let names = names();
    let job = Job::run(77, 1200);
    let (t, as_pickle) = snapshot(&job.items, &names, None);
    let (bytes, as_json) = written(&job.items, &names, None, &Filter::default(), Language::Json);
    assert_eq!(as_pickle, as_json);
    let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    same(&t, t.root(), &json);
}

fn same(t: &Tree, v: Value, json: &serde_json::Value) {
    match v {
        Value::Dict(_) => {
            let entries = t.dict(v).unwrap();
            assert_eq!(json.as_object().map(serde_json::Map::len), Some(entries.len()));
            entries.iter().for_each(|(k, v)| same(t, *v, &json[t.text(*k).unwrap()]));
        }
        Value::List(_) | Value::Tuple(_) => {
            let items = t.list(v).or_else(|| t.tuple(v)).unwrap();
            assert_eq!(json.as_array().map(Vec::len), Some(items.len()));
            items.iter().zip(json.as_array().unwrap()).for_each(|(v, j)| same(t, *v, j));
        }
        Value::Text(_) => assert_eq!(t.text(v), json.as_str()),
        Value::Int(i) => assert_eq!(Some(i), json.as_i64().map(i128::from).or(json.as_u64().map(i128::from))),
        Value::Float(f) => assert_eq!(Some(f), json.as_f64()),
        Value::Bool(b) => assert_eq!(Some(b), json.as_bool()),
        Value::None => assert!(json.is_null()),
    }
}
