//! Where bytes come from.

use std::fs::File;
use std::io;

/// Bytes at positions: a file, a slice, something remote. May grow while it is read.
pub trait Source {
    /// Reads from position `at` on; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// How many bytes there are now.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are none.
    ///
    /// # Errors
    /// What the system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

impl Source for File {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|r| !r.is_empty()) {
            match FileExt::read_at(self, rest, at.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Source for Vec<u8> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.as_slice().len() as u64)
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(at, buf)
    }
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }
}

/// Reads exactly `n` bytes into `buf`, or says how many there were.
pub(super) fn fill(s: &dyn Source, at: u64, n: usize, buf: &mut Vec<u8>) -> io::Result<usize> {
    buf.resize(n, 0);
    let got = s.read_at(at, buf)?;
    buf.truncate(got);
    Ok(got)
}
