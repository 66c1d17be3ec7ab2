//! Opens what is to be read: files, never anything that could keep a reader waiting; and tails, wherever they lie.

use super::nested::nested;
use crate::format::tail::Place;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// `O_NONBLOCK`: a FIFO that nobody writes to is opened at once, and then refused.
const NONBLOCK: i32 = 0o4000;

/// Opens a file to read it. A directory, a FIFO, a socket or a device is none, and nothing is waited for.
///
/// # Errors
/// What the system says, or that it is no file.
pub fn open_file(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    let what = match kind {
        _ if kind.is_file() => return Ok(file),
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a pipe",
        _ => "a device or a socket",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{what}, not a file: only files can be read")))
}

/// Opens a tail, as its header names it.
///
/// # Errors
/// It is not there (any more), or may not be read.
pub(super) fn open_tail(text: &str) -> io::Result<File> {
    match Place::parse(text) {
        Place::File(path) => open_file(Path::new(&path)),
        Place::Memory { name, keeper } => {
            // Whoever keeps it may be this very process, under a number that the job could not see, or one of a container's.
            let of_container = || nested(keeper).iter().find_map(|pid| memory(&pid.to_string(), &name).ok());
            memory("self", &name)
                .or_else(|_| memory(&keeper.to_string(), &name))
                .or_else(|e| of_container().ok_or(e))
        }
    }
}

/// Memory that a process has open, by its name.
fn memory(process: &str, name: &str) -> io::Result<File> {
    let shown = format!("/memfd:{name} (deleted)");
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))?.flatten() {
        if std::fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == shown.as_str()) {
            return open_file(&entry.path());
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        "the process that held this file has ended, or has closed the file",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened() {
        assert!(open_file(Path::new("/proc/self/exe")).is_ok());
        for (path, what) in [("/", "a folder"), ("/dev/null", "a device")] {
            let e = open_file(Path::new(path)).expect_err("no file").to_string();
            assert!(e.starts_with(what), "{e}");
        }
        assert!(open_tail("memfd:strandline-no-such@1").is_err());
        assert!(open_tail("/no/such/tail").is_err());
    }
}
