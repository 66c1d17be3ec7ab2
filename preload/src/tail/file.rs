//! A tail in a file on tmpfs. It has no name before the recording names it, so that no `kill -9` leaves one that nobody finds.

use super::region::{Tail, map, reserve};
use crate::platform::descriptor;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use strandline_core::format::tail::{PREFIX, Place};

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

/// A file system keeps so many times as much for everybody else as all tails in it take.
const SHARE: u64 = 16;

/// Makes it in a folder.
///
/// # Errors
/// What the system says: no room, no such folder, a network file system.
pub(super) fn make(folder: &Path, name: &str, len: usize) -> io::Result<Tail> {
    if is_remote(folder) {
        return Err(io::Error::other("a network file system"));
    }
    let file = descriptor::open(|| {
        OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder)
    })?;
    reserve(&file, len)?;
    let base = map(len, libc::MAP_SHARED, file.as_raw_fd())?;
    let place = Place::File(folder.join(name).to_string_lossy().into_owned());
    Ok(Tail { base, len, place: Some(place), is_whole: true, unnamed: Some(file) })
}

/// Gives the file its name.
///
/// # Errors
/// What the system says.
pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
    let to = CString::new(path.as_os_str().as_bytes())?;
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let here = libc::AT_FDCWD;
    // SAFETY: two C strings that live during the call.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether all tails in a folder, with one more of so many bytes, take little of what is free there: a container's 64 MiB are its job's.
pub(super) fn has_room(folder: &Path, len: usize) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string, and a structure of plain data that the call fills.
    let (free, is_bounded) = unsafe {
        let mut s: libc::statvfs = core::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &mut s) != 0 {
            return false;
        }
        (s.f_bavail.saturating_mul(s.f_frsize), s.f_blocks > 0)
    };
    let ours = |e: &std::fs::DirEntry| e.file_name().as_bytes().starts_with(PREFIX.as_bytes());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().filter(ours);
    let others: u64 = entries.filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum();
    let all = others.saturating_add(len as u64);
    !is_bounded || all.saturating_mul(SHARE) <= free.saturating_add(others)
}

/// Whether a path lies on a file system of another machine; `false` where that cannot be told.
pub(crate) fn is_remote(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string, and a structure of plain data that the call fills.
    unsafe {
        let mut s: libc::statfs = core::mem::zeroed();
        libc::statfs(path.as_ptr(), &mut s) == 0 && REMOTE.contains(&s.f_type)
    }
}

/// Removes a file of ours.
pub(crate) fn remove(path: &Path) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    // SAFETY: a C string.
    unsafe { libc::unlink(path.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_name_before_it_is_published() {
        let folder = std::env::temp_dir().join(format!("strandline-tail-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut tail = make(&folder, "strandline-1", 8192).unwrap();
        assert_eq!(
            std::fs::read_dir(&folder).unwrap().count(),
            0,
            "a process that is killed now leaves nothing"
        );
        tail.publish().unwrap();
        let path = tail.path().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
        remove(&path);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
        assert!(make(&folder, "strandline-1", 8192).is_err());
    }

    #[test]
    fn what_is_free_is_mostly_others() {
        let folder = Path::new("/dev/shm");
        assert!(!has_room(folder, usize::MAX >> 1));
        assert!(!has_room(Path::new("/no/such/folder"), 1));
    }
}
