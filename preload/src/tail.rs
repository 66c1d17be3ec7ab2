//! The memory that the rings lie in: one file on tmpfs, whole before the first store, or anonymous memory.

use crate::say::say;
use core::ptr::NonNull;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The mapped region.
pub(crate) struct Tail {
    /// First byte; zeroed, page-aligned, mapped for the rest of the process's life.
    pub(crate) base: NonNull<u8>,
    /// Bytes.
    pub(crate) len: usize,
    /// The file, where there is one.
    pub(crate) path: Option<PathBuf>,
}

/// File systems whose pages live elsewhere: a store could wait for a server, or die of it.
const REMOTE: [i64; 8] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x6573_5546, // FUSE
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x00c3_6400, // Ceph
];

/// Makes the tail in `directory`. Where that is impossible, the memory is anonymous, and one line says what that means.
///
/// # Errors
/// What the kernel says when it has no memory either.
pub(crate) fn make(directory: &Path, len: usize, id: u64) -> io::Result<Tail> {
    // SAFETY: getuid cannot fail.
    let uid = unsafe { libc::getuid() };
    let path = directory.join(format!("strandline-{uid}-{}-{id:016x}", std::process::id()));
    match in_file(&path, len) {
        Ok(base) => Ok(Tail { base, len, path: Some(path) }),
        Err(e) => {
            say!(
                "no room for the tail in {} ({e}): kill -9 may lose the last second of the recording",
                directory.display()
            );
            map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1).map(|base| Tail { base, len, path: None })
        }
    }
}

fn in_file(path: &Path, len: usize) -> io::Result<NonNull<u8>> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let made = reserve(&file, len).and_then(|()| map(len, libc::MAP_SHARED, file.as_raw_fd()));
    if made.is_err() {
        remove(path);
    }
    made
}

fn reserve(file: &File, len: usize) -> io::Result<()> {
    // SAFETY: the structure is ours, the descriptor is open.
    let kind = unsafe {
        let mut s: libc::statfs = core::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut s) != 0 {
            return Err(io::Error::last_os_error());
        }
        s.f_type
    };
    if REMOTE.contains(&kind) {
        return Err(io::Error::other("a network file system"));
    }
    let len = libc::off_t::try_from(len).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for writing. Every page exists after this, so no store can raise SIGBUS.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

fn map(len: usize, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let p =
        unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(p.cast()).ok_or_else(|| io::Error::other("mapped at 0"))
}

/// Removes the tail's file: the recording is complete without it.
pub(crate) fn remove(path: &Path) {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return };
    // SAFETY: a C string.
    unsafe { libc::unlink(path.as_ptr()) };
}
