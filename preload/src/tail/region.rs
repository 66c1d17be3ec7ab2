//! A mapping for the rings, whatever it is backed by.

use crate::platform::mapping;
use core::ptr::NonNull;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use strandline_core::format::tail::Place;

/// The mapped region.
pub(crate) struct Tail {
    /// First byte; zeroed, page-aligned, mapped for the rest of the process's life.
    pub(crate) base: NonNull<u8>,
    /// Bytes.
    pub(crate) len: usize,
    /// Where others find it; `None`: nowhere.
    pub(crate) place: Option<Place>,
    /// Every page exists already; else those of the first [`recorder::ready_lanes`].
    pub(crate) is_whole: bool,
    /// A file that has no name yet.
    pub(super) unnamed: Option<File>,
}

pub(super) fn map(len: usize, flags: i32, fd: i32) -> io::Result<NonNull<u8>> {
    mapping::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, fd)
}

/// Makes every page of a file.
pub(super) fn reserve(file: &File, len: usize) -> io::Result<()> {
    let len = libc::off_t::try_from(len).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for writing. Every page exists after this, so no store can raise SIGBUS.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}
