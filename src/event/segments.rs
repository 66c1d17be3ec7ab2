//! Segments, and mapped ranges of expandable ones, by address.

use super::{Addr, Bytes, OpenSegment};
use std::collections::BTreeMap;

/// Segments of one device.
#[derive(Clone, Debug, Default)]
pub struct Segments(BTreeMap<u64, OpenSegment>);

impl Segments {
    /// Puts a segment; false where one already begins there (it is replaced).
    pub fn put(&mut self, s: OpenSegment) -> bool {
        self.0.insert(s.addr.0, s).is_none()
    }

    /// Takes the segment that begins at `addr`.
    pub fn take(&mut self, addr: Addr) -> Option<OpenSegment> {
        self.0.remove(&addr.0)
    }

    /// Takes the range out of whatever is mapped there; says how many of its bytes were.
    pub fn unmap(&mut self, addr: Addr, size: Bytes) -> u64 {
        let (from, to) = (addr.0, addr.end(size).0);
        let before = self.0.range(..from).next_back().map(|(a, _)| *a);
        let touched: Vec<u64> = before.into_iter().chain(self.0.range(from..to).map(|(a, _)| *a)).collect();
        let mut found = 0;
        for a in touched {
            let Some(s) = self.0.remove(&a) else { continue };
            let end = s.addr.end(s.size).0;
            let (cut_from, cut_to) = (from.max(a), to.min(end));
            if cut_from >= cut_to {
                self.0.insert(a, s);
                continue;
            }
            found = u64::saturating_add(found, cut_to - cut_from);
            if cut_from > a {
                self.0.insert(a, OpenSegment { size: Bytes(cut_from - a), ..s });
            }
            if cut_to < end {
                self.0.insert(cut_to, OpenSegment { addr: Addr(cut_to), size: Bytes(end - cut_to), ..s });
            }
        }
        found
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = &OpenSegment> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapping_cuts_ranges() {
        let mut s = Segments::default();
        for a in [100, 200, 400] {
            assert!(s.put(OpenSegment { addr: Addr(a), size: Bytes(100), ..OpenSegment::default() }));
        }
        assert_eq!(
            s.unmap(Addr(150), Bytes(300)),
            200,
            "50 of the first, all of the second, 50 of the third"
        );
        let left: Vec<(u64, u64)> = s.iter().map(|x| (x.addr.0, x.size.0)).collect();
        assert_eq!(left, [(100, 50), (450, 50)]);
        assert_eq!(s.unmap(Addr(u64::MAX - 5), Bytes(100)), 0);
        assert_eq!(s.take(Addr(100)).map(|x| x.size.0), Some(50));
    }
}
