//! Folders of `PYTHONPATH` that packages were installed into (`pip install --target`), so that their lines are not taken for the user's own.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use strandline_core::event::PackageFolders;

/// Entries of a folder that are looked at: one with more is not of packages.
const ENTRIES: usize = 4_096;
/// What lies in a project's own folder.
const PROJECT: [&str; 4] = [".git", "pyproject.toml", "setup.py", "setup.cfg"];

static FOLDERS: OnceLock<PackageFolders> = OnceLock::new();

/// Whether a file is of an installed package or of Python's library, as far as is known by now.
pub(crate) fn have(file: &str) -> bool {
    match FOLDERS.get() {
        Some(folders) => folders.has(file),
        None => PackageFolders::default().has(file),
    }
}

/// Looks through `PYTHONPATH`, once, for the writing thread; what it finds is a fact of the recording.
pub(crate) fn look() -> impl FnMut(u64) -> Option<Value> + Send {
    let path = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let mut cwd = std::env::current_dir().ok();
    move |_| {
        let cwd = cwd.take()?;
        let folders = std::env::split_paths(&path).filter_map(|entry| packages_in(&entry, &cwd)).collect();
        FOLDERS.get_or_init(|| PackageFolders::new(folders)).to_facts()
    }
}

/// The folder's absolute path, if packages were installed into it and it is not what somebody works in.
fn packages_in(entry: &Path, cwd: &Path) -> Option<String> {
    // As Python makes it absolute, without a `/` or a `.` at its end.
    let folder: PathBuf = cwd.join(entry).components().collect();
    if entry.as_os_str().is_empty()
        || cwd.starts_with(&folder)
        || PROJECT.iter().any(|p| folder.join(p).exists())
    {
        return None;
    }
    let mut entries = std::fs::read_dir(&folder).ok()?.take(ENTRIES).flatten();
    let is_installed = entries.any(|e| e.file_name().as_encoded_bytes().ends_with(b".dist-info"));
    is_installed.then(|| folder.to_str().map(str::to_owned)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pip_filled_is_of_packages_and_what_somebody_works_in_is_not() {
        let root = std::env::temp_dir().join(format!("strandline-packages-{}", std::process::id()));
        let (libs, project, plain) = (root.join("libs"), root.join("project"), root.join("plain"));
        for folder in [&libs, &project] {
            std::fs::create_dir_all(folder.join("trl-1.0.dist-info")).expect("a folder");
        }
        std::fs::create_dir_all(&plain).expect("a folder");
        std::fs::write(project.join("pyproject.toml"), "").expect("a file");
        let found = |entry: &Path, cwd: &Path| packages_in(entry, cwd);
        let told = libs.to_str().map(str::to_owned);
        assert_eq!(found(&libs, &plain), told);
        assert_eq!(found(Path::new("./libs/"), &root), told, "a path from the working directory");
        assert_eq!(found(&libs, &libs), None, "the working directory");
        assert_eq!(found(&libs, &libs.join("deeper")), None, "above the working directory");
        assert_eq!(found(&project, &plain), None);
        assert_eq!(found(&plain, &root), None);
        assert_eq!(found(&root.join("none"), &root), None);
        assert_eq!(found(Path::new(""), &libs), None);
        std::fs::remove_dir_all(root).expect("removed");
    }
}
