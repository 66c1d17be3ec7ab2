//! An interpreter that is not what it says it is: no stacks, one line, and the job goes on.

use crate::support::{Folder, Recording};
use crate::{compare, interpreters, job, refusals};
use strandline::event::Body;

/// What a description is made to say that is not true, as word=value, and what that word is: in 3.13, 3.14 and 3.15.
const LIES: [([&str; 3], &str); 9] = [
    (["0=0"; 3], "the cookie"),
    (["1=0x030800f0"; 3], "the version"),
    (["2=1"; 3], "free-threaded"),
    (["23=80", "26=80", "26=80"], "the current frame"),
    (["29=16", "32=16", "40=16"], "the calling frame"),
    (["30=24", "33=24", "41=24"], "the code object"),
    (["35=120", "40=120", "48=120"], "the file's name"),
    (["43=192", "48=192", "56=192"], "the first instruction"),
    (["43=208", "48=200", "56=200"], "the first instruction"),
];

#[test]
fn a_python_that_does_not_tell_the_truth_has_no_stacks() {
    for with in interpreters::all().iter().filter(|i| i.describes_itself()) {
        let of_version = ["3.13.", "3.14.", "3.15."].iter().position(|v| with.version.starts_with(v));
        for (lies, what) in LIES {
            let folder = Folder::new("lies");
            let lie = lies[of_version.expect("a version that describes itself")];
            let ran = job(&folder, with, "liar.py", lie, &[]).run().succeeded();
            let (compared, without) = compare(&ran, &with.version);
            assert_eq!(compared, 0, "{what}");
            assert!(without > 20, "{what}: {without}");
            assert_eq!(refusals(&ran).len(), 1, "{what}: {:?}", ran.ours());
        }
    }
}

#[test]
fn frames_of_the_job_decide_nothing() {
    for with in interpreters::all().iter().filter(|i| i.is_known()) {
        for (how, way) in ["held", "released"].iter().flat_map(|h| ["traced", "named"].map(|w| (h, w))) {
            let folder = Folder::new("below");
            let ran = job(&folder, with, "below.py", how, &[way]).run().succeeded();
            let what = format!("{} {how} {way}", with.version);
            assert_eq!((ran.stdout(), refusals(&ran)), ("allocated\n".into(), Vec::new()), "{what}");
            let recording = Recording::read(&ran.recording()).whole();
            let has_stack = recording.events.iter().any(|e| match &e.body {
                Body::Alloc(b) => !recording.frames(b.stack).is_empty(),
                _ => false,
            });
            assert!(has_stack, "{what}");
        }
    }
}
