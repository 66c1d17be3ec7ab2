//! A snapshot as JSON: what memory_viz tries first, and what other programs read. The methods are those of [`super::pickle::Pickler`].
//!
//! JSON cannot name what was written before, so shared values are kept as they were rendered and written again: files are several
//! times as large as pickles.

use std::io::{self, Write};

use super::field::{CHUNK, Memo};
use super::words::Word;

/// A writer of one JSON value.
pub(super) struct Json<W: Write> {
    out: W,
    buf: Vec<u8>,
    rendered: Vec<Box<[u8]>>,
    open: Vec<Open>,
    /// Containers that are open and shared: where each begins in `buf`, which is kept until they are closed.
    shared: usize,
}

/// A container that is being filled.
struct Open {
    dict: bool,
    /// Items so far (for a dict: keys and values).
    items: u64,
    /// Its number, and where it begins in the buffer, where it can be named again.
    shared: Option<(u32, usize)>,
}

impl<W: Write> Json<W> {
    pub(super) fn new(out: W) -> Json<W> {
        Json { out, buf: Vec::new(), rendered: Vec::new(), open: Vec::new(), shared: 0 }
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.buf.push(b'\n');
        self.out.write_all(&self.buf)?;
        self.out.flush()?;
        Ok(self.out)
    }

    pub(super) fn container(&mut self, dict: bool, shared: bool) -> io::Result<Memo> {
        self.item()?;
        let number = self.rendered.len() as u32;
        let shared = shared.then_some((number, self.buf.len()));
        if shared.is_some() {
            self.rendered.push(Box::default());
            self.shared += 1;
        }
        self.buf.push(if dict { b'{' } else { b'[' });
        self.open.push(Open { dict, items: 0, shared });
        Ok(Memo(number))
    }

    pub(super) fn close(&mut self) -> io::Result<()> {
        let Some(o) = self.open.pop() else { return Ok(()) };
        self.buf.push(if o.dict { b'}' } else { b']' });
        if let Some((number, from)) = o.shared {
            self.rendered[number as usize] = self.buf[from..].into();
            self.shared -= 1;
        }
        self.spill()
    }

    pub(super) fn again(&mut self, memo: Memo) -> io::Result<()> {
        self.item()?;
        self.buf.extend_from_slice(&self.rendered[memo.0 as usize]);
        self.spill()
    }

    /// A text that can be written again.
    pub(super) fn shared_text(&mut self, s: &str) -> io::Result<Memo> {
        self.item()?;
        let from = self.buf.len();
        serde_json::to_writer(&mut self.buf, s)?;
        self.rendered.push(self.buf[from..].into());
        Ok(Memo(self.rendered.len() as u32 - 1))
    }

    /// A text that is not worth remembering.
    pub(super) fn text(&mut self, s: &str) -> io::Result<()> {
        self.item()?;
        serde_json::to_writer(&mut self.buf, s)?;
        Ok(())
    }

    pub(super) fn put_word(&mut self, w: Word) -> io::Result<()> {
        self.text(w.name())
    }

    pub(super) fn unsigned(&mut self, v: u64) -> io::Result<()> {
        self.plain(v)
    }

    pub(super) fn int(&mut self, v: impl Into<i128>) -> io::Result<()> {
        self.plain(v.into())
    }

    pub(super) fn bool(&mut self, v: bool) -> io::Result<()> {
        self.plain(v)
    }

    /// Must be finite: JSON has no other.
    pub(super) fn float(&mut self, v: f64) -> io::Result<()> {
        self.plain(if v.is_finite() { v } else { 0.0 })
    }

    fn plain(&mut self, v: impl std::fmt::Display) -> io::Result<()> {
        self.item()?;
        write!(self.buf, "{v}")
    }

    pub(super) fn pair(&mut self, a: u64, b: u64) -> io::Result<Memo> {
        let memo = self.container(false, true)?;
        self.plain(a)?;
        self.plain(b)?;
        self.close()?;
        Ok(memo)
    }

    /// Called before each item.
    fn item(&mut self) -> io::Result<()> {
        if let Some(o) = self.open.last_mut() {
            match (o.items, o.dict && o.items % 2 == 1) {
                (0, _) => {}
                (_, true) => self.buf.push(b':'),
                (_, false) => self.buf.push(b','),
            }
            o.items += 1;
        }
        self.spill()
    }

    fn spill(&mut self) -> io::Result<()> {
        // What is shared is copied out of the buffer when it is closed.
        if self.shared == 0 && self.buf.len() >= CHUNK {
            self.out.write_all(&self.buf)?;
            self.buf.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_nest_and_shared_ones_are_written_again() {
        let mut j = Json::new(Vec::new());
        j.container(true, false).unwrap();
        let key = j.shared_text("a \"key\"").unwrap();
        let list = j.container(false, true).unwrap();
        let pair = j.pair(1, u64::MAX).unwrap();
        j.again(pair).unwrap();
        j.close().unwrap();
        j.text("again").unwrap();
        j.container(false, false).unwrap();
        j.again(list).unwrap();
        j.again(key).unwrap();
        j.plain(true).unwrap();
        j.plain(-7).unwrap();
        j.close().unwrap();
        j.close().unwrap();
        let v: serde_json::Value = serde_json::from_slice(&j.finish().unwrap()).unwrap();
        let pairs = serde_json::json!([[1, u64::MAX], [1, u64::MAX]]);
        assert_eq!(v, serde_json::json!({ "a \"key\"": pairs, "again": [pairs, "a \"key\"", true, -7] }));
    }
}
