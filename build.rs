//! Provenance: which source this build comes from, so that a recording can name the shim that wrote it.

use std::path::Path;
use std::process::Command;

fn main() {
    // Every commit moves the log. Only what is shipped must know the very commit: a build for development would be made
    // anew after each.
    let shipped = std::env::var("PROFILE").is_ok_and(|p| p == "release");
    for file in if shipped { &["HEAD", "logs/HEAD"][..] } else { &["HEAD"] } {
        // Where they lie is git's business (a work tree has its own place). To watch one that is not there, as in an exported
        // source, would be to build everything anew each time.
        let path = git(&["rev-parse", "--git-path", file]);
        if let Some(path) = path.filter(|p| Path::new(p).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rerun-if-changed=build.rs");
    let source = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_string());
    println!("cargo:rustc-env=STRANDLINE_SOURCE={source}");
}

/// What git says; `None` where it says nothing.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string()).filter(|s| !s.is_empty())
}
