//! A recording that is still being written.

use super::error::Error;
use super::state::{Batch, PATIENCE, Reader, Stage};
use crate::event::Names;
use std::path::Path;

/// Follows a live recording: pages as they come, and what the process published since the last one.
///
/// ```no_run
/// # fn main() -> Result<(), strandline::reader::Error> {
/// # let process_is_alive = || false;
/// use strandline::reader::Follower;
/// let mut f = Follower::open("train-r0.strand")?;
/// loop {
///     let alive = process_is_alive(); // asked before the poll: what it did before it died is then seen
///     if alive { f.poll() } else { f.finish() }
///     while let Some(_batch) = f.next_batch() { /* … */ }
///     if !alive || f.reader().summary().complete { break }
///     std::thread::sleep(std::time::Duration::from_millis(200));
/// }
/// # Ok(())
/// # }
/// ```
///
/// Events come one poll late at most (see `format::merge` for why they wait), or at once where the process is idle.
pub struct Follower {
    reader: Reader,
}

impl Follower {
    /// Opens the recording and its tail.
    ///
    /// # Errors
    /// As [`Reader::open`]. A file whose header is not complete yet is a [`super::Error::Header`]: try again later.
    pub fn open(path: impl AsRef<Path>) -> Result<Follower, Error> {
        Ok(Follower::from_reader(Reader::open(path)?))
    }

    /// Follows what a reader that has not been used yet was opened on.
    pub fn from_reader(mut reader: Reader) -> Follower {
        reader.live = true;
        Follower { reader }
    }

    /// Looks for what is new; [`Follower::next_batch`] then hands it out. Take everything before the next poll.
    pub fn poll(&mut self) {
        let r = &mut self.reader;
        // Memory is found as soon as whoever keeps it has taken it, which may be later than the header.
        r.find_tail();
        if r.stage == Stage::Waiting {
            r.merge.reopen();
            r.stage = Stage::Pages;
        }
        r.follow.patience = PATIENCE;
    }

    /// The process is dead: everything that is left is handed out, and what is wrong is listed.
    pub fn finish(&mut self) {
        let r = &mut self.reader;
        r.live = false;
        r.find_tail();
        r.follow.patience = PATIENCE;
        if r.stage == Stage::Waiting {
            r.stage = Stage::Pages;
        }
    }

    /// The next events or item; `None` until the next poll.
    pub fn next_batch(&mut self) -> Option<Batch<'_>> {
        self.reader.next_batch()
    }

    /// Names defined so far.
    pub fn names(&self) -> &Names {
        self.reader.names()
    }

    /// The reader: summary, damage.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The reader, for what is done with it once everything has been read.
    pub fn reader_mut(&mut self) -> &mut Reader {
        &mut self.reader
    }
}

impl Reader {
    /// Whether it is worth looking again in this poll.
    pub(super) fn has_patience(&mut self) -> bool {
        self.follow.patience = self.follow.patience.saturating_sub(1);
        self.follow.patience > 0
    }

    /// A poll has taken everything there was: what is older than the newest record of the poll before is in order now. Where
    /// nothing came at all since then, everything is.
    pub(super) fn settle(&mut self) {
        self.merge.end_sweep(self.follow.newest);
        if self.summary.records == self.follow.records {
            self.merge.end();
        }
        self.follow.newest = self.merge.newest();
        self.follow.records = self.summary.records;
    }
}
