//! The shared libraries that the command carries inside itself (`build.rs` builds them), and their way onto the disk.
//!
//! `LD_PRELOAD` and the loader want files. A library is written once per content, into the user's cache:
//! `$XDG_CACHE_HOME/strandline/<version>-<hash>/<name>`; a file that is there already is read back and compared, so a
//! half-written or changed one is replaced, never loaded.

use crate::error::Error;
use crate::files::{self, Folder};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
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
    // In the temporary folder, where others are, only a folder that nobody else can have made or looked into.
    let temporary = std::env::temp_dir().join(format!("strandline-{}", files::user()));
    let own = cache().map(|base| (base, false));
    let mut first = None;
    // LD_PRELOAD is a list: a path with a separator in it would be two.
    let listable = |(p, _): &(PathBuf, bool)| !p.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b));
    for (base, is_shared) in own.into_iter().chain([(temporary, true)]).filter(listable) {
        match place_in(&base, is_shared, &folder, name, bytes) {
            Ok(path) => return Ok(path),
            Err(e) => first = first.or(Some((base, e))),
        }
    }
    let (base, source) = first.unwrap_or_else(|| (PathBuf::new(), std::io::ErrorKind::NotFound.into()));
    Err(Error::io(&format!("cannot write {name}"), base, source)
        .hint("set XDG_CACHE_HOME to a folder of yours that can be written"))
}

fn place_in(
    base: &Path,
    is_shared: bool,
    folder: &str,
    name: &str,
    bytes: &[u8],
) -> std::io::Result<PathBuf> {
    let path = base.join(folder).join(name);
    let open = || -> std::io::Result<Folder> {
        let base = match is_shared {
            true => Folder::private(base)?,
            false => {
                files::make_folder(base)?;
                Folder::open(base)?
            }
        };
        base.within(OsStr::new(folder))
    };
    let name = OsStr::new(name);
    let place = match open() {
        Ok(place) => place,
        // A cache that can only be read, such as an image's: what root has put there is as good.
        Err(e) => {
            let found = Folder::open(&base.join(folder)).ok().filter(|_| !is_shared);
            return match found.is_some_and(|place| is_ours(&place, name, bytes)) {
                true => Ok(path),
                false => Err(e),
            };
        }
    };
    if is_ours(&place, name, bytes) {
        return Ok(path);
    }
    let mut file = place.create(name)?;
    file.executable()?;
    file.write_all(bytes)?;
    file.keep()?;
    match is_ours(&open()?, name, bytes) {
        true => Ok(path),
        false => Err(std::io::Error::other("what was written reads back differently")),
    }
}

/// Whether the file holds these very bytes and belongs to this user or to root, as does its folder: a library that others may
/// write, or put another in the place of, is not loaded into a job.
fn is_ours(folder: &Folder, name: &OsStr, bytes: &[u8]) -> bool {
    let is_safe =
        |meta: &Metadata| (meta.uid() == files::user() || meta.uid() == 0) && meta.mode() & 0o022 == 0;
    let read = || -> std::io::Result<bool> {
        let mut file = folder.read(name)?;
        let meta = file.metadata()?;
        if !is_safe(&folder.metadata()?)
            || !meta.is_file()
            || !is_safe(&meta)
            || meta.len() != bytes.len() as u64
        {
            return Ok(false);
        }
        // What was just looked at is what is read: nobody can exchange it between the two.
        let mut found = Vec::with_capacity(bytes.len());
        file.read_to_end(&mut found)?;
        Ok(found == bytes)
    };
    read().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn put(base: &Path, is_shared: bool) -> std::io::Result<PathBuf> {
        place_in(base, is_shared, "1-ab", "lib.so", b"right")
    }

    #[test]
    fn a_library_is_written_once_and_a_changed_one_is_replaced() {
        let base = std::env::temp_dir().join(format!("strandline-embedded-{}", std::process::id()));
        let path = put(&base, false).unwrap();
        assert_eq!(path, base.join("1-ab/lib.so"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(put(&base, false).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written, "a good file is left alone");
        fs::write(&path, b"wrong").unwrap();
        put(&base, false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"right");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        put(&base, false).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o755,
            "one that others may write"
        );
        assert_eq!(fs::read_dir(base.join("1-ab")).unwrap().count(), 1, "no parts are left behind");
        fs::remove_dir_all(&base).unwrap();
    }
    #[test]
    fn a_folder_that_somebody_else_may_have_made_is_not_used() {
        let home = std::env::temp_dir().join(format!("strandline-embedded-shared-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        let base = home.join("strandline-1000");
        // A link to a folder of the other's, with the very library in it that the other wants to be loaded.
        let planted = home.join("planted/1-ab");
        fs::create_dir_all(&planted).unwrap();
        fs::write(planted.join("lib.so"), b"wrong").unwrap();
        symlink(home.join("planted"), &base).unwrap();
        assert!(put(&base, true).is_err(), "a link");
        assert_eq!(fs::read(planted.join("lib.so")).unwrap(), b"wrong", "nothing is written through it");
        fs::remove_file(&base).unwrap();
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(put(&base, true).is_err(), "one that others may write to");
        fs::remove_dir(&base).unwrap();
        assert_eq!(put(&base, true).unwrap(), base.join("1-ab/lib.so"));
        assert_eq!(fs::metadata(&base).unwrap().permissions().mode() & 0o777, 0o700);
        // A part that was planted as a link is replaced, and what it names stays.
        let victim = home.join("victim");
        fs::write(&victim, b"precious").unwrap();
        fs::remove_file(base.join("1-ab/lib.so")).unwrap();
        symlink(&victim, base.join("1-ab/lib.so")).unwrap();
        put(&base, true).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        fs::remove_dir_all(&home).unwrap();
    }
}
