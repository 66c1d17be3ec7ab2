//! An interpreter that is not what it says it is: no stacks, one line, and the job goes on.

use crate::support::Folder;
use crate::{compare, interpreters, job, refusals};

/// What a description is made to say that is not true, as word=value, and what that word is.
const LIES: [(&str, &str); 8] = [
    ("0=0", "the cookie"),
    ("1=0x030800f0", "the version"),
    ("2=1", "free-threaded"),
    ("23=80", "the current frame"),
    ("29=16", "the calling frame"),
    ("30=24", "the code object"),
    ("35=120", "the file's name"),
    ("43=192", "the first instruction"),
];

#[test]
fn a_python_that_does_not_tell_the_truth_has_no_stacks() {
    for with in interpreters::all().iter().filter(|i| i.describes_itself() && i.version.starts_with("3.13."))
    {
        for (lie, what) in LIES {
            let folder = Folder::new("lies");
            let ran = job(&folder, with, "liar.py", lie, &[]).run().succeeded();
            let (compared, without) = compare(&ran, &with.version);
            assert_eq!(compared, 0, "{what}");
            assert!(without > 20, "{what}: {without}");
            assert_eq!(refusals(&ran).len(), 1, "{what}: {:?}", ran.ours());
        }
    }
}
