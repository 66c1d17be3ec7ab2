//! The recording's file, as the writing thread has it.

use crate::platform::descriptor::{self, moved};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::{FileExt, MetadataExt};
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
        let open = || OpenOptions::new().write(true).open(&self.path);
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
