//! Gives disk space back: torch's libraries hold some 300 MB of code for GPUs, which nothing reads where kernels do
//! not run. Holes are punched over it, so that sizes and offsets stay. Best effort: a file system that
//! cannot do it costs nothing but the space.

use super::elf;
use crate::files;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

/// The section that holds code for GPUs.
const DEVICE_CODE: &str = ".nv_fatbin";

/// Empties device code in every library of a directory; returns how many bytes were given back.
pub(super) fn slim(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.is_file()).map(|path| punch(&path)).sum()
}

fn punch(path: &Path) -> u64 {
    let Some((offset, bytes)) = elf::section(path, DEVICE_CODE) else { return 0 };
    let Ok(file) = files::open_for_update(path) else { return 0 };
    let (Ok(at), Ok(length)) = (i64::try_from(offset), i64::try_from(bytes)) else { return 0 };
    let mode = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
    // SAFETY: the descriptor is open for writing while `file` lives; fallocate takes no pointer.
    if unsafe { libc::fallocate(file.as_raw_fd(), mode, at, length) } == 0 { bytes } else { 0 }
}
