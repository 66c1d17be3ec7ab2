//! Numbers and strings as bytes: LEB128 varints, zigzag, little-endian words; and a cursor that cannot run over the end.

use std::fmt;

/// Bytes that do not say what they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What was being read.
    pub what: &'static str,
    /// Where in the bytes at hand.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {} cannot be decoded", self.what, self.at)
    }
}

impl std::error::Error for Malformed {}

/// Something that bytes are appended to.
pub trait Out {
    /// Appends a byte.
    fn push(&mut self, b: u8);
    /// Appends bytes.
    fn extend_from_slice(&mut self, b: &[u8]);
    /// Bytes so far.
    fn at(&self) -> usize;
    /// Overwrites four bytes that were appended before.
    fn patch(&mut self, at: usize, b: [u8; 4]);
}

impl Out for Vec<u8> {
    fn push(&mut self, b: u8) {
        Vec::push(self, b);
    }
    fn extend_from_slice(&mut self, b: &[u8]) {
        Vec::extend_from_slice(self, b);
    }
    fn at(&self) -> usize {
        self.len()
    }
    fn patch(&mut self, at: usize, b: [u8; 4]) {
        if let Some(old) = self.get_mut(at..at.saturating_add(4)) {
            old.copy_from_slice(&b);
        }
    }
}

/// A piece of memory that is written to from its front, without heap. What does not fit is left out, and then there is no
/// [`Fixed::whole`].
#[derive(Debug)]
pub struct Fixed<'a> {
    bytes: &'a mut [u8],
    at: usize,
    short: bool,
}

impl<'a> Fixed<'a> {
    /// Writes to `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Fixed<'a> {
        Fixed { bytes, at: 0, short: false }
    }
    /// How many bytes were written; `None` where some did not fit.
    pub fn whole(&self) -> Option<usize> {
        (!self.short).then_some(self.at)
    }
}

impl Out for Fixed<'_> {
    fn push(&mut self, b: u8) {
        self.extend_from_slice(&[b]);
    }
    fn extend_from_slice(&mut self, b: &[u8]) {
        match self.bytes.get_mut(self.at..self.at.saturating_add(b.len())) {
            Some(room) => {
                room.copy_from_slice(b);
                self.at += b.len();
            }
            None => self.short = true,
        }
    }
    fn at(&self) -> usize {
        self.at
    }
    fn patch(&mut self, at: usize, b: [u8; 4]) {
        if let Some(old) = self.bytes.get_mut(at..at.saturating_add(4)) {
            old.copy_from_slice(&b);
        }
    }
}

/// Appends an unsigned number, 1 to 10 bytes.
#[inline]
pub fn put<O: Out>(out: &mut O, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends a signed number: small magnitudes are short.
#[inline]
pub fn put_signed(out: &mut Vec<u8>, n: i64) {
    put(out, zigzag(n));
}

/// Appends a length and the bytes.
pub fn put_bytes<O: Out>(out: &mut O, b: &[u8]) {
    put(out, b.len() as u64);
    out.extend_from_slice(b);
}

/// Folds the sign into the lowest bit.
#[inline]
pub fn zigzag(n: i64) -> u64 {
    (n as u64) << 1 ^ (n >> 63) as u64
}

/// The number that [`zigzag`] folded.
#[inline]
pub fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

/// Reads from the front of a slice.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the beginning.
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }
    /// How far it is.
    pub fn at(&self) -> usize {
        self.at
    }
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }
    /// How much is left.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }
    /// The error for what was to be read here.
    pub fn bad(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }
    /// One byte.
    #[inline]
    pub fn byte(&mut self, what: &'static str) -> Result<u8, Malformed> {
        let b = *self.bytes.get(self.at).ok_or(Malformed { what, at: self.at })?;
        self.at += 1;
        Ok(b)
    }
    /// An unsigned varint.
    #[inline]
    pub fn number(&mut self, what: &'static str) -> Result<u64, Malformed> {
        match self.bytes.get(self.at) {
            Some(&b) if b < 0x80 => {
                self.at += 1;
                Ok(u64::from(b))
            }
            _ => self.long_number(what),
        }
    }
    fn long_number(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let start = self.at;
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte(what)?;
            n |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Ok(n);
            }
        }
        Err(Malformed { what, at: start })
    }
    /// An unsigned varint that fits 32 bits.
    pub fn number32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        let at = self.at;
        u32::try_from(self.number(what)?).map_err(|_| Malformed { what, at })
    }
    /// A signed varint.
    #[inline]
    pub fn signed(&mut self, what: &'static str) -> Result<i64, Malformed> {
        Ok(unzigzag(self.number(what)?))
    }
    /// Exactly `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(n).filter(|&e| e <= self.bytes.len());
        let b = end.and_then(|e| self.bytes.get(self.at..e)).ok_or(Malformed { what, at: self.at })?;
        self.at += n;
        Ok(b)
    }
    /// A length and that many bytes.
    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let n = self.number(what)?;
        self.take(usize::try_from(n).unwrap_or(usize::MAX), what)
    }
    /// A length and that much text; what is not UTF-8 is replaced.
    pub fn text(&mut self, what: &'static str) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes(what)?).into_owned())
    }
    /// A count of things that take at least one byte each: it cannot be more than what is left.
    pub fn count(&mut self, what: &'static str) -> Result<usize, Malformed> {
        let at = self.at;
        let n = self.number(what)?;
        usize::try_from(n).ok().filter(|&n| n <= self.left()).ok_or(Malformed { what, at })
    }
    /// A little-endian half word.
    pub fn word32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        let b = self.take(4, what)?;
        Ok(b.iter().rev().fold(0, |w, &x| w << 8 | u32::from(x)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back() {
        for shift in 0..64 {
            for n in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut b = Vec::new();
                put(&mut b, n);
                put_signed(&mut b, n as i64);
                put_signed(&mut b, (n as i64).wrapping_neg());
                let mut c = Cursor::new(&b);
                assert_eq!(c.number("n"), Ok(n));
                assert_eq!(c.signed("n"), Ok(n as i64));
                assert_eq!(c.signed("n"), Ok((n as i64).wrapping_neg()));
                assert!(c.is_empty());
            }
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_at_its_place() {
        let mut c = Cursor::new(&[5, 1, 2]);
        assert_eq!(c.bytes("blob"), Err(Malformed { what: "blob", at: 1 }));
        let mut c = Cursor::new(&[0xff; 10]);
        assert_eq!(c.number("long"), Err(Malformed { what: "long", at: 0 }));
        assert_eq!(Cursor::new(&[9, 0]).count("items"), Err(Malformed { what: "items", at: 0 }));
        assert!(Cursor::new(&[1; 3]).word32("word").is_err());
    }
}
