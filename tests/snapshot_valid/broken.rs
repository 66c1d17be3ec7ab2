//! A snapshot that is right, broken in one place at a time.

use crate::snapshot_rules::validate;
use serde_json::{Value as Json, json};
use strandline::report::snapshot::unpickle::{Limits, read};

/// Appends JSON as a pickle.
fn pickle(v: &Json, out: &mut Vec<u8>) {
    match v {
        Json::Bool(b) => out.push(if *b { 0x88 } else { 0x89 }),
        Json::Number(n) => {
            let n = n.as_i128().expect("an integer");
            out.extend([0x8a, 9]);
            out.extend(&n.to_le_bytes()[..9]);
        }
        Json::String(s) => {
            out.push(b'X');
            out.extend((s.len() as u32).to_le_bytes());
            out.extend(s.as_bytes());
        }
        Json::Array(items) => {
            out.extend(b"](");
            items.iter().for_each(|item| pickle(item, out));
            out.push(b'e');
        }
        Json::Object(members) => {
            out.extend(b"}(");
            members.iter().for_each(|(key, value)| {
                pickle(&json!(key), out);
                pickle(value, out);
            });
            out.push(b'u');
        }
        Json::Null => panic!("no snapshot here has one"),
    }
}

fn wrong_with(v: &Json) -> Vec<String> {
    let mut bytes = vec![0x80, 4];
    pickle(v, &mut bytes);
    bytes.push(b'.');
    validate(&read(&bytes, &Limits::default()).unwrap())
}

const SEGMENT: u64 = 0x7f00_0000_0000;

fn entry(action: &str, addr: u64, size: u64, time: u64) -> Json {
    json!({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time})
}

/// Two blocks were allocated in a segment, one was freed and waits, one was freed for good; a second segment came and
/// went, a third was mapped.
fn right() -> Json {
    let a = SEGMENT;
    json!({
        "segments": [
            {"device": 0, "address": a, "total_size": 2097152, "allocated_size": 512, "active_size": 1536,
             "requested_size": 1112, "stream": 0, "segment_type": "small", "segment_pool_id": [0, 0],
             "is_expandable": false, "frames": [], "blocks": [
                {"address": a, "size": 512, "requested_size": 100, "state": "active_allocated",
                 "frames": [{"filename": "train.py", "name": "step", "line": 88}]},
                {"address": a + 512, "size": 1024, "requested_size": 1012, "state": "active_pending_free", "frames": []},
                {"address": a + 1536, "size": 2095616, "requested_size": 0, "state": "inactive", "frames": []}]},
            {"device": 0, "address": 2 * a, "total_size": 20971520, "allocated_size": 0, "active_size": 0,
             "requested_size": 0, "stream": 7, "segment_type": "large", "segment_pool_id": [0, 0],
             "is_expandable": true, "frames": [], "blocks": [
                {"address": 2 * a, "size": 20971520, "requested_size": 0, "state": "inactive", "frames": []}]},
        ],
        "device_traces": [[
            entry("segment_alloc", a, 2097152, 10),
            entry("alloc", a, 100, 11),
            entry("alloc", a + 512, 1012, 12),
            entry("free_requested", a + 512, 1012, 13),
            entry("segment_alloc", 3 * a, 2097152, 14),
            entry("alloc", 3 * a, 8, 15),
            entry("free_requested", 3 * a, 8, 16),
            entry("free_completed", 3 * a, 8, 16),
            entry("segment_free", 3 * a, 2097152, 17),
            {"action": "segment_map", "addr": 2 * a, "size": 41943040, "stream": 7, "time_us": 18},
            {"action": "segment_unmap", "addr": 2 * a + 20971520, "size": 20971520, "stream": 7, "time_us": 19},
            {"action": "oom", "device_free": 5, "size": 9, "stream": 0, "time_us": 20},
        ]],
        "allocator_settings": {},
        "external_annotations": [
            {"stage": "START", "name": "step 1", "device": 0, "time_us": 1},
            {"stage": "END", "name": "step 1", "device": 0, "time_us": 2}],
    })
}

#[test]
fn what_is_right_is_left_alone() {
    assert_eq!(wrong_with(&right()), [""; 0]);
}

/// Sets what `pointer` names and expects a sentence that contains `says`.
#[track_caller]
fn breaks(pointer: &str, value: Json, says: &str) {
    let mut v = right();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = v.pointer_mut(parent).unwrap_or_else(|| panic!("no {pointer}"));
    match parent {
        Json::Object(m) => drop(m.insert(key.to_owned(), value)),
        Json::Array(l) => l[key.parse::<usize>().unwrap()] = value,
        other => panic!("{pointer} is in {other}"),
    }
    let wrong = wrong_with(&v);
    assert!(wrong.iter().any(|w| w.contains(says)), "{pointer}: expected {says:?}, got {wrong:#?}");
}

/// Removes an entry of the history and expects a sentence that contains `says`.
#[track_caller]
fn lacks(entry: usize, says: &str) {
    let mut v = right();
    v["device_traces"][0].as_array_mut().unwrap().remove(entry);
    let wrong = wrong_with(&v);
    assert!(wrong.iter().any(|w| w.contains(says)), "expected {says:?}, got {wrong:#?}");
}

#[test]
fn a_missing_part_is_named() {
    breaks("/segments", json!({}), "segments is no list");
    breaks("/device_traces", json!(1), "device_traces is no list");
    breaks("/allocator_settings", json!([]), "allocator_settings is no dict");
    breaks("/external_annotations/0/stage", json!("END"), "without a START");
    breaks("/device_traces/0/1/time_us", json!("x"), "no time");
    breaks("/device_traces/0/1/time_us", json!(9), "goes back by 1");
    breaks("/device_traces/0/1/action", json!("use"), "action");
    breaks("/device_traces/0/1/addr", json!(-1), "addr is missing");
    breaks("/device_traces/0/11/device_free", json!("5"), "device_free is missing");
    breaks(
        "/device_traces/0/1/frames",
        json!([{"filename": "a", "name": "b"}]),
        "lacks filename, name or line",
    );
    breaks("/segments/0/device", json!(1), "no entry in device_traces");
    breaks("/segments/0/blocks/0/frames/0/line", json!("88"), "lacks filename, name or line");
    breaks("/segments/0/segment_pool_id", json!([0]), "no pair");
    breaks("/segments/0/segment_type", json!("medium"), "neither large nor small");
    breaks("/segments/0/stream", json!(u64::MAX), "no signed 64-bit");
}

#[test]
fn blocks_must_fill_their_segment_and_sum_to_it() {
    breaks("/segments/0/total_size", json!(2097153), "blocks cover 2097152 of 2097153");
    breaks("/segments/0/blocks/1/address", json!(SEGMENT + 513), "does not begin where");
    breaks("/segments/0/allocated_size", json!(1536), "allocated_size is not the 512 bytes");
    breaks("/segments/0/active_size", json!(512), "active_size is not the 1536 bytes");
    breaks("/segments/0/requested_size", json!(1), "requested_size is not the 1112 bytes");
    breaks("/segments/0/blocks/0/requested_size", json!(513), "more requested");
    breaks("/segments/0/blocks/0/state", json!("active_awaiting_free"), "state");
    breaks("/segments/1/address", json!(SEGMENT), "not sorted, or overlaps");
}

#[test]
fn the_history_must_lead_to_the_state() {
    // A pending free needs its block among the segments; a live block too.
    breaks("/segments/0/blocks/1/state", json!("inactive"), "never freed, but in no segment");
    breaks("/segments/0/blocks/1/state", json!("active_allocated"), "the block is allocated afterwards");
    lacks(7, "the block is gone afterwards");
    lacks(8, "the block lies in no segment");
    breaks("/device_traces/0/0/size", json!(1048576), "the segment has 2097152 bytes afterwards");
    breaks("/device_traces/0/9/addr", json!(5 * SEGMENT), "no segment contains it afterwards");
    breaks("/device_traces/0/7/addr", json!(4 * SEGMENT), "the block lies in no segment");
    breaks("/device_traces/0/2/addr", json!(SEGMENT), "was handed out at entry 1 and not freed");
    breaks("/device_traces/0/4/addr", json!(6 * SEGMENT), "no such segment afterwards");
}

#[test]
fn a_segment_cannot_come_after_its_blocks() {
    let mut v = right();
    let trace = v["device_traces"][0].as_array_mut().unwrap();
    let first = trace.remove(0);
    trace.insert(2, first);
    trace[2]["time_us"] = json!(12);
    let wrong = wrong_with(&v);
    assert!(wrong.iter().any(|w| w.contains("was in it before")), "{wrong:#?}");
}

#[test]
fn categories_need_an_unknown_one() {
    breaks("/device_traces/0/1/category", json!("left behind"), "memory_viz throws");
    let mut v = right();
    v["device_traces"][0][1]["category"] = json!("left behind");
    v["device_traces"][0][2]["category"] = json!("unknown");
    assert_eq!(wrong_with(&v), [""; 0]);
}

#[test]
fn what_memory_viz_cannot_parse_is_named() {
    // Protocol 5, and a batch as long as PyTorch's own C++ pickler would write it.
    let mut b = b"\x80\x05](".to_vec();
    b.extend(std::iter::repeat_n(*b"K\x01", 100_001).flatten());
    b.extend(b"e.");
    let wrong = validate(&read(&b, &Limits::default()).unwrap());
    assert!(wrong[0].contains("protocol 5") && wrong[1].contains("100001 items"), "{wrong:?}");
}
