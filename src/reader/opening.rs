//! How a reader comes to its recording and to the tail.

use super::error::Error;
use super::mapped::Mapped;
use super::source::{Source, fill};
use super::state::Reader;
use super::summary::TailState;
use super::{kept, open};
use crate::format::header::{BLOCK, Header};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The header of a recording, its bytes, and whether behind it is a [`Mapped`] recording.
pub(super) fn head(source: &dyn Source) -> Result<(Header, usize, bool), Error> {
    let io = |e| Error::Io(PathBuf::new(), e);
    let bad = |e| Error::Header(PathBuf::new(), e);
    let mut bytes = Vec::new();
    fill(source, 0, BLOCK, &mut bytes).map_err(io)?;
    let length = Header::length(&bytes).map_err(bad)?;
    let is_mapped = Header::is_mapped(&bytes);
    fill(source, 0, length, &mut bytes).map_err(io)?;
    Ok((Header::decode(&bytes).map_err(bad)?, length, is_mapped))
}

impl Reader {
    /// Opens the recording at `path`, and the tail that its header names where that is still there.
    ///
    /// # Errors
    /// The file cannot be read, or is no recording. Damage behind the header is no error: see [`Reader::damage`].
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, Error> {
        let path = path.as_ref();
        let mut reader = Reader::without_tail(path)?;
        reader.path = path.into();
        reader.find_tail();
        Ok(reader)
    }

    /// Opens the recording at `path` with a tail that is at hand already.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn with_tail(path: impl AsRef<Path>, tail: File) -> Result<Reader, Error> {
        let mut reader = Reader::without_tail(path.as_ref())?;
        reader.attach_tail(Box::new(tail));
        Ok(reader)
    }

    fn without_tail(path: &Path) -> Result<Reader, Error> {
        let file = open::open_file(path).map_err(|e| Error::Io(path.into(), e))?;
        let owner = file.metadata().map(|m| m.uid()).ok();
        let mut reader = Reader::from_source(Box::new(file), None).map_err(|e| match e {
            Error::Io(_, e) => Error::Io(path.into(), e),
            Error::Header(_, e) => Error::Header(path.into(), e),
        })?;
        reader.summary.owner = owner;
        Ok(reader)
    }

    /// Looks for the tail that the header names, where it is not attached yet, and for one kept beside the recording.
    pub(super) fn find_tail(&mut self) {
        if self.tail.is_some() || self.path.as_os_str().is_empty() {
            return;
        }
        if let Some(text) = self.header.tail.clone() {
            match open::open_tail(&text) {
                Ok(file) => self.attach_tail(Box::new(file)),
                Err(e) => self.summary.tail = TailState::Absent(e.to_string()),
            }
        }
        if self.tail.is_none()
            && !self.live
            && let Some(kept) = kept::kept(&self.path)
        {
            self.attach_tail(Box::new(kept));
            self.kept = self.tail.is_some();
        }
    }

    /// Reads a recording and its tail from anywhere.
    ///
    /// # Errors
    /// As [`Reader::open`], with an empty path.
    pub fn from_source(source: Box<dyn Source>, tail: Option<Box<dyn Source>>) -> Result<Reader, Error> {
        let (header, length, is_mapped) = head(&*source)?;
        let source = if is_mapped { Box::new(Mapped::new(source, length)) } else { source };
        Ok(Reader::begin(source, tail, header, length))
    }
}
