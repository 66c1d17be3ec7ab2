//! A tail kept beside its recording: what a dead process left on tmpfs, packed, so that the memory it takes can be given
//! back and the recording still reads to the last event.
//!
//! The packed form is the region itself with everything that was already in pages zeroed, through zstd.

use super::open::open_file;
use super::source::fill;
use super::state::Reader;
use super::tail::{Tail, word};
use crate::format::raw;
use crate::format::region::{at, ring_at};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// No region is larger: a packed tail that claims more is none.
const LARGEST: usize = 256 << 20;
const LEVEL: i32 = 3;

/// Where the tail of the recording at `path` is kept.
pub fn kept_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tail");
    name.into()
}

/// The kept tail of the recording at `path`, unpacked; `None` where there is none or it is not one.
pub(super) fn kept(path: &Path) -> Option<Vec<u8>> {
    let mut packed = Vec::new();
    open_file(&kept_path(path)).ok()?.take(LARGEST as u64).read_to_end(&mut packed).ok()?;
    let size = zstd::zstd_safe::get_frame_content_size(&packed).ok()??;
    let size = usize::try_from(size).ok().filter(|&s| s <= LARGEST)?;
    zstd::bulk::decompress(&packed, size).ok()
}

impl Reader {
    /// The tail, packed, to be kept at [`kept_path`]; `None` where the recording has no tail of its own any more, or its process wrote
    /// all of it into pages before it ended.
    /// Only for a process that has ended.
    ///
    /// # Errors
    /// The tail cannot be read.
    pub fn pack_tail(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.kept {
            return Ok(None);
        }
        let Some(tail) = &mut self.tail else { return Ok(None) };
        if tail.stand()?.ended {
            return Ok(None);
        }
        let whole = tail.unconsumed()?;
        zstd::bulk::compress(&whole, LEVEL).map(Some)
    }
}

impl Tail {
    /// The region, zeroed but for its heads and what is published and in no page.
    fn unconsumed(&mut self) -> io::Result<Vec<u8>> {
        let g = self.geometry;
        let mut out = vec![0; g.bytes()];
        let mut copied = Vec::new();
        self.copy(0, g.definitions_start(), &mut copied, &mut out)?;
        let capacity = u64::from(g.definitions);
        let (head, tail) = (word(&out, at::DEF_HEAD), word(&out, at::DEF_TAIL));
        for (slot, n) in runs(tail, head, capacity) {
            self.copy(g.definitions_start() + slot as usize, n as usize, &mut copied, &mut out)?;
        }
        for ring in 0..=g.lanes {
            let r = g.ring_head(ring);
            let (head, tail) = (word(&out, r + ring_at::HEAD), word(&out, r + ring_at::TAIL));
            for (slot, n) in runs(tail, head, u64::from(g.ring_records(ring))) {
                let place = g.ring_slots(ring) + slot as usize * raw::BYTES;
                self.copy(place, n as usize * raw::BYTES, &mut copied, &mut out)?;
            }
        }
        Ok(out)
    }

    fn copy(&self, place: usize, n: usize, through: &mut Vec<u8>, out: &mut [u8]) -> io::Result<()> {
        let got = fill(&*self.source, place as u64, n, through)?;
        if let Some(to) = out.get_mut(place..place.saturating_add(got)) {
            to.copy_from_slice(through);
        }
        Ok(())
    }
}

/// The at most two runs of slots that hold `from..to` of a ring; none where that cannot be.
fn runs(from: u64, to: u64, capacity: u64) -> impl Iterator<Item = (u64, u64)> {
    let total = to.checked_sub(from).filter(|n| *n <= capacity && capacity > 0).unwrap_or(0);
    let slot = from & capacity.saturating_sub(1);
    let first = total.min(capacity - slot.min(capacity));
    [(slot, first), (0, total - first)].into_iter().filter(|(_, n)| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn a_run_that_wraps_is_two() {
        let all = |a, b| runs(a, b, 8).collect::<Vec<_>>();
        assert_eq!(all(3, 6), [(3, 3)]);
        assert_eq!(all(6, 11), [(6, 2), (0, 3)]);
        assert_eq!(all(8, 16), [(0, 8)]);
        assert_eq!(all(5, 5), []);
        assert_eq!(all(9, 5), []);
        assert_eq!(all(0, 9), []);
    }
}
