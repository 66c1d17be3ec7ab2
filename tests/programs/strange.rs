//! Threads in strange states call CUDA: no Python state, one without a frame, tiny stacks, handlers, ends of threads and processes. The
//! job must do what it does without us.

use crate::support::{Folder, Job, Ran, Recording, libraries, preload_so, root};
use crate::{same_as_a_bare_child, same_with_and_without};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles one of the C sources of this folder to a shared library.
fn library(folder: &Folder, source: &str) -> PathBuf {
    let library = folder.join(&format!("lib{source}.so"));
    let source = root().join(format!("tests/programs/{source}.c"));
    let status = Command::new("cc").args(["-w", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(status.expect("cc starts").success());
    library
}

/// Functions of `strange.c` do what they do without us.
#[track_caller]
fn strange(when: &str, functions: &[&str]) -> Ran {
    let folder = Folder::new("strange");
    let library = library(&folder, "strange");
    let library = library.to_str().expect("UTF-8");
    let ends = ["still_running", "static_destructors"].iter().any(|f| functions[0].starts_with(f));
    let same = if when == "later" || ends { same_as_a_bare_child } else { same_with_and_without };
    same(&folder, "strange.py", &[&[library, when], functions].concat())
}

#[test]
fn threads_in_strange_states_call_cuda() {
    let all = [
        "no_python:0",
        "no_frame:0",
        "small_stack:16384",
        "signal_handler:0",
        "alternate_stack:16384",
        "context:65536",
        "tls_destructor:0",
        "many_threads:50",
        "forks:5",
        "fork_in_a_hook:30",
        "vforks:5",
        "raw_forks:5",
        "raw_clones:5",
        "cancelled:0",
        "cancelled:1",
        "callback:0",
        "long_jump:20",
        "null_arguments:0",
        "at_exit:0",
    ];
    let ran = strange("later", &all).succeeded();
    assert!(ran.stdout().ends_with("alive\n"), "{}", ran.stdout());
}

#[test]
fn the_first_cuda_call_comes_from_a_thread_in_a_strange_state() {
    for function in
        ["no_frame:0", "small_stack:16384", "alternate_stack:4000", "context:16384", "tls_destructor:0"]
    {
        println!("{function}");
        strange("early", &[function]);
    }
}

#[test]
fn threads_still_call_cuda_when_the_process_ends() {
    strange("later", &["still_running:3"]).succeeded();
}

/// An object's, as C++ registers it, and the library's own.
#[test]
fn static_destructors_call_cuda() {
    for when in ["later", "early"] {
        let ran = strange(when, &["static_destructors:0"]).succeeded();
        let told = ran.theirs();
        assert!(
            told.contains("an object is destroyed") && told.contains("the library is destroyed"),
            "{told}"
        );
    }
}

#[test]
fn threads_that_initialize_cuda_at_once_do_not_wait_for_each_other() {
    let folder = Folder::new("strange");
    same_with_and_without(&folder, "initializes.py", &[]).succeeded();
}

/// PyTorch holds a lock there: Python of ours, which lets go of the GIL now and then, must not run inside.
#[test]
fn cuda_is_initialized_without_letting_go_of_the_gil() {
    let folder = Folder::new("strange");
    let ran = same_with_and_without(&folder, "keeps_the_gil.py", &[]).succeeded();
    assert_eq!(ran.stdout(), "another thread ran inside: False\n");
    assert_eq!(Recording::read(&ran.recording()).whole().allocated(), [4]);
}

#[test]
fn a_tracer_and_a_profiler_meet_no_code_of_ours() {
    for what in ["trace", "profile"] {
        let folder = Folder::new("strange");
        let ran = same_with_and_without(&folder, "tracer.py", &[what]).succeeded();
        assert!(ran.stdout().starts_with("still set: True"), "{}", ran.stdout());
    }
}

#[test]
fn libraries_go_while_the_process_runs() {
    let folder = Folder::new("strange");
    let plugin = library(&folder, "plugin");
    let program = folder.join("unloaded");
    let source = root().join("tests/programs/unloaded.c");
    let status = Command::new("cc").args(["-w", "-o"]).arg(&program).arg(source).arg("-ldl").status();
    assert!(status.expect("cc starts").success());
    let driver = libraries().join("../../nvidia/cu13/lib/libcuda.so.1");
    for stacks in ["none", "native", "both"] {
        for rest in [vec!["driver".into()], vec!["code".into()]] {
            let mut rest: Vec<PathBuf> = rest;
            rest.push(driver.clone());
            if rest[0] == Path::new("code") {
                rest.push(plugin.clone());
            }
            let folder = Folder::new("strange");
            let job = |preload: &Path| {
                let job = rest.iter().fold(Job::program(&folder, &program), |j, a| j.arg(a));
                job.env("LD_PRELOAD", preload).env("STRANDLINE_STACKS", stacks).run()
            };
            let (with, without) = (job(preload_so()), job(Path::new("")));
            assert_eq!(with.output.status, without.output.status, "{stacks} {rest:?}: {}", with.stderr());
            assert_eq!(with.stdout(), without.stdout(), "{stacks} {rest:?}");
            assert!(with.succeeded().recording().exists());
        }
    }
}

/// `pthread_cancel` unwinds through our hook where the real function waits in the kernel. Its runtime is a C library of ours, since the simulated
/// device's Rust cannot be ended in the middle.
#[test]
fn threads_are_cancelled_in_the_middle_of_a_call() {
    let folder = Folder::new("strange");
    let compile = |options: &[&str], out: &Path| {
        let status = Command::new("cc").arg("-w").args(options).arg("-o").arg(out).status();
        assert!(status.expect("cc starts").success());
    };
    let source = |name: &str| root().join("tests/programs").join(name).to_string_lossy().into_owned();
    let (runtime, program) = (folder.join("libcudart.so.13"), folder.join("cancelled"));
    compile(&["-shared", "-fPIC", "-Wl,-soname,libcudart.so.13", &source("cancelled_cudart.c")], &runtime);
    let linked = ["-pthread", &source("cancelled.c"), &runtime.to_string_lossy(), "-Wl,-rpath,$ORIGIN"];
    compile(&linked, &program);
    for stacks in ["none", "both"] {
        let job = |preload: &Path| {
            let job = Job::program(&folder, &program);
            job.env("LD_PRELOAD", preload).env("STRANDLINE_STACKS", stacks).run()
        };
        let (without, with) = (job(Path::new("")), job(preload_so()));
        assert_eq!(without.stdout(), "10 in a call\n100 anywhere\n");
        assert_eq!(
            (with.output.status, with.stdout()),
            (without.output.status, without.stdout()),
            "{stacks}"
        );
        assert!(Recording::read(&with.recording()).events.len() > 1000, "it was recorded");
    }
}

#[test]
fn an_out_of_memory_in_a_backward_is_pythons_exception() {
    for how in ["caught", "uncaught"] {
        let folder = Folder::new("strange");
        let ran = same_with_and_without(&folder, "oom_in_backward.py", &[how]);
        assert_eq!(ran.output.status.code(), Some(i32::from(how == "uncaught")), "{}", ran.stderr());
        assert_eq!(ran.stdout().contains("3 out of memory"), how == "caught", "{}", ran.stdout());
    }
}
