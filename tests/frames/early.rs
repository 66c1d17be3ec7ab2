//! CUDA is called before the interpreter begins: by a library that is loaded with it, or by a program that brings it along.

use crate::support::{Folder, Job, Recording, libraries, preload_so, root};
use crate::{interpreters, job};
use std::path::Path;
use std::process::Command;

/// Without us and with us, a program that loads `early.c`'s library.
#[track_caller]
fn both(library: &Path, make: impl Fn(&Folder) -> Job) -> (Folder, crate::Ran) {
    let cuda = libraries().join("../../nvidia/cu13/lib");
    let run = |preload: &str| {
        let folder = Folder::new("early");
        let job = make(&folder)
            // The last one is initialized first.
            .env("LD_PRELOAD", format!("{} {preload}", library.display()))
            .env("STRANDLINE_TEST_DRIVER", cuda.join("libcuda.so.1"))
            .env("STRANDLINE_TEST_RUNTIME", cuda.join("libcudart.so.13"));
        let ran = job.run();
        (folder, ran)
    };
    let ((_folder, without), (folder, with)) = (run(""), run(&preload_so().to_string_lossy()));
    assert!(without.stdout().starts_with("before Python: 0\n"), "{}", without.stderr());
    assert_eq!((with.output.status, with.stdout()), (without.output.status, without.stdout()));
    (folder, with)
}

#[test]
fn cuda_is_called_before_the_interpreter_begins() {
    let built = Folder::new("early");
    let library = built.join("libearly.so");
    let source = root().join("tests/frames/early.c");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(status.expect("cc starts").success());
    for with in interpreters::all() {
        // One that begins, and is proved then; and one that never does.
        let begins = ["wait", "plain"];
        let (_folder, ran) = both(&library, |f| job(f, with, "program.py", "released", &begins));
        let recording = Recording::read(&ran.succeeded().recording()).whole();
        let has_stack = recording.events.iter().any(|e| match &e.body {
            strandline::event::Body::Alloc(b) => !recording.frames(b.stack).is_empty(),
            _ => false,
        });
        assert_eq!(has_stack, with.is_known(), "{}", with.version);
        let (_folder, ran) = both(&library, |f| Job::program(f, &with.path).arg("--version"));
        assert!(ran.succeeded().recording().exists(), "{}", with.version);
    }
}
