//! What the tests of the command share: the built command, and folders of their own.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The command, built as it is now. It belongs to another package than this test, so cargo has not built it for us.
pub fn strandline() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.current_dir(root()).args([
            "build",
            "--quiet",
            "-p",
            "strandline-tools",
            "--message-format=json",
        ]);
        // Of this test's package, and not of the build: `ring` would be built anew, and all that needs it.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|begin| name.to_string_lossy().starts_with(begin))
            {
                build.env_remove(name);
            }
        }
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let output = build.output().expect("cargo starts");
        assert!(
            output.status.success(),
            "the command does not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let executable = text.lines().rev().find_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            (message["target"]["name"] == "strandline")
                .then(|| message["executable"].as_str().map(PathBuf::from))?
        });
        executable.expect("cargo names the executable")
    })
}

/// A new empty folder, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it.
    pub fn new(name: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("strandline-{name}-{}-{number}", std::process::id()));
        // A test that was killed in an earlier process of our number has left its own.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary folder can be written");
        Folder(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file in an own folder can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
