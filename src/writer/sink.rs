//! Where pages go. The file's implementation lives with whoever opens it.

use std::io;

/// Takes bytes in order, and lets some of them go again.
pub trait Sink {
    /// Appends all of it.
    ///
    /// # Errors
    /// What the system says (disk full, quota); part of it may have been written.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Frees the storage of the range `from..to` (multiples of 4096) without changing the file's length; it reads as zeros
    /// from then on. `false`: this file system cannot.
    ///
    /// # Errors
    /// What the system says.
    fn punch(&mut self, from: u64, to: u64) -> io::Result<bool>;

    /// Overwrites bytes that were written before.
    ///
    /// # Errors
    /// What the system says.
    fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

/// A recording in memory, for tests and tools.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// What was written.
    pub bytes: Vec<u8>,
    /// Bytes that were punched out.
    pub punched: u64,
    /// Fail like a full disk once there are this many bytes.
    pub full_at: Option<usize>,
    /// Answer `false` to [`Sink::punch`].
    pub cannot_punch: bool,
}

impl Sink for Memory {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.full_at.map_or(bytes.len(), |n| n.saturating_sub(self.bytes.len()));
        let fits = bytes.get(..room).unwrap_or(bytes);
        self.bytes.extend_from_slice(fits);
        if fits.len() < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn punch(&mut self, from: u64, to: u64) -> io::Result<bool> {
        if self.cannot_punch {
            return Ok(false);
        }
        let range = from as usize..to as usize;
        self.bytes.get_mut(range).ok_or(io::ErrorKind::InvalidInput)?.fill(0);
        self.punched += to - from;
        Ok(true)
    }

    fn rewrite(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = at as usize;
        self.bytes.get_mut(at..at + bytes.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(bytes);
        Ok(())
    }
}
