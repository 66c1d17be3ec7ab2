//! leakbench on the simulated device: real leaks and real controls, each bare and recorded, judged against their ground truth.

mod support;

use std::process::{Command, Stdio};
use support::{Folder, cache, command, root, strandline};

#[test]
fn every_leak_is_named_and_no_control_is() {
    let folder = Folder::new("leakbench");
    let python = match std::env::var_os("STRANDLINE_TEST_PYTHON").filter(|p| !p.is_empty()) {
        Some(python) => python,
        None => strandline(&["simulate", "--with-transformers", "--python"]).trim_end().into(),
    };
    let mut compare = Command::new(&python);
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("STRANDLINE_")) {
        compare.env_remove(name);
    }
    compare.arg("-u").arg(root().join("tests/leakbench/compare.py"));
    compare.arg("--strandline").arg(command()).arg("--python").arg(&python);
    compare.arg("--wheels").arg(cache().join("wheels")).arg("--out").arg(folder.path());
    compare.args(["--simulated", "--jobs", "2", "--bare", "1"]);
    compare.env("XDG_CACHE_HOME", cache()).env("STRANDLINE_TAIL", folder.path()).env_remove("LD_PRELOAD");
    let status = compare.stdin(Stdio::null()).status().expect("python starts");
    println!("{}", std::fs::read_to_string(folder.join("table.md")).unwrap_or_default());
    assert!(status.success(), "see above: the lines that begin with BAD");
}
