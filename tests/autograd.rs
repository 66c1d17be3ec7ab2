//! What backward allocates: by which node of the graph, in the backward that was called where. torch's own names of its
//! nodes are the oracle.

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use strandline::event::{Block, Body};
use support::{Folder, Job, Recording, report, strandline};

/// What torch calls a node that Python implements, by the class of the function; we know only that it is one.
const IN_PYTHON: &str = "PyNode";

#[test]
fn what_backward_allocates_is_told_by_node_and_caller() {
    let folder = Folder::new("autograd");
    let ran = Job::python::<&str>(&folder, "tests/python/autograd.py", &[]).run().succeeded();
    let truth: Value = serde_json::from_str(&ran.stdout()).expect("JSON");
    let mut theirs: BTreeSet<&str> =
        truth["nodes"].as_array().expect("nodes").iter().filter_map(Value::as_str).collect();
    assert!(theirs.remove("TwiceBackward") && theirs.remove("CheckpointFunctionBackward"), "{theirs:?}");
    theirs.insert(IN_PYTHON);
    let line = truth["line"].as_u64().expect("a line") as u32;

    let path = ran.recording();
    let recording = Recording::read(&path).whole();
    let names = recording.reader.names();
    let (mut ours, mut without) = (BTreeSet::new(), 0);
    for e in &recording.events {
        match &e.body {
            Body::Alloc(Block { phase, stack, .. }) => match names.node(*stack) {
                Some(node) => {
                    assert!(phase.backward && theirs.contains(node), "{node} is not one of {theirs:?}");
                    ours.insert(node.to_string());
                }
                // The engine's own gradient of the loss, which no node makes, has the caller's frames.
                None if phase.backward => without += usize::from(recording.frames(*stack).is_empty()),
                None => {}
            },
            Body::BackwardBegin { stack, nested: false } => {
                let frames = recording.frames(*stack);
                let called =
                    |(file, at, _): &(String, u32, String)| file.ends_with("autograd.py") && *at == line;
                assert!(frames.iter().any(called), "{frames:?}");
            }
            _ => {}
        }
    }
    for must in ["MmBackward0", "ReluBackward0", IN_PYTHON] {
        assert!(ours.contains(must), "no {must} in {ours:?}");
    }
    assert_eq!(without, 0, "allocations of a backward of which nothing is known");

    let said = report(&path).process;
    let frames: Vec<&str> = said["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|f| f["sites"].as_array().into_iter().flatten())
        .filter_map(|s| s["frames"][0]["function"].as_str())
        .collect();
    assert!(frames.contains(&"MmBackward0"), "the kept gradients are a product's: {}", said["findings"]);
    let text = strandline(&["report".as_ref(), path.as_os_str()]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("by MmBackward0 in the backward pass started at your "), "{text}");
}
