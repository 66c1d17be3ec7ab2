//! Packages of the package index that a test needs, installed once.

use super::{cache, python};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A folder with these packages, for the tests' Python; `None`, and a line that says so, where `STRANDLINE_TEST_PYTHON` names another one.
/// The folder is made once: other packages need another name.
pub(crate) fn of_the_index(name: &str, packages: &[&str]) -> Option<PathBuf> {
    Some(installed(name, packages)?.unwrap_or_else(|e| panic!("pip: {e}")))
}

/// The same where a download that fails fails no test: `None` then as well, and a line with what pip said.
pub(crate) fn if_they_can_be_had(name: &str, packages: &[&str]) -> Option<PathBuf> {
    installed(name, packages)?.map_err(|e| println!("skipped: pip: {e}")).ok()
}

fn installed(name: &str, packages: &[&str]) -> Option<Result<PathBuf, String>> {
    if std::env::var_os("STRANDLINE_TEST_PYTHON").is_some_and(|v| !v.is_empty()) {
        println!("skipped: STRANDLINE_TEST_PYTHON names a Python that has its own packages");
        return None;
    }
    let folder = cache().join(name);
    if !folder.exists() {
        let part = cache().join(format!("{name}-part-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&part);
        let mut pip = Command::new(python());
        pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--target"]).arg(&part);
        let output = pip.args(packages).stdin(Stdio::null()).output().expect("pip starts");
        if !output.status.success() {
            let _ = std::fs::remove_dir_all(&part);
            return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        // Whoever is first; what another process has put there is the same.
        let _ = std::fs::rename(&part, &folder);
        let _ = std::fs::remove_dir_all(&part);
    }
    Some(Ok(folder))
}
