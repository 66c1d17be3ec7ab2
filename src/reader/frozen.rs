//! A recording as it was at one moment, to be read as often as wanted while its process goes on.

use super::error::Error;
use super::mapped::Mapped;
use super::open::{open_file, open_tail};
use super::opening::head;
use super::source::Source;
use super::state::Reader;
use super::tail::{RingStand, Tail};
use crate::format::header::Header;
use crate::format::region::PART;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How often the tail is copied anew where the process overwrote some of it meanwhile.
const TRIES: usize = 5;

/// A recording that stands still: every reader of it hands out the same items.
///
/// Pages that are written stay as they are, until `--max-size` drops them; what is in the process's memory is copied (some ten MiB).
#[derive(Clone)]
pub struct Frozen {
    file: Arc<File>,
    len: u64,
    tail: Option<Arc<Vec<u8>>>,
    header: (Header, usize),
    /// Its pages by their positions as of then, where some may have been dropped.
    mapped: Option<Arc<Mapped<File>>>,
}

impl Frozen {
    /// Takes the recording at `path` as it is now.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn of(path: impl AsRef<Path>) -> Result<Frozen, Error> {
        let path = path.as_ref();
        let io = |e| Error::Io(path.into(), e);
        let who = Reader::open(path)?;
        let file = Arc::new(open_file(path).map_err(io)?);
        // First the tail, then the length: what left the rings in between is in the pages.
        let tail = who.header.tail.as_deref().and_then(|tail| copy(tail, &who).ok().flatten());
        let (header, length, is_mapped) = head(&*file)?;
        let len = file.metadata().map_err(io)?.len();
        let mapped = if is_mapped {
            let file = file.try_clone().map_err(io)?;
            Some(Arc::new(Mapped::new(file, length).freeze().map_err(io)?))
        } else {
            None
        };
        Ok(Frozen { file, len, tail: tail.map(Arc::new), header: (header, length), mapped })
    }

    /// A reader from the beginning.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn reader(&self) -> Result<Reader, Error> {
        let tail = self.tail.clone().map(|t| Box::new(t) as Box<dyn Source>);
        let source: Box<dyn Source> = match &self.mapped {
            Some(mapped) => Box::new(mapped.clone()),
            None => Box::new(Part { file: self.file.clone(), len: self.len }),
        };
        let (header, length) = self.header.clone();
        Ok(Reader::begin(source, tail, header, length))
    }
}

impl<S: Source> Source for Arc<S> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(at, buf)
    }
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }
}

/// The region's file; `None` where it is not this recording's.
fn copy(place: &str, who: &Reader) -> io::Result<Option<Vec<u8>>> {
    let file = open_tail(place)?;
    let Ok(mut tail) = Tail::open(Box::new(file.try_clone()?), &who.summary().who) else { return Ok(None) };
    let geometry = tail.geometry;
    let mut bytes = Vec::new();
    let (heads, definitions, slots) = (PART, geometry.definitions_start(), geometry.ring_slots(0));
    let end = geometry.bytes();
    for _ in 0..TRIES {
        bytes.resize(end, 0);
        // Heads before what they count, and definitions after the records that name them.
        for part in [heads..definitions, slots..end, 0..heads, definitions..slots] {
            let Some(to) = bytes.get_mut(part.clone()) else { return Ok(None) };
            if file.read_at(part.start as u64, to)? < part.len() {
                return Ok(None);
            }
        }
        let Ok(mut copied) = Tail::open(Box::new(bytes.clone()), &who.summary().who) else { return Ok(None) };
        let (before, after) = (copied.stand()?, tail.stand()?);
        // As in `Tail::records`: an owner writes only into what the drain has given back.
        let kept = |b: &RingStand, a: &RingStand| {
            a.tail <= b.tail || a.head < b.tail.saturating_add(u64::from(geometry.ring_records(b.ring)))
        };
        let rings = before.rings.iter().zip(&after.rings).all(|(b, a)| kept(b, a));
        if rings && tail.first_definition()? <= copied.first_definition()? {
            break;
        }
    }
    Ok(Some(bytes))
}

/// The beginning of a file.
struct Part {
    file: Arc<File>,
    len: u64,
}

impl Source for Part {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let n = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX).min(buf.len());
        buf.get_mut(..n).map_or(Ok(0), |b| Source::read_at(&*self.file, at, b))
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}
