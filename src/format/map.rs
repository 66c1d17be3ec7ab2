//! Where the bytes of a recording lie in its file, once some of them were dropped: a file that may not grow puts new pages where old
//! ones were.
//!
//! Positions in a recording (of pages, in a Skip page's length) count every byte that was ever written. As long as nothing was dropped
//! they are positions in the file. After that, the last block of the header says where what is kept lies. It holds two maps, written in
//! turn, so that one of them is whole at any moment; the whole one of the higher generation counts.
//!
//! ```text
//! 0   magic u32   4  count u32   8  generation u64   16  end u64   24  count x (position u64, place u64, bytes u64)
//! 2044  crc32 u32 of the 2044 bytes before
//! ```

use super::header::BLOCK;

/// First four bytes of a map.
const MAGIC: u32 = u32::from_le_bytes(*b"\xf5SLM");
/// Bytes of a map: two fill the block.
pub const BYTES: usize = BLOCK / 2;
const FIXED: usize = 24;
const EXTENT: usize = 24;
/// Extents that a map holds.
pub const MOST: usize = (BYTES - FIXED - 4) / EXTENT;

/// Bytes that are kept, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Position of the first in the recording.
    pub at: u64,
    /// Its place in the file.
    pub place: u64,
    /// How many.
    pub bytes: u64,
}

/// A map: extents in the order of their positions, none beyond `end`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Map {
    /// Counts the maps of a recording, from 1.
    pub generation: u64,
    /// The position behind the last byte.
    pub end: u64,
    /// What is kept.
    pub extents: Vec<Extent>,
}

impl Map {
    /// Everything lies where its position says.
    pub fn plain(end: u64) -> Map {
        Map { generation: 0, end, extents: vec![Extent { at: 0, place: 0, bytes: end }] }
    }

    /// As bytes; at most [`MOST`] extents.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&(self.extents.len() as u32).to_le_bytes());
        let words = [self.generation, self.end].into_iter();
        let extents = self.extents.iter().take(MOST).flat_map(|e| [e.at, e.place, e.bytes]);
        words.chain(extents).for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
        out.resize(BYTES - 4, 0);
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// The map in `b`, if there is one and it is whole.
    pub fn decode(b: &[u8]) -> Option<Map> {
        let b = b.get(..BYTES)?;
        let word = |at: usize| Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
        let count = half(4)? as usize;
        if half(0)? != MAGIC || count > MOST || crc32fast::hash(b.get(..BYTES - 4)?) != half(BYTES - 4)? {
            return None;
        }
        let extent = |i: usize| {
            let from = FIXED + i * EXTENT;
            Some(Extent { at: word(from)?, place: word(from + 8)?, bytes: word(from + 16)? })
        };
        let extents: Vec<Extent> = (0..count).map(extent).collect::<Option<_>>()?;
        let map = Map { generation: word(8)?, end: word(16)?, extents };
        let ends = map
            .extents
            .iter()
            .map(|e| e.at.checked_add(e.bytes).filter(|_| e.place.checked_add(e.bytes).is_some()));
        let ends: Vec<u64> = ends.collect::<Option<_>>()?;
        let follows = map.extents.iter().skip(1).zip(&ends).all(|(e, end)| e.at >= *end);
        (follows && ends.last().is_none_or(|end| *end <= map.end)).then_some(map)
    }

    /// The map that counts, in a header's last block; `None`: nothing was dropped.
    pub fn newest(block: &[u8]) -> Option<Map> {
        let all = [Map::decode(block), block.get(BYTES..).and_then(Map::decode)];
        all.into_iter().flatten().max_by_key(|m| m.generation)
    }

    /// The range of positions `at..at+bytes`, piece by piece: how many bytes, and their place; `None`: they were dropped.
    pub fn pieces(&self, at: u64, bytes: u64) -> impl Iterator<Item = (u64, Option<u64>)> {
        let end = at.saturating_add(bytes);
        let mut from = at;
        let mut next = self.extents.partition_point(|e| e.at.saturating_add(e.bytes) <= at);
        std::iter::from_fn(move || {
            if from >= end {
                return None;
            }
            let piece = match self.extents.get(next) {
                Some(e) if e.at <= from => {
                    next += 1;
                    let n = (e.at + e.bytes).min(end) - from;
                    (n, Some(e.place + (from - e.at)))
                }
                Some(e) => (e.at.min(end) - from, None),
                None => (end - from, None),
            };
            from += piece.0;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Map {
        let extent = |at, place, bytes| Extent { at, place, bytes };
        Map {
            generation: 7,
            end: 400,
            extents: vec![extent(0, 0, 10), extent(100, 50, 100), extent(200, 10, 40), extent(300, 500, 100)],
        }
    }

    #[test]
    fn the_whole_map_of_the_higher_generation_counts() {
        let (old, new) = (sample(), Map { generation: 8, ..sample() });
        let mut block = [old.encode(), new.encode()].concat();
        assert_eq!((block.len(), Map::newest(&block)), (BLOCK, Some(new)));
        block[BYTES + 40] ^= 1;
        assert_eq!(Map::newest(&block), Some(old), "the newer one is being written");
        assert_eq!(Map::newest(&[0; BLOCK]), None);
        let wrong = Map { end: 350, ..sample() };
        assert_eq!(Map::decode(&wrong.encode()), None, "an extent beyond the end");
        let huge = Extent { at: u64::MAX, place: 0, bytes: 2 };
        assert_eq!(Map::decode(&Map { extents: vec![huge], ..sample() }.encode()), None);
    }

    #[test]
    fn pieces_are_what_is_kept_and_what_is_not() {
        let map = sample();
        let all = |at, n| map.pieces(at, n).collect::<Vec<_>>();
        assert_eq!(all(0, 10), [(10, Some(0))]);
        assert_eq!(all(5, 100), [(5, Some(5)), (90, None), (5, Some(50))]);
        assert_eq!(all(150, 100), [(50, Some(100)), (40, Some(10)), (10, None)]);
        assert_eq!(all(390, 30), [(10, Some(590)), (20, None)]);
        assert_eq!(all(7, 0), []);
    }
}
