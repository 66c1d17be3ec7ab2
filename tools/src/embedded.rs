//! The shared libraries that the command carries inside itself (`build.rs` builds them), and their way onto the disk.
//!
//! `LD_PRELOAD` and the loader want files. A library is written once per content, into the user's cache:
//! `$XDG_CACHE_HOME/strandline/<version>-<hash>/<name>`; a file that is there already is read back and compared, so a
//! half-written or changed one is replaced, never loaded. Where it cannot be written, or nothing may be executed from there (`noexec`),
//! the next place is taken: `STRANDLINE_CACHE`, a private folder in the temporary one, one in the run's own.
//!
//! A job of root's may have children of other users, whose loader would say that it cannot open a library below root's home. So root's
//! lies in a folder that everybody can read, where one can be made.

use crate::error::Error;
use crate::files::{self, Folder};
use crate::say;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use strandline::format::env;

/// `libstrandline.so`.
static PRELOAD: &[u8] = include_bytes!(env!("EMBEDDED_PRELOAD"));
/// `libstrandline_simcuda.so`, the simulated CUDA runtime and driver.
static SIMCUDA: &[u8] = include_bytes!(env!("EMBEDDED_SIMCUDA"));

/// Puts the preload on the disk, if it is not there, and returns its absolute path.
///
/// # Errors
/// Neither the cache nor the temporary folder can hold it.
pub(crate) fn preload() -> Result<PathBuf, Error> {
    place("libstrandline.so", PRELOAD, None)
}

/// The same with a last place: a folder that is made for it alone, 0700, which the caller removes.
///
/// # Errors
/// That one cannot hold it either.
pub(crate) fn preload_or_in(last: &Path) -> Result<PathBuf, Error> {
    place("libstrandline.so", PRELOAD, Some(last))
}

/// Puts the simulator on the disk, if it is not there, and returns its absolute path.
///
/// # Errors
/// Neither the cache nor the temporary folder can hold it.
pub(crate) fn simulator() -> Result<PathBuf, Error> {
    place("libstrandline_simcuda.so", SIMCUDA, None)
}

/// Where things of the user's are kept: `$XDG_CACHE_HOME/strandline` or `~/.cache/strandline`.
pub(crate) fn cache() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("strandline"))
}

/// Who looks into the folder that a library lies in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// Whoever the folder's owner lets.
    AsItIs,
    /// This user, in a folder where others are: one that nobody else can have made or looked into.
    Us,
    /// Every user, likewise.
    All,
}

/// Where every user can read what root puts there; empty where others can read root's cache, and where a cache is named.
fn read_by_all(folder: &str) -> Vec<PathBuf> {
    let is_reached =
        |path: PathBuf| path.ancestors().all(|p| p.metadata().is_ok_and(|meta| meta.mode() & 0o001 != 0));
    let is_named = std::env::var_os("XDG_CACHE_HOME").is_some_and(|v| !v.is_empty());
    if files::user() != 0 || is_named || cache().is_some_and(|cache| is_reached(cache.join(folder))) {
        return Vec::new();
    }
    ["/var/tmp", "/tmp"].map(|base| Path::new(base).join("strandline-root")).to_vec()
}

fn place(name: &str, bytes: &[u8], last: Option<&Path>) -> Result<PathBuf, Error> {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let folder = format!("{}-{:016x}", strandline::VERSION, hasher.finish());
    let asked = std::env::var_os(env::CACHE).filter(|v| !v.is_empty()).map(PathBuf::from);
    let shared = if bytes == PRELOAD { read_by_all(&folder) } else { Vec::new() };
    let own = cache().into_iter().chain(asked.and_then(|path| std::path::absolute(path).ok()));
    let private = [Some(files::temporary()), last.map(Path::to_path_buf)].into_iter().flatten();
    let shared = shared.into_iter().map(|p| (p, Readers::All));
    let own = own.map(|p| (p, Readers::AsItIs));
    let mut refused = Vec::new();
    for (base, readers) in shared.chain(own).chain(private.map(|p| (p, Readers::Us))) {
        match place_in(&base, readers, &folder, name, bytes) {
            Ok(path) => return Ok(path),
            Err(e) => refused.push(format!("{}: {e}", say::path(&base))),
        }
    }
    Err(Error::new(format!("no folder can hold {name}: {}", refused.join("; "))).hint(format!(
        "set {} to a folder of yours that can be written and is not mounted noexec",
        env::CACHE
    )))
}

fn place_in(base: &Path, readers: Readers, folder: &str, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    // LD_PRELOAD is a list: a path with a separator in it would be two.
    if base.as_os_str().as_bytes().iter().any(|b| b" :\t\n".contains(b)) {
        return Err(io::Error::other("LD_PRELOAD cannot contain a path with a space or a colon"));
    }
    let path = base.join(folder).join(name);
    let open = || -> io::Result<Folder> {
        let folder = OsStr::new(folder);
        match readers {
            Readers::Us => Folder::private(base)?.within(folder),
            Readers::All => Folder::shared(base)?.within(folder)?.opened_to_all(),
            Readers::AsItIs => {
                files::make_folder(base)?;
                Folder::open(base)?.within(folder)
            }
        }
    };
    let name = OsStr::new(name);
    let loadable = |place: &Folder| can_be_loaded(&place.read(name)?).map(|()| path.clone());
    let place = match open() {
        Ok(place) => place,
        // A cache that can only be read, such as an image's: what root has put there is as good.
        Err(e) => {
            let found = Folder::open(&base.join(folder)).ok().filter(|_| readers == Readers::AsItIs);
            let found = found.filter(|place| is_ours(place, name, bytes));
            return found.map_or(Err(e), |place| loadable(&place));
        }
    };
    if is_ours(&place, name, bytes) {
        return loadable(&place);
    }
    let mut file = place.create(name)?;
    file.executable()?;
    file.write_all(bytes)?;
    file.keep()?;
    let place = open()?;
    match is_ours(&place, name, bytes) {
        true => loadable(&place),
        false => Err(io::Error::other("the written file has other contents than expected")),
    }
}

/// Whether the loader may map it to be executed, as it may not where its file system is mounted `noexec`.
fn can_be_loaded(file: &File) -> io::Result<()> {
    const PAGE: usize = 4096;
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: the kernel chooses where the mapping of the open file lies; it is never read, and unmapped with the length that it was
    // made with.
    let is_mapped = unsafe {
        let page = libc::mmap(std::ptr::null_mut(), PAGE, protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        page != libc::MAP_FAILED && libc::munmap(page, PAGE) == 0
    };
    if is_mapped {
        return Ok(());
    }
    let why = io::Error::last_os_error();
    match why.kind() {
        io::ErrorKind::PermissionDenied => {
            Err(io::Error::new(why.kind(), "nothing may be executed from there (noexec)"))
        }
        _ => Err(why),
    }
}

/// Whether the file holds these very bytes and belongs to this user or to root, as does its folder: a library that others may
/// write, or put another in the place of, is not loaded into a job.
fn is_ours(folder: &Folder, name: &OsStr, bytes: &[u8]) -> bool {
    let is_safe =
        |meta: &Metadata| (meta.uid() == files::user() || meta.uid() == 0) && meta.mode() & 0o022 == 0;
    let read = || -> io::Result<bool> {
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

    fn put(base: &Path, readers: Readers) -> io::Result<PathBuf> {
        place_in(base, readers, "1-ab", "lib.so", b"right")
    }

    #[test]
    fn a_library_is_written_once_and_a_changed_one_is_replaced() {
        let base = std::env::temp_dir().join(format!("strandline-embedded-{}", std::process::id()));
        let path = put(&base, Readers::AsItIs).unwrap();
        assert_eq!(path, base.join("1-ab/lib.so"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(put(&base, Readers::AsItIs).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written, "a good file is left alone");
        fs::write(&path, b"wrong").unwrap();
        put(&base, Readers::AsItIs).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"right");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        put(&base, Readers::AsItIs).unwrap();
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
        assert!(put(&base, Readers::Us).is_err(), "a link");
        assert_eq!(fs::read(planted.join("lib.so")).unwrap(), b"wrong", "nothing is written through it");
        fs::remove_file(&base).unwrap();
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(put(&base, Readers::Us).is_err(), "one that others may write to");
        fs::remove_dir(&base).unwrap();
        assert_eq!(put(&base, Readers::Us).unwrap(), base.join("1-ab/lib.so"));
        assert_eq!(fs::metadata(&base).unwrap().permissions().mode() & 0o777, 0o700);
        // A part that was planted as a link is replaced, and what it names stays.
        let victim = home.join("victim");
        fs::write(&victim, b"precious").unwrap();
        fs::remove_file(base.join("1-ab/lib.so")).unwrap();
        symlink(&victim, base.join("1-ab/lib.so")).unwrap();
        put(&base, Readers::Us).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        fs::remove_dir_all(&home).unwrap();
    }
    #[test]
    fn a_folder_that_everybody_reads_is_written_to_by_us_alone() {
        let home = std::env::temp_dir().join(format!("strandline-embedded-all-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        let base = home.join("strandline-root");
        let path = put(&base, Readers::All).unwrap();
        for (path, mode) in [(&*base, 0o755), (&base.join("1-ab"), 0o755), (&path, 0o755)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
        }
        fs::set_permissions(&base, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(put(&base, Readers::All).is_err(), "one that others may write to");
        fs::remove_dir_all(&home).unwrap();
    }
}
