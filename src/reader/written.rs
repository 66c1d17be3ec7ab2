//! The bytes of a recording that stay as they are, while its process writes more: for whoever keeps them elsewhere.
//!
//! Bytes are named by their positions (see `format::map`), and never change, but for two kinds. A Skip page takes the place of what was
//! dropped. And what lies behind the last sweep may be a write that has not come to its end.

use super::error::Error;
use super::mapped::Mapped;
use super::open::open_file;
use super::source::fill;
use crate::format::header::{BLOCK, Header, HeaderError};
use crate::format::page::{FRAME, Frame, MAX_PAYLOAD, Tag};
use crate::format::region::Identity;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The fact that a copy has which was sent while its process ran: every so many seconds.
pub const SHIPPED_EVERY: &str = "shipped_every_seconds";

/// A recording whose bytes are kept elsewhere.
pub struct Written {
    source: Mapped<File>,
    header: Header,
    /// The header's bytes, as a copy has them.
    front: Vec<u8>,
    owner: Option<u32>,
    /// Pages up to here were looked at.
    walked: u64,
    settled: u64,
}

/// How a recording stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Bytes before this position stay as they are.
    pub end: u64,
    /// What was dropped.
    pub gone: Option<Gone>,
}

/// A range that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Where it begins: here is the Skip page.
    pub at: u64,
    /// The position behind it.
    pub end: u64,
    /// The Skip page.
    pub page: Vec<u8>,
}

impl Written {
    /// Opens a recording, to be kept elsewhere every so many seconds: a copy's header has that among its facts, and names no tail.
    ///
    /// # Errors
    /// As [`super::Reader::open`]; its format is one that has no maps.
    pub fn open(path: &Path, every: u64) -> Result<Written, Error> {
        let io = |e| Error::Io(path.into(), e);
        let bad = |e| Error::Header(path.into(), e);
        let file = open_file(path).map_err(io)?;
        let owner = file.metadata().map(|m| m.uid()).ok();
        let mut bytes = Vec::new();
        fill(&file, 0, BLOCK, &mut bytes).map_err(io)?;
        let length = Header::length(&bytes).map_err(bad)?;
        if !Header::is_mapped(&bytes) {
            return Err(io(io::Error::new(io::ErrorKind::Unsupported, "made by a version that is too old")));
        }
        fill(&file, 0, length, &mut bytes).map_err(io)?;
        let front = Header::for_copy(&bytes, SHIPPED_EVERY, every.into()).map_err(bad)?;
        if front.len() < length {
            return Err(bad(HeaderError::Truncated));
        }
        let header = Header::decode(&bytes).map_err(bad)?;
        let (source, at) = (Mapped::new(file, length), length as u64);
        Ok(Written { source, header, front, owner, walked: at, settled: at })
    }

    /// Whose it is, when it began, and its first facts.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whose it is.
    pub fn who(&self) -> &Identity {
        &self.header.who
    }

    /// The user that the file belongs to.
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// How it stands now. `ended`: its process has, so that all of it stays.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::Interrupted`] where it was being changed: look again later.
    pub fn stand(&mut self, ended: bool) -> io::Result<Stand> {
        let map = self.source.now()?;
        if map.generation == 0 {
            self.walk(map.end)?;
            return Ok(Stand { end: if ended { map.end } else { self.settled }, gone: None });
        }
        // Since something was dropped the map says where what was written whole ends.
        let mut at = 0;
        let pieces = map.pieces(0, map.end).map(|(n, place)| {
            at += n;
            (at, place)
        });
        let hole = pieces.take_while(|(_, place)| place.is_some()).map(|(end, _)| end).last().unwrap_or(0);
        let gone = if hole < map.end { Some(self.skip(hole)?) } else { None };
        Ok(Stand { end: map.end, gone })
    }

    /// The bytes at `at..at + n`; `None`: some were dropped meanwhile.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(&self, at: u64, n: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let got = fill(&self.source, at, n, &mut bytes)?;
        // Bytes have one place until they are dropped: what is still there was there all the time.
        let is_kept = self.source.now()?.pieces(at, n as u64).all(|(_, place)| place.is_some());
        if got < n || !is_kept {
            return Ok(None);
        }
        let of_front = self.front.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
        let both = of_front.len().min(n);
        if let (Some(to), Some(from)) = (bytes.get_mut(..both), of_front.get(..both)) {
            to.copy_from_slice(from);
        }
        Ok(Some(bytes))
    }

    /// Finds the last sweep that was written whole.
    fn walk(&mut self, end: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        while let Some(frame) = self.frame(self.walked, &mut bytes)? {
            let after = self.walked.saturating_add(FRAME as u64).saturating_add(frame.length);
            if after > end {
                break;
            }
            if frame.tag == Tag::Sweep as u16 || frame.tag == Tag::End as u16 {
                let payload = frame.payload().min(u64::from(MAX_PAYLOAD)) as usize;
                fill(&self.source, self.walked + FRAME as u64, payload, &mut bytes)?;
                if crc32fast::hash(&bytes) != frame.crc {
                    break;
                }
                self.settled = after;
            }
            self.walked = after;
        }
        Ok(())
    }

    /// The Skip page, which is the last before `hole`.
    fn skip(&self, hole: u64) -> io::Result<Gone> {
        let mut bytes = Vec::new();
        let mut at = self.front.len() as u64;
        while at < hole
            && let Some(frame) = self.frame(at, &mut bytes)?
        {
            let end = at.saturating_add(FRAME as u64).saturating_add(frame.length);
            if frame.tag == Tag::Skip as u16 {
                let size = FRAME + frame.payload().min(u64::from(MAX_PAYLOAD)) as usize;
                fill(&self.source, at, size, &mut bytes)?;
                if bytes.get(FRAME..).is_some_and(|b| crc32fast::hash(b) == frame.crc) {
                    return Ok(Gone { at, end, page: bytes });
                }
                break;
            }
            at = end;
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// The frame at a position, if one is there and whole.
    fn frame(&self, at: u64, bytes: &mut Vec<u8>) -> io::Result<Option<Frame>> {
        fill(&self.source, at, FRAME, bytes)?;
        Ok(Frame::decode(bytes))
    }
}
