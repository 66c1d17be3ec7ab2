//! What the user says to us, and what we say to the user.

use crate::support::{Folder, Recording};
use crate::{job, same_with_and_without};
use strandline::event::{Body, StackId};

#[test]
fn a_misspelt_variable_is_named_once() {
    let folder = Folder::new("misspelt");
    let ran = job(&folder, "plain.py", &[]).env("STRANDLINE_STAKS", "none").run().succeeded();
    let named: Vec<_> = ran.ours().into_iter().filter(|l| l.contains("STRANDLINE_STAKS")).collect();
    assert_eq!(named.len(), 1);
    assert!(named[0].contains("did you mean STRANDLINE_STACKS?"), "{named:?}");
}

#[test]
fn by_hand_it_says_that_it_attached_and_where_the_recording_is() {
    let folder = Folder::new("lines");
    let ran = job(&folder, "plain.py", &[]).run().succeeded();
    let ours = ran.ours();
    assert_eq!(ours.len(), 2, "{ours:?}");
    let path = ran.recording().display().to_string();
    assert!(ours[0].starts_with("strandline: rank 0 attached, pid ") && ours[0].ends_with(&path), "{ours:?}");
    assert!(ours[0].contains("PyTorch 2."), "{ours:?}");
    assert!(ours[1].contains(&path) && ours[1].contains("strandline report"), "{ours:?}");
}

#[test]
fn quietly_it_says_nothing() {
    let folder = Folder::new("quiet");
    let ran = job(&folder, "plain.py", &[]).env("STRANDLINE_QUIET", "1").run().succeeded();
    assert_eq!(ran.stderr(), "");
    assert!(Recording::read(&ran.recording()).whole().events.len() > 50);
}

#[test]
fn stacks_and_steps_can_be_switched_off() {
    let folder = Folder::new("without");
    let ran = job(&folder, "plain.py", &[])
        .env("STRANDLINE_STACKS", "none")
        .env("STRANDLINE_STEPS", "manual")
        .run_imported()
        .succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    // No block has one. What called CUDA is still told, one native frame each: whose memory it is.
    let names = recording.reader.names();
    let stacks: Vec<StackId> = recording
        .events
        .iter()
        .filter_map(|e| match &e.body {
            Body::Alloc(b) => Some(b.stack),
            _ => None,
        })
        .filter(|s| names.frames(*s).next().is_some() || !names.native(*s).is_empty())
        .collect();
    assert_eq!(stacks, []);
    assert_eq!(names.stack_count(), 1, "the one call that gave torch its segment");
    assert_eq!(recording.count(|b| matches!(b, Body::OptimizerEnd(_))), 0);
    assert_eq!(recording.count(|b| matches!(b, Body::BackwardEnd { .. })), 5, "these need no Python");
    assert_eq!(recording.fact("step_hooks"), "none");
}

#[test]
fn the_c_interface_is_recorded() {
    let folder = Folder::new("manual");
    let ran = job(&folder, "manual.py", &[]).run_imported().succeeded();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(ran.stdout(), format!("before 1 1\nstep 0\nstep 0\nstep 0\nafter 0 2\n{version}\n"));
    let recording = Recording::read(&ran.recording()).whole();
    let steps: Vec<u64> = recording
        .events
        .iter()
        .filter_map(|e| match e.body {
            Body::ManualStep(n) => Some(n),
            _ => None,
        })
        .collect();
    assert_eq!(steps, [1, 2, 3]);
    let marks: Vec<(String, bool)> = recording
        .events
        .iter()
        .filter_map(|e| match e.body {
            Body::Mark { name, phase } => Some((recording.reader.names().text(name)?.to_string(), phase)),
            _ => None,
        })
        .collect();
    let expected =
        [("forward", true), ("forward", true), ("forward", true), ("größe", false), ("snapshot 1", false)];
    assert_eq!(marks, expected.map(|(n, p)| (n.to_string(), p)));
    assert_eq!(recording.fact("snapshot_request")["path"], "x.pickle");
}

#[test]
fn a_scalers_update_is_seen_whether_or_not_its_optimizer_ran() {
    let folder = Folder::new("scaler");
    let ran = same_with_and_without(&folder, "scaler.py", &[]).succeeded();
    let recording = Recording::read(&ran.recording()).whole();
    assert_eq!(recording.count(|b| matches!(b, Body::ScalerUpdate)), 3);
}
