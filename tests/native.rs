//! Native frames against those of PyTorch's own history (`stacks="all"`) of the same run, allocation by allocation.
//!
//! Torch gathers its stack in another place of the allocator than we do: what is in `libc10_cuda.so` is left out of ours, and
//! torch may have a few frames more there, without names. From the allocator's caller to the outermost frame both are
//! compared whole, but for our own hooks.

mod support;

use serde_json::Value;
use std::collections::HashMap;
use strandline::event::Body;
use support::{Folder, Job, Recording, strandline};

/// Frames that torch may have within its allocator and its own unwinder.
const TORCHS_OWN: std::ops::RangeInclusive<usize> = 2..=8;

/// A function's name without its arguments, whichever demangler wrote it.
fn name(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let end = plain.find(['(', '<', '[']).unwrap_or(plain.len());
    plain[..end].to_string()
}

/// What `strandline dump` calls the native frames of each stack.
fn stacks(path: &std::path::Path) -> HashMap<u64, Vec<String>> {
    let text = strandline(&["dump".as_ref(), path.as_os_str(), "--format".as_ref(), "json".as_ref()]);
    let rows = text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON lines"));
    let is_allocator = |f: &&Value| f["module"].as_str().is_some_and(|m| m.ends_with("/libc10_cuda.so"));
    let function = |f: &Value| {
        // The last is the function that the address is in, the others were inlined into it.
        let last = f["functions"].as_array().and_then(|all| all.last());
        name(last.and_then(|l| l["function"].as_str()).unwrap_or_default())
    };
    rows.filter(|r| r["what"] == "stack")
        .map(|r| {
            let frames = r["native"].as_array().expect("frames").iter();
            let frames = frames.skip_while(is_allocator).map(function).collect();
            (r["stack"].as_u64().expect("a number"), frames)
        })
        .collect()
}

#[test]
fn native_frames_are_torchs() {
    let folder = Folder::new("native");
    let history = folder.join("history.jsonl");
    let ran = Job::python(&folder, "tests/python/native.py", &[history.as_os_str()])
        .env("STRANDLINE_STACKS", "both")
        .env("TORCH_SYMBOLIZE_MODE", "dladdr")
        .run()
        .succeeded();
    assert_eq!(ran.theirs(), "", "the job's own stderr");
    let path = ran.recording();
    let recording = Recording::read(&path).whole();
    assert_eq!(recording.fact("stacks"), "both");
    let ours = stacks(&path);
    let allocated = recording.events.iter().filter_map(|e| match &e.body {
        Body::Alloc(b) => Some(b),
        _ => None,
    });
    let text = std::fs::read_to_string(&history).expect("torch's history");
    let (mut compared, mut unnamed, mut python) = (0, 0, 0);
    for (row, block) in text.lines().zip(allocated) {
        let theirs: Value = serde_json::from_str(row).expect("JSON lines");
        assert_eq!(
            (theirs["addr"].as_u64(), theirs["size"].as_u64()),
            (Some(block.addr.0), Some(block.size.0))
        );
        let theirs = theirs["frames"].as_array().expect("frames").iter().filter_map(Value::as_str);
        let mut theirs: Vec<String> = theirs.map(name).collect();
        // Hooks of ours that call on have the names of what they call, and are left out of our own stacks.
        theirs.dedup_by(|a, b| a == b && a.starts_with("torch::autograd::Engine::"));
        let ours = ours.get(&block.stack.0.into()).cloned().unwrap_or_default();
        let more = theirs.len().saturating_sub(ours.len());
        let both = || format!("ours {ours:#?}\ntorch's {theirs:#?}");
        assert!(ours.len() > 2 && TORCHS_OWN.contains(&more), "{}", both());
        let unknown = |f: &String| f.is_empty() || f.contains("??");
        let own =
            |f: &String| unknown(f) || f.starts_with("torch::unwind") || f.contains("CapturedTraceback");
        assert!(theirs[..more].iter().all(own), "{}", both());
        for (ours_is, torchs) in ours.iter().zip(&theirs[more..]) {
            // dladdr knows exported functions alone; of others torch says nothing.
            if unknown(torchs) {
                unnamed += 1;
            } else {
                assert_eq!(ours_is, torchs, "{}", both());
                compared += 1;
            }
        }
        python += usize::from(!recording.frames(block.stack).is_empty());
    }
    assert!(
        compared > 1000 && python > 30,
        "{compared} frames compared, {unnamed} without a name, {python} with Python"
    );
}
