//! The pages of a file one after the other, and the way back to them after damage.

use super::source::{Source, fill};
use crate::format::page::{FRAME, Frame, MAGIC, MAX_PAYLOAD, Opener, Tag};
use std::io;

/// How much is searched at once for the next page.
const WINDOW: usize = 64 << 10;

/// Position in the file.
pub(super) struct Pages {
    at: u64,
    frame_bytes: Vec<u8>,
    disk: Vec<u8>,
    opener: Opener,
}

/// What comes next.
pub(super) enum Next<'a> {
    /// A page, whole. `at` is where it begins.
    Page {
        /// Where its frame begins.
        at: u64,
        /// Its frame.
        frame: Frame,
        /// Its payload.
        payload: &'a [u8],
    },
    /// A page whose payload is not right; it was passed over.
    Bad {
        /// Where its frame begins.
        at: u64,
        /// Its frame.
        frame: Frame,
        /// What is wrong.
        why: &'static str,
    },
    /// What should be a page is none. [`Pages::resync`] finds the next.
    Lost(u64),
    /// The file ends in the middle of a page that begins here.
    Cut(u64),
    /// The file ends here.
    End,
}

impl Pages {
    pub(super) fn new(at: u64) -> Pages {
        Pages { at, frame_bytes: Vec::new(), disk: Vec::new(), opener: Opener::default() }
    }

    pub(super) fn next<'a>(&'a mut self, s: &dyn Source) -> io::Result<Next<'a>> {
        let at = self.at;
        match fill(s, at, FRAME, &mut self.frame_bytes)? {
            0 => return Ok(Next::End),
            FRAME => {}
            _ => return Ok(Next::Cut(at)),
        }
        let Some(frame) = Frame::decode(&self.frame_bytes) else { return Ok(Next::Lost(at)) };
        let body = at.saturating_add(FRAME as u64);
        let after = body.saturating_add(frame.length);
        if frame.payload() > u64::from(MAX_PAYLOAD) || frame.raw > MAX_PAYLOAD {
            // Too large for any page of this version: an unknown one is passed over unread, any other is no page.
            if Tag::from_u16(frame.tag).is_some() {
                return Ok(Next::Lost(at));
            }
            if after > s.len()? {
                return Ok(Next::Cut(at));
            }
            self.at = after;
            return Ok(Next::Bad { at, frame, why: "too large to be read" });
        }
        // The length is checked before memory is taken for it.
        let need = if frame.tag == Tag::Skip as u16 { body + frame.payload() } else { after };
        if need > s.len()? {
            return Ok(Next::Cut(at));
        }
        let payload = frame.payload() as usize;
        if fill(s, body, payload, &mut self.disk)? < payload {
            return Ok(Next::Cut(at));
        }
        self.at = after;
        match self.opener.open(&frame, &self.disk) {
            Ok(payload) => Ok(Next::Page { at, frame, payload }),
            Err(why) => Ok(Next::Bad { at, frame, why }),
        }
    }

    /// Where the next call of `next` looks.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Goes to the next page behind `from`. Returns where that is: the end where there is none.
    pub(super) fn resync(&mut self, s: &dyn Source, from: u64) -> io::Result<u64> {
        let mut at = from.saturating_add(1);
        loop {
            // A frame's length of overlap, so that none is missed between two windows.
            let got = fill(s, at, WINDOW + FRAME, &mut self.disk)?;
            if got < FRAME {
                self.at = at.saturating_add(got as u64);
                return Ok(self.at);
            }
            let starts = self.disk.windows(FRAME).enumerate();
            let mut found = starts.filter(|(_, w)| w.starts_with(&MAGIC) && Frame::decode(w).is_some());
            if let Some((i, _)) = found.next() {
                self.at = at.saturating_add(i as u64);
                return Ok(self.at);
            }
            at = at.saturating_add((got - FRAME + 1) as u64);
        }
    }
}
