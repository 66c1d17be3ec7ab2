//! A folder that is open: what is made in it is made there, whatever becomes of its path.

use super::name::{plain, user};
use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// An open folder.
pub(crate) struct Folder {
    at: OwnedFd,
}

impl Folder {
    /// Opens the folder that a person has named.
    ///
    /// # Errors
    /// It is not there, or is none.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Folder::at(libc::AT_FDCWD, &CString::new(path.as_os_str().as_bytes())?, 0)
    }

    /// The folder of a file that a person has named, and the file's name.
    ///
    /// # Errors
    /// As [`Folder::open`], or the path names no file.
    pub(super) fn of(path: &Path) -> io::Result<(Folder, &OsStr)> {
        let name = path
            .file_name()
            .ok_or_else(|| refused(io::ErrorKind::InvalidInput, "it is not the name of a file"))?;
        Ok((Folder::open(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Opens a folder into which something is written that nobody has named: it is ours, or the system's, or our group's. In another
    /// user's folder that everybody may write to, or as root, whoever owns it decides what lies there.
    ///
    /// # Errors
    /// As [`Folder::open`]; it is another user's.
    pub(crate) fn ours(path: &Path) -> io::Result<Folder> {
        let folder = Folder::open(path)?;
        let meta = folder.metadata()?;
        let is_of_a_group = user() != 0 && meta.mode() & 0o002 == 0;
        if meta.uid() == user() || meta.uid() == 0 || is_of_a_group {
            return Ok(folder);
        }
        let what =
            format!("the folder belongs to another user (uid {}): nothing is written there", meta.uid());
        Err(refused(io::ErrorKind::PermissionDenied, &what))
    }

    /// Opens a folder that nobody but us can have put anything into, and makes it where it is not there: a real one, ours, 0700, in one
    /// where others cannot rename it.
    ///
    /// # Errors
    /// It cannot be made, or is not like that.
    pub(crate) fn private(path: &Path) -> io::Result<Folder> {
        let folder = Folder::own(path)?;
        match folder.metadata()?.mode() & 0o077 {
            0 => Ok(folder),
            _ => Err(refused(
                io::ErrorKind::PermissionDenied,
                "other users can read it (its mode is not 0700)",
            )),
        }
    }

    /// The same for what every user may read: 0755.
    ///
    /// # Errors
    /// It cannot be made, or is not ours alone to write to.
    pub(crate) fn shared(path: &Path) -> io::Result<Folder> {
        Folder::own(path)?.opened_to_all()
    }

    /// It, once other users can read what is in it.
    ///
    /// # Errors
    /// The file system does not say so.
    pub(crate) fn opened_to_all(self) -> io::Result<Folder> {
        File::from(self.at.try_clone()?).set_permissions(Permissions::from_mode(0o755))?;
        Ok(self)
    }

    /// A real folder of ours, which others can neither write to nor rename.
    fn own(path: &Path) -> io::Result<Folder> {
        let (parent, name) = Folder::of(path)?;
        let meta = parent.metadata()?;
        let is_safe = meta.uid() == user() || meta.uid() == 0;
        if !is_safe || (meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0) {
            return Err(refused(
                io::ErrorKind::PermissionDenied,
                "other users can rename files in its parent folder",
            ));
        }
        parent.within(name)
    }

    /// The folder of this name in it, which is made where it is not there: a real one, which only we may write to.
    ///
    /// # Errors
    /// It cannot be made, or is not like that.
    pub(crate) fn within(&self, name: &OsStr) -> io::Result<Folder> {
        let name = plain(name)?;
        // SAFETY: the descriptor is open and the name ends with a zero.
        let made = unsafe { libc::mkdirat(self.as_raw_fd(), name.as_ptr(), 0o700) };
        if made != 0 {
            let why = io::Error::last_os_error();
            if why.kind() != io::ErrorKind::AlreadyExists {
                return Err(why);
            }
        }
        let folder = Folder::at(self.as_raw_fd(), &name, libc::O_NOFOLLOW)?;
        let meta = folder.metadata()?;
        if meta.uid() == user() && meta.mode() & 0o022 == 0 {
            return Ok(folder);
        }
        Err(refused(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user, or other users can write to it",
        ))
    }

    /// The folder that a relative path of a file leads to, through folders that are there and are no links; and the file's name.
    ///
    /// # Errors
    /// It leads out of this folder, through a link, or nowhere.
    pub(crate) fn below(self, file: &Path) -> io::Result<(Folder, &OsStr)> {
        let mut names: Vec<&OsStr> = Vec::new();
        for part in file.components() {
            match part {
                Component::Normal(name) => names.push(name),
                Component::CurDir => {}
                _ => return Err(refused(io::ErrorKind::InvalidInput, "it points outside the folder")),
            }
        }
        let last = names
            .pop()
            .ok_or_else(|| refused(io::ErrorKind::InvalidInput, "it is not the name of a file"))?;
        let mut folder = self;
        for name in names {
            folder = Folder::at(folder.as_raw_fd(), &plain(name)?, libc::O_NOFOLLOW)?;
        }
        Ok((folder, last))
    }

    /// Where it really is.
    ///
    /// # Errors
    /// There is no /proc.
    pub(crate) fn real_path(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.as_raw_fd()))
    }

    fn at(base: RawFd, path: &CStr, flags: i32) -> io::Result<Folder> {
        let file = open_at(base, path, libc::O_RDONLY | libc::O_DIRECTORY | flags, 0)?;
        Ok(Folder { at: file.into() })
    }

    /// Opens a file in it to read it, if it is none that only looks like one: no link is followed, no pipe waited for.
    ///
    /// # Errors
    /// It is not there, or a link.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        open_at(self.as_raw_fd(), &plain(name)?, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0)
    }

    /// Its owner and mode.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.at.try_clone()?).metadata()
    }

    pub(super) fn owner(&self) -> io::Result<u32> {
        self.metadata().map(|m| m.uid())
    }

    /// Renames what is in it.
    ///
    /// # Errors
    /// What the system says: it is not there, or a folder that holds something has the new name.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.rename_names(&plain(from)?, &plain(to)?)
    }

    pub(super) fn rename_names(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        let at = self.as_raw_fd();
        // SAFETY: the descriptor is open and both names end with a zero.
        match unsafe { libc::renameat(at, from.as_ptr(), at, to.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn remove(&self, name: &CStr) {
        // SAFETY: the descriptor is open and the name ends with a zero. What is not there need not be removed.
        unsafe { libc::unlinkat(self.as_raw_fd(), name.as_ptr(), 0) };
    }

    /// Whether it is of the kernel's own, such as `/dev/fd`: nothing can be made there.
    pub(super) fn is_proc(&self) -> bool {
        let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: the descriptor is open, and there is room for the answer; all-zero is a valid `statfs`.
        unsafe {
            libc::fstatfs(self.as_raw_fd(), found.as_mut_ptr()) == 0
                && found.assume_init().f_type == libc::PROC_SUPER_MAGIC
        }
    }

    /// Where the link of this name leads.
    pub(super) fn target(&self, name: &CStr) -> Option<PathBuf> {
        let mut path = [0u8; 256];
        // SAFETY: the descriptor is open, the name ends with a zero, and at most as many bytes are written as there is room for.
        let n = unsafe {
            libc::readlinkat(self.as_raw_fd(), name.as_ptr(), path.as_mut_ptr().cast(), path.len())
        };
        let n = usize::try_from(n).ok()?;
        Some(OsStr::from_bytes(path.get(..n)?).into())
    }

    /// What has this name, a link itself where it is one.
    pub(super) fn look(&self, name: &CStr) -> Option<libc::stat> {
        let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: the descriptor is open, the name ends with a zero, and there is room for the answer.
        let is_there =
            unsafe { libc::fstatat(self.as_raw_fd(), name.as_ptr(), found.as_mut_ptr(), flags) } == 0;
        // SAFETY: all-zero is a valid `stat`, and fstatat has filled it.
        is_there.then(|| unsafe { found.assume_init() })
    }
}

impl AsRawFd for Folder {
    fn as_raw_fd(&self) -> RawFd {
        self.at.as_raw_fd()
    }
}

pub(super) fn open_at(base: RawFd, name: &CStr, flags: i32, mode: libc::mode_t) -> io::Result<File> {
    loop {
        // SAFETY: the name ends with a zero; the descriptor is open, or stands for the current folder.
        let file = unsafe { libc::openat(base, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        if file >= 0 {
            // SAFETY: it was just opened, and nobody else has it.
            return Ok(unsafe { File::from_raw_fd(file) });
        }
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
}

fn refused(kind: io::ErrorKind, why: &str) -> io::Error {
    io::Error::new(kind, why)
}
