//! The recording's file, as the writing thread has it.

use crate::platform::descriptor::{self, moved};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use strandline_core::writer::Sink;

/// The recording's file. Checks before each write that the descriptor is still the file that was opened: a job that
/// closes descriptors it does not know and opens its own gets none of our bytes, and the file is opened again.
pub(crate) struct Output {
    /// Never closed: by then the number may be a file of the job's.
    file: ManuallyDrop<File>,
    is: (u64, u64),
    path: PathBuf,
}

impl Output {
    /// Takes the file, which lies at `path`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn new(file: File, path: PathBuf) -> io::Result<Output> {
        let file = moved(file);
        let meta = file.metadata()?;
        Ok(Output { is: (meta.dev(), meta.ino()), file: ManuallyDrop::new(file), path })
    }

    fn check(&mut self) -> io::Result<()> {
        if self.is_it(&self.file) { Ok(()) } else { self.open_again() }
    }

    fn is_it(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == self.is)
    }

    /// The job has closed our descriptor with all that it does not know, as daemons do: another one, of the same file.
    #[cold]
    fn open_again(&mut self) -> io::Result<()> {
        let closed = |e: io::Error| {
            io::Error::other(format!("the job closed its descriptor, and it cannot be opened again: {e}"))
        };
        // What lies there by now may be a pipe that nobody reads.
        let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&self.path);
        let file = moved(descriptor::open(open).map_err(closed)?);
        if !self.is_it(&file) {
            return Err(closed(io::Error::other("another file lies there")));
        }
        self.file = ManuallyDrop::new(file);
        Ok(())
    }
}

impl Sink for Output {
    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.file.write_all_at(bytes, place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn a_pipe_that_took_the_files_place_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("strandline-output-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        let mut output = Output::new(file, path.clone()).expect("it is a file");
        let number = std::os::fd::AsRawFd::as_raw_fd(&*output.file);
        std::fs::remove_file(&path).expect("it goes");
        let name = CString::new(path.to_str().expect("text")).expect("no zero in it");
        // SAFETY: the descriptor is the output's own, closed as a job would; the path ends with a zero.
        let made = unsafe { libc::close(number) == 0 && libc::mkfifo(name.as_ptr(), 0o600) == 0 };
        assert!(made);
        let error = output.write_at(0, b"page").expect_err("no file lies there").to_string();
        assert!(error.contains("cannot be opened again"), "{error}");
        std::fs::remove_file(&path).expect("it goes");
    }
}
