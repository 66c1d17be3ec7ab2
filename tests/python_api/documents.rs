//! The examples in Python of documents that are about something else: each within a job that gives it what it needs.

use super::blocks;
use super::support::{Folder, Job, cache, command, python, report, root};
use serde_json::json;
use std::process::Command;

/// What a job around an example of another document does.
const AROUND: &str = r#"
import torch
model = torch.nn.Linear(64, 64)
def train(steps=1):
    for _ in range(steps):
        model.cuda()(torch.randn(8, 64, device="cuda")).sum().backward()
"#;

/// Instead of Ray: runs the worker's program as a `runtime_env` says. `tests/launchers/ray_leak.py` runs it in the real one.
const RAY: &str = r#"
import os, shlex, subprocess, sys
def init(runtime_env):
    program = shlex.split(runtime_env.get("py_executable", sys.executable))
    subprocess.run([*program, "worker.py"], check=True, env={**os.environ, **runtime_env["env_vars"]})
"#;

/// The examples of other documents do what they say there.
#[test]
fn the_examples_of_other_documents_run() {
    let runs = |document: &str, begins: &str, preload: bool, script: &dyn Fn(&str) -> String| {
        let folder = Folder::new("api-docs");
        let all = blocks(document, "python");
        let [example] = &all.iter().filter(|b| b.starts_with(begins)).collect::<Vec<_>>()[..] else {
            panic!("{document}: one example begins with {begins}: {all:?}")
        };
        std::fs::write(folder.join("job.py"), script(example)).expect("a script");
        std::fs::write(folder.join("worker.py"), format!("{AROUND}train(12)")).expect("a script");
        std::fs::write(folder.join("ray.py"), RAY).expect("a module");
        let folders = [command(), python()].map(|p| p.parent().expect("a folder").to_path_buf());
        let path = std::env::join_paths(folders.into_iter().chain(["/usr/bin".into(), "/bin".into()]))
            .expect("a path");
        let job = Job::program(&folder, python()).arg("-u").arg("job.py").env("PATH", path);
        let job = job.env("PYTHONPATH", root().join("tools/python")).env("STRANDLINE_BIN", command());
        let job = if preload { job } else { job.env("LD_PRELOAD", "").env("STRANDLINE_OUT", "") };
        let ran = job.env("XDG_CACHE_HOME", cache()).run().succeeded();
        (folder, ran)
    };
    let process = |path: &std::path::Path| report(path).process;

    let script = |example: &str| {
        format!("{AROUND}for n in range(1, 9):\n    train()\n    {}", example.replace('\n', "\n    "))
    };
    let (_folder, ran) = runs("docs/install.md", "import ctypes", true, &script);
    let told = process(&ran.recording());
    assert_eq!((&told["steps"], &told["step_source"]), (&json!(8), &json!("manual")), "{told:#}");

    let (folder, ran) = runs("docs/doors.md", "import strandline", false, &|example| {
        format!("{example}\n{AROUND}train(8)\nprint(strandline.recording())")
    });
    let told = process(ran.stdout().trim().as_ref());
    assert_eq!(
        (&told["allocator"], &told["coverage"]["level"]),
        (&json!("pluggable"), &json!("blocks")),
        "{told:#}"
    );
    drop(folder);

    let (_folder, ran) = runs("docs/launchers.md", "import strandline", false, &|example| {
        format!("{AROUND}train(3)\n{example}\ntrain(8)\nprint(path)")
    });
    let told = process(ran.stdout().trim().as_ref());
    assert_eq!((&told["steps"], &told["coverage"]["level"]), (&json!(8), &json!("blocks")), "{told:#}");

    let made = Folder::new("api-docs-ray");
    let mut env = Command::new(command());
    let env = env
        .args(["env", "--format", "ray", "-o"])
        .arg(made.join("out"))
        .env("XDG_CACHE_HOME", cache())
        .output()
        .expect("it starts");
    let (folder, _) = runs("docs/fleet.md", "ray.init", false, &|example| {
        let [begin, end] = example.split("{\"env_vars\": {...}}").collect::<Vec<_>>()[..] else {
            panic!("{example}")
        };
        format!("import ray\n{begin}{}{end}", String::from_utf8_lossy(&env.stdout).trim())
    });
    let recordings = [folder.files(".strand"), made.files(".strand")].concat();
    assert_eq!(recordings.len(), 2, "one of each way: {recordings:?}");
    for recording in &recordings {
        assert_eq!(process(recording)["steps"], json!(12), "{}", recording.display());
    }
}
