//! Descriptors that a job is unlikely to count on.

use std::fs::File;
use std::os::fd::AsRawFd;

/// From this number on a job is unlikely to count on descriptors.
pub(crate) const HIGH: i32 = 700;

/// The file at a descriptor that a job is unlikely to count on.
pub(crate) fn moved(file: File) -> File {
    // SAFETY: duplicates an open descriptor; the new one belongs to the `File` made of it and to nobody else.
    unsafe {
        use std::os::fd::FromRawFd;
        match libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) {
            fd if fd >= 0 => File::from_raw_fd(fd),
            _ => file, // the limit is lower: stay where we are
        }
    }
}
