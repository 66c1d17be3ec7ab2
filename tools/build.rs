//! Builds what the command carries inside itself: the preload and the simulated device.
//!
//! `cargo run`, `cargo install --locked --path tools` and `cargo test` must give a command that works, with nothing else typed,
//! so the two shared libraries are built here, by a cargo of their own in a target directory of their own (no lock is
//! shared with the cargo that runs this script). That directory is one for every run of this script in a profile: clippy, tests
//! and the command each have a run of their own. The results are copied into OUT_DIR for `include_bytes!` in `src/embedded.rs`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library to carry: package, cargo profile, folder of that profile, file name, name for `env!`.
struct Part {
    package: &'static str,
    profile: &'static str,
    file: &'static str,
    variable: &'static str,
}

const PARTS: [Part; 2] = [
    Part {
        package: "strandline-preload",
        profile: "preload",
        file: "libstrandline.so",
        variable: "EMBEDDED_PRELOAD",
    },
    Part {
        package: "strandline-simcuda",
        profile: "release",
        file: "libstrandline_simcuda.so",
        variable: "EMBEDDED_SIMCUDA",
    },
];

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // OUT_DIR is target/PROFILE/build/strandline-tools-HASH/out.
    let target = out.ancestors().nth(3).expect("a folder of the profile").join("embedded");
    for path in ["preload", "src", "tools/simcuda", "Cargo.toml", "Cargo.lock", "tools/build.rs"] {
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo:rerun-if-env-changed=RUSTFLAGS");
    for part in &PARTS {
        let built = build(part, &root, &target);
        let copy = out.join(part.file);
        std::fs::copy(&built, &copy).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
        println!("cargo:rustc-env={}={}", part.variable, copy.display());
    }
}

/// Builds one part, stripped, and returns where it lies.
fn build(part: &Part, root: &Path, target: &Path) -> PathBuf {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    clean(&mut cargo);
    let profile = part.profile.to_uppercase();
    cargo
        .current_dir(root)
        .args(["build", "--quiet", "--lib", "-p", part.package, "--profile", part.profile])
        .arg("--target-dir")
        .arg(target)
        .env(format!("CARGO_PROFILE_{profile}_STRIP"), "symbols")
        .env(format!("CARGO_PROFILE_{profile}_DEBUG"), "false")
        // The preload has a profile of its own; the simulator need not be the fastest, but quickly built.
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    if part.profile == "release" {
        cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
    }
    let mut folder = target.to_path_buf();
    let (host, triple) = (env::var("HOST"), env::var("TARGET"));
    if let (Ok(host), Ok(triple)) = (host, triple)
        && host != triple
    {
        cargo.args(["--target", &triple]);
        folder.push(triple);
    }
    let status = cargo.status().unwrap_or_else(|e| panic!("cannot start cargo for {}: {e}", part.package));
    assert!(status.success(), "{} did not build (see above): the command carries it inside", part.package);
    folder.join(part.profile).join(part.file)
}

/// Takes away what the outer cargo has set for this script (its profile, its features, clippy's wrapper), and keeps
/// what the user has: the home, the toolchain, the network switch, the flags.
fn clean(cargo: &mut Command) {
    const KEEP: [&str; 4] =
        ["CARGO_HOME", "CARGO_ENCODED_RUSTFLAGS", "CARGO_NET_OFFLINE", "CARGO_TERM_COLOR"];
    const DROP: [&str; 11] = [
        "RUSTC",
        "RUSTDOC",
        "RUSTC_WRAPPER_REAL",
        "RUSTC_WORKSPACE_WRAPPER",
        "OUT_DIR",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "NUM_JOBS",
    ];
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let ours =
            text.starts_with("CARGO_") && !text.starts_with("CARGO_REGISTRIES_") && !KEEP.contains(&text);
        if ours || text.starts_with("DEP_") || DROP.contains(&text) {
            cargo.env_remove(&name);
        }
    }
}
