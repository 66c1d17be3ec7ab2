//! The file as a recording uses it: new pages go where dropped ones were, so that it never grows beyond its bound. See `format::map`.

use super::sink::Sink;
use crate::format::header::BLOCK;
use crate::format::map::{BYTES, Extent, MOST, Map};
use std::io;

/// What of the file is used for what.
pub(super) struct Space {
    map: Map,
    /// Places that are free, and how many bytes each; in the order in which they became so.
    free: Vec<(u64, u64)>,
    /// The file's length.
    length: u64,
    /// Where the header's maps lie.
    maps: u64,
}

impl Space {
    /// The file holds its header and nothing else.
    pub(super) fn new(header: u64) -> Space {
        let maps = header.saturating_sub(BLOCK as u64);
        Space { map: Map::plain(header), free: Vec::new(), length: header, maps }
    }

    /// Writes behind everything that was written before. Where that fails, readers see nothing of it.
    pub(super) fn append<S: Sink>(&mut self, sink: &mut S, mut bytes: &[u8]) -> io::Result<()> {
        let mut map = self.map.clone();
        let mut length = self.length;
        let mut free = self.free.clone();
        while !bytes.is_empty() {
            let last = map.extents.last().map_or(0, |e| e.place.saturating_add(e.bytes));
            // Behind what was written last, else the oldest free place; where the map is full, or nothing is free, behind the file.
            let begins = free.iter().position(|(place, _)| *place == last);
            let chosen = begins.or(if map.extents.len() < MOST { free.first().map(|_| 0) } else { None });
            let (place, room) = chosen.and_then(|i| free.get(i).copied()).unwrap_or((length, u64::MAX));
            let n = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let (now, rest) = bytes.split_at(n);
            sink.write_at(place, now)?;
            let n = n as u64;
            match chosen {
                Some(i) if room == n => drop(free.remove(i)),
                Some(i) => free.get_mut(i).into_iter().for_each(|f| *f = (place + n, room - n)),
                None => length += n,
            }
            let at = map.end;
            match map.extents.last_mut().filter(|e| e.place + e.bytes == place && e.at + e.bytes == at) {
                Some(e) => e.bytes += n,
                None => map.extents.push(Extent { at, place, bytes: n }),
            }
            map.end += n;
            bytes = rest;
        }
        (self.map, self.free, self.length) = (map, free, length);
        // Before anything is dropped, the file's length says it all.
        if self.map.generation > 0 { self.tell(sink) } else { Ok(()) }
    }

    /// Overwrites bytes that are kept.
    pub(super) fn rewrite<S: Sink>(&self, sink: &mut S, at: u64, mut bytes: &[u8]) -> io::Result<()> {
        for (n, place) in self.map.pieces(at, bytes.len() as u64) {
            let (now, rest) = bytes.split_at((n as usize).min(bytes.len()));
            if let Some(place) = place {
                sink.write_at(place, now)?;
            }
            bytes = rest;
        }
        Ok(())
    }

    /// The bytes at positions `from..to` are kept no longer. Their places are used again only after this was told.
    pub(super) fn release<S: Sink>(&mut self, sink: &mut S, from: u64, to: u64) -> io::Result<()> {
        let freed = self.map.pieces(from, to.saturating_sub(from)).filter_map(|(n, place)| Some((place?, n)));
        let freed: Vec<(u64, u64)> = freed.collect();
        let mut kept = Vec::with_capacity(self.map.extents.len() + 1);
        for e in &self.map.extents {
            let end = e.at + e.bytes;
            if e.at < from {
                kept.push(Extent { bytes: end.min(from) - e.at, ..*e });
            }
            if end > to {
                let at = e.at.max(to);
                kept.push(Extent { at, place: e.place + (at - e.at), bytes: end - at });
            }
        }
        self.map.extents = kept;
        self.tell(sink)?;
        freed.into_iter().for_each(|f| self.give(f));
        Ok(())
    }

    /// A place is free: one with its neighbours.
    fn give(&mut self, (place, n): (u64, u64)) {
        if let Some(before) = self.free.iter_mut().find(|(p, m)| *p + *m == place) {
            before.1 += n;
        } else if let Some(after) = self.free.iter_mut().find(|(p, _)| *p == place + n) {
            *after = (place, after.1 + n);
        } else {
            self.free.push((place, n));
        }
    }

    fn tell<S: Sink>(&mut self, sink: &mut S) -> io::Result<()> {
        self.map.generation += 1;
        sink.write_at(self.maps + (self.map.generation % 2) * BYTES as u64, &self.map.encode())
    }

    /// The position behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.map.end
    }

    /// Bytes that are kept.
    pub(super) fn kept(&self) -> u64 {
        self.map.extents.iter().map(|e| e.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sink::Memory;
    use super::*;

    /// What readers find at a position.
    fn read(file: &[u8], at: u64, n: u64) -> Vec<u8> {
        let map = Map::newest(&file[..BLOCK]).unwrap_or_else(|| Map::plain(file.len() as u64));
        let piece = |(n, place): (u64, Option<u64>)| match place {
            Some(p) => file[p as usize..(p + n) as usize].to_vec(),
            None => vec![0; n as usize],
        };
        map.pieces(at, n).flat_map(piece).collect()
    }

    #[test]
    fn the_file_stays_as_long_as_what_is_kept_and_reads_in_order() {
        const HEADER: u64 = BLOCK as u64;
        let mut sink = Memory { bytes: vec![0; BLOCK], ..Memory::default() };
        let mut space = Space::new(HEADER);
        let mut written = vec![0u8; BLOCK];
        // The first forty bytes are never released, as a Skip page's are not.
        space.append(&mut sink, &[7; 40]).unwrap();
        written.extend_from_slice(&[7; 40]);
        let mut from = HEADER + 40;
        for i in 0..2000u64 {
            let bytes: Vec<u8> = (0..1 + i * 7 % 301).map(|n| (i * 31 + n) as u8).collect();
            while space.kept() - HEADER + bytes.len() as u64 > 5000 {
                let to = (from + 777).min(space.end());
                space.release(&mut sink, from, to).unwrap();
                from = to;
            }
            space.append(&mut sink, &bytes).unwrap();
            written.extend_from_slice(&bytes);
            assert_eq!(space.end(), written.len() as u64);
            assert!(sink.bytes.len() as u64 <= HEADER + 5000, "{} bytes", sink.bytes.len());
            assert!(space.map.extents.len() < 8, "{:?}", space.map);
            let tail = &written[from as usize..];
            assert_eq!(read(&sink.bytes, from, tail.len() as u64), tail, "after {i}");
        }
        assert_eq!(read(&sink.bytes, HEADER, 40), &written[BLOCK..BLOCK + 40], "what was never released");
        space.rewrite(&mut sink, HEADER + 3, b"new").unwrap();
        assert_eq!(read(&sink.bytes, HEADER + 2, 5), *b"\x07new\x07");
    }

    #[test]
    fn what_could_not_be_written_is_not_there() {
        let mut sink = Memory { bytes: vec![0; BLOCK], full_at: Some(BLOCK + 100) };
        let mut space = Space::new(BLOCK as u64);
        space.append(&mut sink, &[1; 100]).unwrap();
        space.release(&mut sink, BLOCK as u64, BLOCK as u64 + 50).unwrap();
        assert!(space.append(&mut sink, &[2; 80]).is_err());
        assert_eq!(read(&sink.bytes, BLOCK as u64 + 50, 60), [[1u8; 50].as_slice(), &[0; 10]].concat());
        space.append(&mut sink, &[3; 50]).unwrap();
        assert_eq!(read(&sink.bytes, BLOCK as u64 + 100, 50), [3; 50]);
    }
}
