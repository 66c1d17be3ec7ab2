//! Where pages go. The file's implementation lives with whoever opens it.

use std::io;

/// Takes bytes to places of a file.
pub trait Sink {
    /// Writes all of it at a place, which is at most the file's length.
    ///
    /// # Errors
    /// What the system says (disk full, quota); part of it may have been written.
    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A recording in memory, for tests and tools.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// What was written.
    pub bytes: Vec<u8>,
    /// Fail like a full disk once there are this many bytes.
    pub full_at: Option<usize>,
}

impl Sink for Memory {
    fn write_at(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        let place = usize::try_from(place)
            .ok()
            .filter(|p| *p <= self.bytes.len())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let room = self.full_at.map_or(bytes.len(), |n| n.saturating_sub(place));
        let fits = bytes.get(..room).unwrap_or(bytes);
        let (over, new) = fits.split_at(fits.len().min(self.bytes.len() - place));
        if let Some(to) = self.bytes.get_mut(place..place + over.len()) {
            to.copy_from_slice(over);
        }
        self.bytes.extend_from_slice(new);
        if fits.len() < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
