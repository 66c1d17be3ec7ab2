//! Recordings that were sent part by part while they grew: what the parts are called, and how a recording is laid out of them.
//!
//! ```text
//! <recording>.parts/<id of its region>/pages-<from>-<to>     bytes at these positions of the recording
//!                                      skip-<from>-<to>      the Skip page of what was dropped there
//!                                      driver-<from>-<to>    bytes of <recording>.watch
//! ```
//!
//! A part never changes. A larger one takes the place of those that it covers, which are removed only once it is there: whoever comes in
//! between, or after a kill, finds all bytes, some of them twice.

use strandline::event::named;
use strandline::format::map::{Extent, MOST, Map};

/// What the folder of a recording's parts has after the recording's name.
const FOLDER: &str = ".parts";

named! {
    /// What a part is of.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Kind {
        /// Pages of the recording.
        Pages = "pages",
        /// The page that says what was dropped.
        Skip = "skip",
        /// The driver's account, which lies beside it.
        Driver = "driver",
    }
}

/// A part: from a position to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A part, as an object is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    /// The recording.
    pub(crate) recording: &'a str,
    /// That of its region.
    pub(crate) id: &'a str,
    pub(crate) part: Part,
}

/// The folder of a recording's parts.
pub(crate) fn folder(recording: &str) -> String {
    format!("{recording}{FOLDER}")
}

impl Part {
    /// What it is called in the folder of its recording.
    pub(crate) fn name(&self) -> String {
        format!("{}-{:020}-{:020}", self.kind.name(), self.from, self.to)
    }

    /// What an object is, if it is one.
    pub(crate) fn parse(name: &str) -> Option<Named<'_>> {
        let (folder, rest) = name.split_once('/')?;
        let (id, own) = rest.split_once('/')?;
        let (kind, range) = own.split_once('-')?;
        let kind = Kind::ALL.into_iter().find(|k| k.name() == kind)?;
        let (from, to) = range.split_once('-')?;
        let part = Part { kind, from: from.parse().ok()?, to: to.parse().ok()? };
        let recording = folder.strip_suffix(FOLDER)?;
        (part.from < part.to && part.name() == own).then_some(Named { recording, id, part })
    }

    /// Bytes that it is of.
    pub(crate) fn len(&self) -> u64 {
        self.to - self.from
    }
}

/// What is taken of a part: all of it, or what lies between these positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) part: Part,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Which parts make the whole, in order: of those that lie over each other the largest. Where one is missing there is a hole.
pub(crate) fn lay(parts: &[Part], kind: Kind) -> Vec<Taken> {
    let skips = parts.iter().filter(|p| kind == Kind::Pages && p.kind == Kind::Skip);
    let skip = skips.max_by_key(|p| p.to);
    let mut own: Vec<Part> = parts.iter().filter(|p| p.kind == kind).copied().collect();
    own.sort_unstable_by_key(|p| p.from);
    let (mut all, mut at, mut next) = (Vec::new(), 0, 0);
    let mut widest: Option<Part> = None;
    loop {
        if let Some(skip) = skip.filter(|s| s.from <= at && at < s.to) {
            all.push(Taken { part: *skip, from: skip.from, to: skip.to });
            at = skip.to;
        }
        while let Some(part) = own.get(next).filter(|p| p.from <= at) {
            widest = widest.filter(|w| w.to >= part.to).or(Some(*part));
            next += 1;
        }
        let until = skip.map(|s| s.from).filter(|from| *from > at);
        if let Some(part) = widest.filter(|w| w.to > at) {
            let to = until.map_or(part.to, |until| part.to.min(until));
            all.push(Taken { part, from: at, to });
            at = to;
            continue;
        }
        // A hole, or the end.
        match own.get(next).map(|p| p.from).into_iter().chain(until).min() {
            Some(behind) => at = behind,
            None => return all,
        }
    }
}

/// Up to where nothing is missing.
pub(crate) fn whole(laid: &[Taken]) -> u64 {
    laid.iter().fold(0, |end, taken| if taken.from == end { taken.to } else { end })
}

/// Where the bytes lie in a file that has one part after the other, as the header of a recording says it; `None`: each at its position.
/// `bytes`: how many a part has.
///
/// # Errors
/// There are more holes than a map can hold: how many.
pub(super) fn map(laid: &[Taken], bytes: impl Fn(&Taken) -> u64) -> Result<Option<Vec<u8>>, usize> {
    let (mut extents, mut place) = (Vec::<Extent>::new(), 0);
    for taken in laid {
        let n = bytes(taken);
        match extents.last_mut().filter(|e| e.at + e.bytes == taken.from) {
            Some(e) => e.bytes += n,
            None => extents.push(Extent { at: taken.from, place, bytes: n }),
        }
        place += n;
    }
    let end = laid.last().map_or(0, |taken| taken.to);
    let is_plain = matches!(&extents[..], [only] if only.at == 0 && only.bytes == end);
    if extents.len() > MOST {
        return Err(extents.len() - 1);
    }
    Ok((!is_plain).then(|| Map { generation: 1, end, extents }.encode()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: Kind, from: u64, to: u64) -> Part {
        Part { kind, from, to }
    }

    #[test]
    fn a_part_is_called_by_what_it_is_of() {
        let one = part(Kind::Pages, 4096, 1 << 40);
        let name = format!("h-r0.strand.parts/00ff/{}", one.name());
        assert_eq!(name, "h-r0.strand.parts/00ff/pages-00000000000000004096-00000001099511627776");
        let named = Part::parse(&name).unwrap();
        assert_eq!((named.recording, named.id, named.part), ("h-r0.strand", "00ff", one));
        let wrong = ["h-r0.strand", "a.parts/1/pages-1-2", "a.parts/pages-0-1", "a.parts/1/other-0-1"];
        for name in wrong {
            assert_eq!(Part::parse(name), None, "{name}");
        }
        let empty = format!("a.parts/1/{}", part(Kind::Skip, 7, 7).name());
        assert_eq!(Part::parse(&empty), None);
    }

    #[test]
    fn the_largest_parts_are_taken_and_what_was_dropped_is_not() {
        let pages = |from, to| part(Kind::Pages, from, to);
        let ranges = |parts: &[Part]| -> Vec<(u64, u64)> {
            lay(parts, Kind::Pages).iter().map(|t| (t.from, t.to)).collect()
        };
        // One that was put together, with what it is made of still there, and two that overlap.
        let mut parts = vec![pages(0, 10), pages(10, 20), pages(0, 30), pages(20, 30), pages(25, 40)];
        assert_eq!(ranges(&parts), [(0, 30), (30, 40)]);
        assert_eq!(whole(&lay(&parts, Kind::Pages)), 40);
        assert_eq!(map(&lay(&parts, Kind::Pages), |t| t.to - t.from), Ok(None), "all lies at its position");
        // Dropped: 5 to 35, where 2 bytes of it are a page.
        parts.extend([part(Kind::Skip, 5, 18), part(Kind::Skip, 5, 35), part(Kind::Driver, 0, 99)]);
        let laid = lay(&parts, Kind::Pages);
        assert_eq!(ranges(&parts), [(0, 5), (5, 35), (35, 40)]);
        assert_eq!(laid[1].part, part(Kind::Skip, 5, 35));
        let bytes = |t: &Taken| if t.part.kind == Kind::Skip { 2 } else { t.to - t.from };
        let read = Map::decode(&map(&laid, bytes).unwrap().unwrap()).unwrap();
        let extents: Vec<_> = read.extents.iter().map(|e| (e.at, e.place, e.bytes)).collect();
        assert_eq!((read.end, &extents[..]), (40, &[(0, 0, 7), (35, 7, 5)][..]));
        // A hole stays one.
        let laid = lay(&[pages(0, 10), pages(20, 30)], Kind::Pages);
        assert_eq!((laid.len(), whole(&laid)), (2, 10));
        assert!(map(&laid, |t| t.to - t.from).unwrap().is_some());
        let torn: Vec<Part> = (0..100).map(|n| pages(n * 10, n * 10 + 5)).collect();
        assert_eq!(map(&lay(&torn, Kind::Pages), |t| t.to - t.from), Err(99));
        assert_eq!(lay(&[], Kind::Pages), []);
    }
}
