//! The shared libraries that the command carries inside itself (`build.rs` builds them), and their way onto the disk.
//!
//! `LD_PRELOAD` and the loader want files. A library is written once per content, into the user's cache:
//! `$XDG_CACHE_HOME/strandline/<version>-<hash>/<name>`; a file that is there already is read back and compared, so a
//! half-written or changed one is replaced, never loaded.

use crate::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// `libstrandline.so`.
static PRELOAD: &[u8] = include_bytes!(env!("EMBEDDED_PRELOAD"));
/// `libstrandline_simcuda.so`, the simulated CUDA runtime and driver.
static SIMCUDA: &[u8] = include_bytes!(env!("EMBEDDED_SIMCUDA"));

/// Puts the preload on the disk, if it is not there, and returns its absolute path.
///
/// # Errors
/// Neither the cache nor the temporary folder can be written.
pub(crate) fn preload() -> Result<PathBuf, Error> {
    place("libstrandline.so", PRELOAD)
}

/// Puts the simulator on the disk, if it is not there, and returns its absolute path.
///
/// # Errors
/// Neither the cache nor the temporary folder can be written.
pub(crate) fn simulator() -> Result<PathBuf, Error> {
    place("libstrandline_simcuda.so", SIMCUDA)
}

/// Where things of the user's are kept: `$XDG_CACHE_HOME/strandline` or `~/.cache/strandline`.
pub(crate) fn cache() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("strandline"))
}

fn place(name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let folder = format!("{}-{:016x}", strandline::VERSION, hasher.finish());
    // SAFETY: getuid has no preconditions and cannot fail.
    let user = unsafe { libc::getuid() };
    let temporary = std::env::temp_dir().join(format!("strandline-{user}"));
    let mut first = None;
    // LD_PRELOAD is a list: a path with a separator in it would be two.
    let listable = |p: &PathBuf| !p.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b));
    for base in cache().into_iter().chain([temporary]).filter(listable) {
        match place_in(&base.join(&folder), name, bytes) {
            Ok(path) => return Ok(path),
            Err(e) => first = first.or(Some((base, e))),
        }
    }
    let (base, source) = first.unwrap_or_else(|| (PathBuf::new(), std::io::ErrorKind::NotFound.into()));
    Err(Error::io(&format!("cannot write {name}"), base, source)
        .hint("set XDG_CACHE_HOME to a folder that can be written"))
}

fn place_in(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<PathBuf> {
    let path = folder.join(name);
    if is_ours(&path, bytes) {
        return Ok(path);
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let part = folder.join(format!(".{name}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&part)?;
    file.write_all(bytes)?;
    drop(file);
    fs::rename(&part, &path)?;
    if is_ours(&path, bytes) {
        Ok(path)
    } else {
        Err(std::io::Error::other("what was written reads back differently"))
    }
}

/// Whether the file holds these bytes and belongs to this user or to root: a library that others may write is not
/// loaded into a job.
fn is_ours(path: &Path, bytes: &[u8]) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(meta) = fs::symlink_metadata(path) else { return false };
    // SAFETY: geteuid has no preconditions and cannot fail.
    let user = unsafe { libc::geteuid() };
    meta.is_file()
        && (meta.uid() == user || meta.uid() == 0)
        && meta.mode() & 0o022 == 0
        && meta.len() == bytes.len() as u64
        && fs::read(path).is_ok_and(|found| found == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_library_is_written_once_and_a_changed_one_is_replaced() {
        let base = std::env::temp_dir().join(format!("strandline-embedded-{}", std::process::id()));
        let path = place_in(&base, "lib.so", b"right").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(place_in(&base, "lib.so", b"right").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written, "a good file is left alone");
        fs::write(&path, b"wrong").unwrap();
        place_in(&base, "lib.so", b"right").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"right");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        place_in(&base, "lib.so", b"right").unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o755,
            "one that others may write"
        );
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1, "no parts are left behind");
        fs::remove_dir_all(&base).unwrap();
    }
}
