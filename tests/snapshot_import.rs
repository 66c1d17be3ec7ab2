//! Snapshots that PyTorch wrote, in the place of a recording: `report` and `diff` read them, and whatever is broken or
//! hostile is an error with a place.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use strandline::event::{Body, DeviceId, Item};
use strandline::replay::Replay;
use strandline::report::snapshot::import::{Imported, import};
use strandline::report::snapshot::unpickle::{self, Limits, read};

const REFERENCES: [&str; 5] = ["ref_plain", "ref_expandable", "ref_graph", "ref_oom", "ref_pending"];

fn golden(name: &str) -> PathBuf {
    support::root().join("tests/golden/snapshots").join(name).with_extension("pickle")
}

fn tree_of(name: &str) -> unpickle::Tree {
    read(&std::fs::read(golden(name)).unwrap(), &Limits::default()).unwrap()
}

fn replayed(imported: &Imported) -> Replay {
    let mut replay = Replay::new();
    for item in &imported.items {
        replay.apply(item, &imported.names);
    }
    for event in imported.events() {
        replay.apply_event(&event);
    }
    replay
}

/// The state that the items lead to is the one that the snapshot ends in, and nothing contradicts itself on the way.
#[test]
fn a_history_leads_to_the_state_it_came_with() {
    for name in REFERENCES {
        let tree = tree_of(name);
        let imported = import(tree_of(name)).unwrap();
        assert_eq!(imported.strange, 0, "{name}");
        let mut replay = replayed(&imported);
        assert_eq!(replay.inconsistencies(), [], "{name}");
        let int = |v, key: &str| match tree.get(v, key) {
            Some(unpickle::Value::Int(i)) => i as u64,
            other => panic!("{name}: {key} is {other:?}"),
        };
        let segments = tree.list(tree.get(tree.root(), "segments").unwrap()).unwrap();
        let sum = |key: &str| segments.iter().map(|&s| int(s, key)).sum::<u64>();
        let d = replay.device(DeviceId(0)).unwrap();
        assert_eq!((d.allocated.0, d.reserved.0), (sum("allocated_size"), sum("total_size")), "{name}");
        assert_eq!(d.pending.0, sum("active_size") - sum("allocated_size"), "{name}");
        // Four optimizer steps, as torch annotates them; the fourth ends with the job.
        replay.finish();
        assert_eq!(replay.steps(), 4, "{name}");
        let ooms = imported.events().filter(|e| matches!(e.body, Body::Oom { .. })).count();
        assert_eq!(ooms, usize::from(name == "ref_oom"), "{name}");
        assert!(imported.items.iter().any(|i| matches!(i, Item::Stack(_))), "{name}");
    }
}

/// PyTorch 2.6's own default, `stacks="all"`: native frames around and between those of Python. (Long names of functions were
/// cut, paths shortened.)
#[test]
fn native_frames_hide_nobodys_line() {
    let imported = import(tree_of("native_frames")).unwrap();
    assert_eq!(imported.strange, 0);
    assert_eq!(replayed(&imported).inconsistencies(), []);
    let (mut sites, mut backward) = (std::collections::BTreeMap::<String, u32>::new(), 0);
    for e in imported.events() {
        let Body::Alloc(b) = e.body else { continue };
        let Some(f) = imported.names.frames(b.stack).next() else {
            assert!(b.phase.backward, "no Python is seen on autograd's threads");
            backward += 1;
            continue;
        };
        *sites.entry(format!("{}:{} {}", f.file, f.line, f.function)).or_default() += 1;
    }
    assert_eq!(sites.get("/job/train.py:7 leak"), Some(&3), "{sites:?}");
    assert!(sites.len() > 5 && backward > 20, "{backward} {sites:?}");
    assert!(sites.keys().all(|s| s.contains(".py:")), "{sites:?}");
    let frames = imported.names.stacks().flat_map(|id| imported.names.frames(id));
    frames.for_each(|f| assert!(f.file.ends_with(".py") && f.line > 0, "{f:?}"));
}

fn run(words: &[&str]) -> Output {
    Command::new(support::command()).args(words).output().expect("the command starts")
}

#[track_caller]
fn json(words: &[&str]) -> Value {
    let out = run(words);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

#[test]
fn report_and_diff_read_them() {
    let path = |name: &str| golden(name).to_string_lossy().into_owned();
    let report = json(&["report", &path("ref_oom"), "--format", "json"]);
    assert_eq!(report["verdict"], "oom", "{report}");
    let p = &report["processes"][0];
    assert_eq!((&p["step_source"], &p["steps"]), (&"optimizer".into(), &4.into()), "{p}");
    assert_eq!(p["coverage"]["level"], "blocks", "{p}");
    let diff = json(&["diff", &path("ref_plain"), &path("ref_pending"), "--format", "json"]);
    let more = &diff["sites"][0];
    assert_eq!((&more["new"]["bytes"], &more["base"]["bytes"]), (&32_000_000.into(), &0.into()), "{diff}");
    let text = String::from_utf8(run(&["diff", &path("ref_plain"), &path("ref_pending")]).stdout).unwrap();
    assert!(text.starts_with("strandline: NEW has 30.5 MiB more in use than BASE\n"), "{text}");
    let same = String::from_utf8(run(&["diff", &path("ref_plain"), &path("ref_plain")]).stdout).unwrap();
    assert!(same.starts_with("strandline: THE SAME"), "{same}");
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let folder = std::env::temp_dir().join(format!("strandline-import-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let refused = |name: &str, bytes: &[u8]| {
        let path: &Path = &folder.join(name);
        std::fs::write(path, bytes).unwrap();
        let out = run(&["report", &path.to_string_lossy()]);
        assert_eq!(out.status.code(), Some(2), "{name}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let numbers = refused("numbers.pickle", b"\x80\x02]q\x00(K\x01K\x02K\x03e.");
    assert!(numbers.contains("a list, but not one of segments"), "{numbers}");
    let hostile = refused("hostile.pickle", b"\x80\x04cposix\nsystem\n\x8c\x04true\x85R.");
    assert!(hostile.contains("never executed"), "{hostile}");
    let other = refused("other.pickle", b"\x80\x04}\x8c\x01aK\x01s.");
    assert!(other.contains("not a PyTorch snapshot"), "{other}");
    let whole = std::fs::read(golden("ref_plain")).unwrap();
    let torn = refused("torn.pickle", &whole[..whole.len() / 2]);
    assert!(torn.contains("at byte"), "{torn}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Files broken at random: each is an error or some snapshot, never a panic.
#[test]
fn broken_snapshots_end_without_a_panic() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = move |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % n as u64) as usize
    };
    let (mut read_well, mut refused) = (0, 0);
    for name in ["ref_graph", "ref_expandable"] {
        let whole = std::fs::read(golden(name)).unwrap();
        for _ in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..=below(4) {
                let at = below(bytes.len());
                match below(4) {
                    0 => bytes[at] = below(256) as u8,
                    1 => bytes[at] ^= 1 << below(8),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, below(256) as u8),
                }
            }
            let limits = Limits { values: bytes.len(), ..Limits::default() };
            let Ok(imported) = read(&bytes, &limits).map_err(|e| e.to_string()).and_then(import) else {
                refused += 1;
                continue;
            };
            assert_eq!(replayed(&imported).events(), imported.events().count() as u64);
            read_well += 1;
        }
    }
    assert!(read_well > 0 && refused > 0, "{read_well} read, {refused} refused");
}
