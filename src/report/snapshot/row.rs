//! A dict of a pickle, written where it will lie: of a million of them, that is where the time goes.

use super::field::Memo;

/// Fields of a dict at most.
pub(super) const FIELDS: usize = 10;
/// Letters of its text at most: it has one that is new, or none.
pub(super) const LETTERS: usize = 96;
/// Bytes of a dict at most: names of keys and numbers, the text, what begins and ends it and what is written over.
pub(super) const ROOM: usize = FIELDS * (5 + 11) + LETTERS + 32;

/// How something that was written before is named: so many bytes of this number, the lowest first. No array: one that is filled byte by
/// byte and then copied as a whole has the processor wait.
#[inline]
pub(super) fn memo(memo: Memo) -> (u64, usize) {
    let n = u64::from(memo.0) << 8;
    if memo.0 <= 0xff { (n | u64::from(b'h'), 2) } else { (n | u64::from(b'j'), 5) }
}

/// The same of an unsigned integer, and of its bytes those after the eighth.
#[inline]
pub(super) fn number(v: u64) -> (u64, usize, u64) {
    match v {
        0..=0xff => (v << 8 | u64::from(b'K'), 2, 0),
        0x100..=0xffff => (v << 8 | u64::from(b'M'), 3, 0),
        0x1_0000..=0x7fff_ffff => (v << 8 | u64::from(b'J'), 5, 0),
        _ => {
            // LONG1. One more bit than the value has, for the sign.
            let n = (64 - v.leading_zeros() as usize) / 8 + 1;
            (v << 16 | (n as u64) << 8 | 0x8a, n + 2, v >> 48)
        }
    }
}

/// A dict.
pub(super) struct Row<'a> {
    bytes: &'a mut [u8],
    pub(super) n: usize,
}

impl Row<'_> {
    #[inline]
    pub(super) fn new(bytes: &mut [u8]) -> Row<'_> {
        Row { bytes, n: 0 }
    }

    #[inline]
    pub(super) fn memo(&mut self, m: Memo) {
        let (bytes, n) = memo(m);
        self.put(bytes, n);
    }

    #[inline]
    pub(super) fn number(&mut self, v: u64) {
        let (bytes, n, rest) = number(v);
        self.put(bytes, n.min(8));
        if n > 8 {
            self.put(rest, n - 8);
        }
    }

    /// A text that can be named again.
    #[inline]
    pub(super) fn text(&mut self, s: &str) {
        self.put((s.len() as u64) << 8 | 0x8c, 2);
        if let Some(to) = self.bytes.get_mut(self.n..self.n + s.len()) {
            to.copy_from_slice(s.as_bytes());
            self.n += s.len();
        }
        self.put(0x94, 1);
    }

    /// The lowest `n` bytes; the others are written over.
    #[inline]
    pub(super) fn put(&mut self, bytes: u64, n: usize) {
        if let Some(to) = self.bytes.get_mut(self.n..).and_then(<[u8]>::first_chunk_mut) {
            *to = bytes.to_le_bytes();
            self.n += n;
        }
    }
}
