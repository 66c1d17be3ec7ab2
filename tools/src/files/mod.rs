//! The one way in which the command makes files and folders. `tests/laws.rs` finds any other.
//!
//! - A new file is made exclusively, follows no link, is closed on exec, and only its owner may read it (0600): what is made of a
//!   recording tells paths and commands. Folders are 0700, whatever the umask.
//! - A file that may be there already is replaced whole: written under another name in the same folder, then renamed. A link that
//!   somebody has put in its place is replaced, never followed; whoever reads it finds the old one or the new one.
//! - The folder is opened once, and all of this happens below that descriptor: it cannot be exchanged meanwhile.
//! - Where nobody has named the place ([`Folder::ours`], [`Folder::private`]) the folder's owner and mode are looked at first.

mod folder;
mod name;
#[cfg(test)]
mod tests;

pub(crate) use folder::Folder;
use name::plain;
pub(crate) use name::{escaped, host, temporary, user};

use std::ffi::{CStr, CString, OsStr};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Begins a file that a person has named, or one beside it. [`New::keep`] puts it in its place; one that is there is replaced, and the
/// new one is as open as that one was. What is no file (`/dev/stdout`, a pipe) is written as it is.
///
/// # Errors
/// The folder is not there, or nothing can be made in it.
pub(crate) fn create(path: &Path) -> io::Result<New> {
    let (folder, name) = Folder::of(path)?;
    folder.create(name)
}

/// The same for a file whose name strandline has chosen, not the user: only in a folder of this user ([`Folder::ours`]).
///
/// # Errors
/// As [`create`]; the folder is another user's.
pub(crate) fn create_in_own_folder(path: &Path) -> io::Result<New> {
    let (_, name) = Folder::of(path)?;
    Folder::ours(path.parent().unwrap_or(Path::new("")))?.create(name)
}

/// Writes a file that a person has named, whole or not at all.
///
/// # Errors
/// As [`create`]; the disk is full.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes)?;
    file.keep()
}

/// Opens an existing file to overwrite bytes of it; follows no link.
///
/// # Errors
/// It is not there, a link, or cannot be written.
pub(crate) fn open_for_update(path: &Path) -> io::Result<File> {
    let (folder, name) = Folder::of(path)?;
    folder.open_at(&plain(name)?, libc::O_WRONLY | libc::O_NOFOLLOW, 0)
}

/// Takes the lock of a file or folder, or gives it back, as `flock` is told to. An interrupted call is made again.
///
/// # Errors
/// Somebody else has it, and it is not waited for; it cannot be locked.
pub(crate) fn lock(of: &impl AsRawFd, operation: i32) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open for as long as `of` is borrowed; flock takes no pointer.
        if unsafe { libc::flock(of.as_raw_fd(), operation) } == 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
}

/// Makes a folder and what it lies in, each 0700; what is there stays as it is.
///
/// # Errors
/// One of them cannot be made.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a folder that is not there yet, 0700.
///
/// # Errors
/// It is there ([`io::ErrorKind::AlreadyExists`], also where it is a link), or cannot be made.
pub(crate) fn new_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// A file that is being written, under a name of its own until it is kept. Dropped before that it is gone.
pub(crate) struct New {
    file: File,
    place: Option<Place>,
}

/// Where a new file is, and where it goes.
struct Place {
    folder: Folder,
    part: CString,
    name: CString,
}

impl New {
    /// Nothing more comes: it takes its place.
    ///
    /// # Errors
    /// It cannot be renamed; it is gone then.
    pub(crate) fn keep(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some(Place { folder, part, name }) = &self.place else { return Ok(()) };
        folder.rename_names(part, name)?;
        self.place = None;
        Ok(())
    }

    /// The same once the disk has it, for what must outlive the machine's next moment.
    ///
    /// # Errors
    /// As [`New::keep`], and what the disk says.
    pub(crate) fn keep_synced(self) -> io::Result<()> {
        self.file.sync_all()?;
        self.keep()
    }

    /// Makes the file readable by every user.
    ///
    /// # Errors
    /// The file system does not say so.
    pub(crate) fn make_world_readable(&self) -> io::Result<()> {
        self.file.set_permissions(std::fs::Permissions::from_mode(0o644))
    }

    /// What a loader is to map.
    ///
    /// # Errors
    /// The file system does not say so.
    pub(crate) fn executable(&self) -> io::Result<()> {
        self.file.set_permissions(std::fs::Permissions::from_mode(0o755))
    }
}

impl Write for New {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if let Some(Place { folder, part, .. }) = &self.place {
            folder.remove(part);
        }
    }
}

impl Folder {
    /// Begins a file that takes this name when it is kept.
    ///
    /// # Errors
    /// Nothing can be made here, or the name is none.
    pub(crate) fn create(self, name: &OsStr) -> io::Result<New> {
        let name = plain(name)?;
        if let Some(file) = self.special(&name)? {
            return Ok(New { file, place: None });
        }
        // Names of parts are short, whatever the name, and never met twice by one process.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = CString::new(format!(".strandline-part-{}-{number}", std::process::id()))?;
        let open =
            || self.open_at(&part, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW, 0o600);
        let file = match open() {
            // One of an earlier process with our number, or planted: it is no link that we follow, but in the way.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(&part);
                open()?
            }
            other => other?,
        };
        let before = self.open_at(&name, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0);
        if let Ok(before) = before.and_then(|f| f.metadata())
            && before.is_file()
            && before.uid() == user()
        {
            file.set_permissions(std::fs::Permissions::from_mode(before.mode() & 0o666))?;
        }
        Ok(New { file, place: Some(Place { folder: self, part, name }) })
    }

    /// Makes a file that is not there yet.
    ///
    /// # Errors
    /// It is there, or cannot be made.
    pub(crate) fn create_new(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        self.open_at(&plain(name)?, flags, 0o600)
    }

    /// Opens a file to read it and to write at its end, and makes it where it is not there.
    ///
    /// # Errors
    /// What is there is no file of ours alone: a link, another user's, one with a second name.
    pub(crate) fn append(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_APPEND | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = self.open_at(&plain(name)?, flags, 0o600)?;
        let meta = file.metadata()?;
        if meta.is_file() && meta.uid() == user() && meta.nlink() == 1 {
            return Ok(file);
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the path exists, but it is not a file that only this user can write",
        ))
    }

    /// What has this name, where it is neither a file nor a link that anybody could have made: a device, a pipe, a descriptor of ours
    /// (`/dev/stdout` is a link of root's into `/proc`).
    fn special(&self, name: &CStr) -> io::Result<Option<File>> {
        let Some(found) = self.look(name) else { return Ok(None) };
        match found.st_mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR => Ok(None),
            libc::S_IFLNK if self.names_a_descriptor(name, &found)? => {
                self.open_at(name, libc::O_WRONLY | libc::O_TRUNC, 0).map(Some)
            }
            libc::S_IFLNK => Ok(None),
            _ => self.open_at(name, libc::O_WRONLY | libc::O_NOFOLLOW, 0).map(Some),
        }
    }

    fn names_a_descriptor(&self, name: &CStr, link: &libc::stat) -> io::Result<bool> {
        if self.is_proc() {
            return Ok(true);
        }
        let is_roots = link.st_uid == 0 && self.owner()? == 0 && self.real_path()? == Path::new("/dev");
        Ok(is_roots && self.target(name).is_some_and(|t| t.starts_with("/proc/self/fd/")))
    }

    fn open_at(&self, name: &CStr, flags: i32, mode: libc::mode_t) -> io::Result<File> {
        folder::open_at(self.as_raw_fd(), name, flags, mode)
    }
}
