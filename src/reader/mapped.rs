//! A recording's bytes by their positions, wherever they lie in its file: see `format::map`.
//!
//! Its process may drop bytes and write new ones in their place at any moment. What was dropped by the time that it has been read
//! is handed out as zeros, which are no page.

use super::source::{Source, fill};
use crate::format::header::BLOCK;
use crate::format::map::Map;
use std::io;

/// A file with maps in it.
pub(super) struct Mapped<S = Box<dyn Source>> {
    file: S,
    /// Where they lie.
    maps: u64,
    /// The recording as it was at one moment; `None`: as it is.
    moment: Option<Map>,
}

impl<S: Source> Mapped<S> {
    /// Of a recording whose header has so many bytes.
    pub(super) fn new(file: S, header: usize) -> Mapped<S> {
        Mapped { file, maps: header.saturating_sub(BLOCK) as u64, moment: None }
    }

    /// The same, at rest: as long as it is now.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn freeze(mut self) -> io::Result<Mapped<S>> {
        self.moment = Some(self.now()?);
        Ok(self)
    }

    /// Where the bytes lie that are kept now.
    pub(super) fn now(&self) -> io::Result<Map> {
        let mut block = Vec::new();
        fill(&self.file, self.maps, BLOCK, &mut block)?;
        Map::newest(&block).map_or_else(|| Ok(Map::plain(self.file.len()?)), Ok)
    }
}

impl<S: Source> Source for Mapped<S> {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let map = match &self.moment {
            Some(map) => map.clone(),
            None => self.now()?,
        };
        let wanted = (buf.len() as u64).min(map.end.saturating_sub(at)) as usize;
        let mut done = 0;
        for (n, place) in map.pieces(at, wanted as u64) {
            let Some(to) = buf.get_mut(done..done + n as usize) else { break };
            match place {
                Some(place) => {
                    let got = self.file.read_at(place, to)?;
                    if got < to.len() {
                        return Ok(done + got);
                    }
                }
                None => to.fill(0),
            }
            done += n as usize;
        }
        let after = self.now()?;
        if after.generation > map.generation {
            let mut from = 0;
            for (n, place) in map.pieces(at, done as u64) {
                let (mut was, end) = (place, from + n);
                for (n, is) in after.pieces(at + from, n) {
                    if is != was
                        && let Some(gone) = buf.get_mut(from as usize..(from + n) as usize)
                    {
                        gone.fill(0);
                    }
                    from += n;
                    was = was.map(|place| place + n);
                }
                from = end;
            }
        }
        Ok(done)
    }

    fn len(&self) -> io::Result<u64> {
        match &self.moment {
            Some(map) => Ok(map.end),
            None => Ok(self.now()?.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::map::Extent;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// A file that changes while it is read.
    struct Changing(Rc<RefCell<Vec<u8>>>, RefCell<Option<(u64, Vec<u8>)>>);

    impl Source for Changing {
        fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
            let got = Source::read_at(&*self.0.borrow(), at, buf);
            // Once something that is no map was read.
            if at >= BLOCK as u64
                && let Some((place, bytes)) = self.1.take()
            {
                self.0.borrow_mut()[place as usize..place as usize + bytes.len()].copy_from_slice(&bytes);
            }
            got
        }
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.borrow().len() as u64)
        }
    }

    fn read(s: &impl Source, at: u64, n: usize) -> Vec<u8> {
        let mut out = Vec::new();
        fill(s, at, n, &mut out).unwrap();
        out
    }

    #[test]
    fn what_is_dropped_while_it_is_read_is_zeros_and_the_rest_is_whole() {
        const AT: u64 = BLOCK as u64;
        let mut file = vec![0; BLOCK];
        file.extend_from_slice(b"abcdefgh");
        let extent = |at, place, bytes| Extent { at, place, bytes };
        let dropped = Map {
            generation: 1,
            end: AT + 10,
            extents: vec![extent(0, 0, AT), extent(AT + 4, AT + 4, 4), extent(AT + 8, AT, 2)],
        };
        let shared = Rc::new(RefCell::new(file));
        let changing = || Changing(shared.clone(), RefCell::new(None));
        let whole = Mapped::new(changing(), BLOCK);
        assert_eq!((read(&whole, AT, 9), whole.len().unwrap()), (b"abcdefgh".to_vec(), AT + 8));
        let rests = Mapped::new(changing(), BLOCK).freeze().unwrap();
        let mut change = changing();
        change.1 = RefCell::new(Some((0, dropped.encode())));
        let s = Mapped::new(change, BLOCK);
        assert_eq!(read(&s, AT, 8), b"\0\0\0\0efgh", "it was dropped meanwhile");
        shared.borrow_mut()[BLOCK..BLOCK + 2].copy_from_slice(b"IJ");
        assert_eq!((read(&s, AT, 20), s.len().unwrap()), (b"\0\0\0\0efghIJ".to_vec(), AT + 10));
        assert_eq!((read(&rests, AT, 20), rests.len().unwrap()), (b"\0\0\0\0efgh".to_vec(), AT + 8));
    }
}
