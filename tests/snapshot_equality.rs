//! Our snapshots against PyTorch's own of the same moments of the same run, field by field.
//!
//! torch is the oracle. Its history is on from the first allocation; at each moment the job sets a mark and pickles
//! torch's `_snapshot()`. Ours come out of the recording afterwards, by `--at mark:NAME`, `step:N` and `end`.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use strandline::report::snapshot::unpickle::{Limits, Tree, Value, read};
use support::snapshot_rules::validate;
use support::{Folder, Job};

fn tree(path: &Path) -> Tree {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    read(&bytes, &Limits::default()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What was compared, so that a test that compares nothing fails.
#[derive(Debug, Default)]
struct Compared {
    segments: usize,
    segment_frames: usize,
    active: usize,
    pending: usize,
    block_frames: usize,
    entries: usize,
    entry_frames: usize,
    completed_frames: usize,
    released_frames: usize,
    private: usize,
    expandable: usize,
    ooms: usize,
    devices: usize,
}

/// torch's snapshot and ours.
struct Pair<'a> {
    theirs: &'a Tree,
    ours: &'a Tree,
    place: String,
}

impl Pair<'_> {
    fn list(&self, t: Value, o: Value, key: &str) -> (Vec<Value>, Vec<Value>) {
        let of = |tree: &Tree, v: Value| {
            let list = tree.get(v, key).and_then(|l| tree.list(l));
            list.unwrap_or_else(|| panic!("{}: no list {key}", self.place)).to_vec()
        };
        (of(self.theirs, t), of(self.ours, o))
    }

    /// A field as text, so that a difference can be read.
    fn show(tree: &Tree, v: Value, key: &str) -> String {
        let Some(v) = tree.get(v, key) else { return "absent".into() };
        match (tree.text(v), tree.tuple(v)) {
            (Some(text), _) => text.into(),
            (_, Some(tuple)) => format!("{tuple:?}"),
            _ => format!("{v:?}"),
        }
    }

    #[track_caller]
    fn same(&self, t: Value, o: Value, keys: &[&str], what: &str) {
        for key in keys {
            let (theirs, ours) = (Pair::show(self.theirs, t, key), Pair::show(self.ours, o, key));
            assert_eq!(ours, theirs, "{}: {key} of {what}", self.place);
        }
    }

    fn frames(tree: &Tree, v: Value) -> Vec<(String, String, String)> {
        let list = tree.get(v, "frames").and_then(|l| tree.list(l)).unwrap_or_default();
        let of = |f: &Value| {
            let show = |key| Pair::show(tree, *f, key);
            (show("filename"), show("line"), show("name"))
        };
        list.iter().map(of).collect()
    }

    /// Frames are equal; where torch has none (on its autograd threads) ours may tell who called backward. `true`: some were
    /// compared.
    #[track_caller]
    fn same_frames(&self, t: Value, o: Value, what: &str) -> bool {
        let (theirs, ours) = (Pair::frames(self.theirs, t), Pair::frames(self.ours, o));
        if !theirs.is_empty() {
            assert_eq!(ours, theirs, "{}: frames of {what}", self.place);
        }
        !theirs.is_empty()
    }

    fn segments(&self, c: &mut Compared) {
        let (theirs, ours) = self.list(self.theirs.root(), self.ours.root(), "segments");
        let addresses = |tree: &Tree, list: &[Value]| -> Vec<String> {
            list.iter()
                .map(|&s| Pair::show(tree, s, "address") + &Pair::show(tree, s, "total_size"))
                .collect()
        };
        assert_eq!(addresses(self.ours, &ours), addresses(self.theirs, &theirs), "{}", self.place);
        for (i, (&t, &o)) in theirs.iter().zip(&ours).enumerate() {
            let what = format!("segment {i}");
            let keys = [
                "device",
                "address",
                "total_size",
                "allocated_size",
                "active_size",
                "requested_size",
                "stream",
                "segment_type",
                "segment_pool_id",
                "is_expandable",
            ];
            self.same(t, o, &keys, &what);
            c.segment_frames += usize::from(self.same_frames(t, o, &what));
            c.segments += 1;
            c.expandable += usize::from(Pair::show(self.theirs, t, "is_expandable") == "Bool(true)");
            c.private += usize::from(Pair::show(self.theirs, t, "segment_pool_id") != "[Int(0), Int(0)]");
            self.blocks(t, o, &what, c);
        }
    }

    fn blocks(&self, t: Value, o: Value, what: &str, c: &mut Compared) {
        let (theirs, ours) = self.list(t, o, "blocks");
        assert_eq!(ours.len(), theirs.len(), "{}: blocks of {what}", self.place);
        for (j, (&t, &o)) in theirs.iter().zip(&ours).enumerate() {
            let what = format!("block {j} of {what}");
            self.same(t, o, &["address", "size", "state"], &what);
            let state = Pair::show(self.theirs, t, "state");
            if state == "inactive" {
                continue;
            }
            self.same(t, o, &["requested_size"], &what);
            c.block_frames += usize::from(self.same_frames(t, o, &what));
            c.active += 1;
            c.pending += usize::from(state == "active_pending_free");
        }
    }

    fn traces(&self, c: &mut Compared) {
        let (theirs, ours) = self.list(self.theirs.root(), self.ours.root(), "device_traces");
        for (device, &t) in theirs.iter().enumerate() {
            let t = self.theirs.list(t).expect("a history");
            let mut o = ours.get(device).and_then(|&o| self.ours.list(o)).unwrap_or_default();
            // That torch took its snapshot is told as well, but it happened after the moment that it shows.
            while let Some(&last) = o.last()
                && o.len() > t.len()
                && Pair::show(self.ours, last, "action") == "snapshot"
            {
                o.pop();
            }
            for (i, (&t, &o)) in t.iter().zip(&o).enumerate() {
                let what = format!("entry {i} of device {device}");
                self.same(
                    t,
                    o,
                    &["action", "addr", "device_free", "size", "stream", "compile_context"],
                    &what,
                );
                c.entry_frames += usize::from(self.same_frames(t, o, &what));
                let action = Pair::show(self.theirs, t, "action");
                c.completed_frames += usize::from(action == "free_completed");
                c.released_frames +=
                    usize::from(["segment_free", "segment_unmap"].contains(&action.as_str()));
                c.entries += 1;
                c.ooms += usize::from(action == "oom");
            }
            assert_eq!(o.len(), t.len(), "{}: entries of device {device}", self.place);
            c.devices += usize::from(!t.is_empty());
        }
    }
}

/// Compares one moment.
#[track_caller]
fn equal(theirs: &Path, recording: &Path, at: &str) -> Compared {
    let ours = recording.with_extension(format!("{}.pickle", at.replace(':', "-")));
    let words = [
        "snapshot".as_ref(),
        recording.as_os_str(),
        "--at".as_ref(),
        at.as_ref(),
        "-o".as_ref(),
        ours.as_ref(),
    ];
    support::strandline(&words);
    let mode = std::fs::metadata(&ours).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    let (theirs, ours) = (tree(theirs), tree(&ours));
    let wrong = validate(&ours);
    assert!(wrong.is_empty(), "{at}:\n{}", wrong.join("\n"));
    let mut compared = Compared::default();
    let pair = Pair { theirs: &theirs, ours: &ours, place: at.into() };
    pair.segments(&mut compared);
    pair.traces(&mut compared);
    compared
}

/// Runs cases in one process; the recording, and a comparison by moment.
#[track_caller]
fn run(cases: &[&str], devices: u32, conf: &str) -> (Folder, impl Fn(&str, &str) -> Compared) {
    let folder = Folder::new("snapshots");
    let mut job = Job::python(&folder, "tests/python/snapshot_equality.py", &[folder.path()]);
    for case in cases {
        job = job.arg(case);
    }
    let ran = job.devices(devices).env("PYTORCH_ALLOC_CONF", conf).run().succeeded();
    assert_eq!(ran.theirs(), "", "the job's own stderr");
    let (recording, place) = (ran.recording(), folder.path().to_path_buf());
    (folder, move |name, at| equal(&place.join(format!("{name}.pickle")), &recording, at))
}

/// torch's own reader of snapshots takes each of ours, in every way it has.
#[track_caller]
fn readable(folder: &Folder) {
    let mut reader = std::process::Command::new(support::python());
    reader.arg(support::root().join("tests/python/memory_viz.py")).args(folder.files(".pickle"));
    let out = reader.output().expect("python starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.lines().filter(|l| l.contains("recording.")).count() >= 1, "{text}");
}

#[test]
fn snapshots_are_torchs_own() {
    let (folder, at) = run(&["plain", "streams", "capture", "oom", "devices"], 2, "");
    // A real card may be alone; where there are more, `STRANDLINE_TEST_DEVICES` says so.
    let set = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    let two = set("STRANDLINE_TEST_DEVICES").map_or(set("STRANDLINE_TEST_PYTHON").is_none(), |n| n != "1");
    for (name, moment, least) in [("step1", "step:1", 30), ("step3", "step:3", 100), ("step4", "step:4", 150)]
    {
        let c = at(name, moment);
        assert!(c.entries > least && c.active > 10 && c.entry_frames > least / 2, "{c:?}");
    }
    let c = at("plain", "mark:plain");
    assert!(c.block_frames > 5 && c.segments > 0, "{c:?}");
    let c = at("streams", "mark:streams");
    assert!(c.pending > 2 && c.completed_frames > 20, "{c:?}");
    let c = at("capture", "mark:capture");
    assert!(c.private > 0, "{c:?}");
    let c = at("oom", "mark:oom");
    assert!(c.ooms == 1 && c.segment_frames > 0, "{c:?}");
    // Past steps: one in which a graph was captured, one in which an allocation failed, one that two devices had a part in.
    let c = at("step6", "step:6");
    assert!(c.private > 0 && c.pending == 0, "{c:?}");
    let c = at("step7", "step:7");
    assert!(c.ooms == 1 && c.private > 0 && c.released_frames > 5, "{c:?}");
    let c = at("step8", "step:8");
    assert!(c.devices == 2 || !two, "{c:?}");
    let c = at("end", "end");
    assert!(c.entries > 500 && c.released_frames > 0, "{c:?}");
    assert!(c.devices == 2 || !two, "{c:?}");
    readable(&folder);
}

#[test]
fn snapshots_of_expandable_segments_are_torchs_own() {
    let (folder, at) = run(&["expandable"], 1, "expandable_segments:True");
    for (name, moment) in [("step2", "step:2"), ("step3", "step:3"), ("expandable", "mark:expandable")] {
        let c = at(name, moment);
        assert!(c.expandable > 1 && c.entries > 100, "{c:?}");
    }
    readable(&folder);
}

#[test]
fn snapshots_of_graphs_in_expandable_segments_are_torchs_own() {
    let (folder, at) = run(&["plain", "capture"], 1, "expandable_segments:True");
    for (name, moment) in [("capture", "mark:capture"), ("step6", "step:6"), ("end", "end")] {
        let c = at(name, moment);
        assert!(c.private > 0 && c.expandable > 1, "{c:?}");
    }
    readable(&folder);
}
