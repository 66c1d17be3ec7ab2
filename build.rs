//! Provenance: which source this build comes from, so that a recording can name the shim that wrote it.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=.git/HEAD");
    // Every commit moves this file. Only what is shipped must know the very commit: a build for development would be made
    // anew after each.
    if std::env::var("PROFILE").is_ok_and(|p| p == "release")
        && std::path::Path::new(".git/logs/HEAD").exists()
    {
        println!("cargo:rerun-if-changed=.git/logs/HEAD");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let git = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()
        .ok()
        .filter(|o| o.status.success())
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string())
        .filter(|s| !s.is_empty())
        .unwrap_or_else(|| "unknown".to_string());
    println!("cargo:rustc-env=STRANDLINE_SOURCE={git}");
}
