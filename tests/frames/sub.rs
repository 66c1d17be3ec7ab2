//! Sub-interpreters: right or absent, never wrong.

use crate::support::Folder;
use crate::{compare, interpreters, job};

#[test]
fn frames_in_and_beside_sub_interpreters_are_right_or_absent() {
    let mut told = Vec::new();
    for with in interpreters::all().iter().filter(|i| i.is_known()) {
        let folder = Folder::new("sub");
        let ran = job(&folder, with, "sub.py", "held", &[]).run().succeeded();
        let (compared, without) = compare(&ran, &with.version);
        // Before and after there is only one interpreter.
        assert!(compared >= 48, "{}: {compared} compared, {without} without", with.version);
        // From 3.12 on a thread is told where it is.
        let knows = !["3.9.", "3.10.", "3.11."].iter().any(|v| with.version.starts_with(v));
        assert_eq!(without == 0, knows, "{}: {compared} compared, {without} without", with.version);
        told.push(format!("{} ({compared} right, {without} absent)", with.version));
    }
    println!("beside sub-interpreters: {}", told.join(", "));
}
