//! A pickle, written as it is known: protocol 4, and of that only what every reader of snapshots understands.
//!
//! `memory_viz` reads 33 opcodes and nothing else, and hands every batch of a list to one JavaScript call, whose
//! arguments must fit its stack. So lists and dicts go out in batches of a thousand, as CPython's own pickler does it,
//! and texts, frames and whole stacks are written once and named by number after.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::field::{CHUNK, Field, Memo};
use super::row::{self, Row};
use super::words::Word;

/// Items between a MARK and its APPENDS or SETITEMS; CPython's `_BATCHSIZE`.
const BATCH: u32 = 1000;

/// A writer of one pickle.
///
/// Containers are opened and closed; what is written between is their content. A dict takes key, value, key, value.
pub(super) struct Pickler<W: Write> {
    out: W,
    buf: Vec<u8>,
    memos: u32,
    pub(super) texts: FxHashMap<String, Memo>,
    words: [Option<Memo>; Word::ALL.len()],
    open: Vec<Open>,
}

/// A container that is being filled.
struct Open {
    dict: bool,
    /// Items (for a dict: keys and values) in the batch that is open; 0 where none is.
    batch: u32,
}

impl<W: Write> Pickler<W> {
    /// Begins a pickle.
    pub(super) fn new(out: W) -> Pickler<W> {
        let mut buf = Vec::with_capacity(CHUNK + 512);
        buf.extend([0x80, 4]);
        Pickler {
            out,
            buf,
            memos: 0,
            texts: FxHashMap::default(),
            words: [None; Word::ALL.len()],
            open: Vec::new(),
        }
    }

    /// Ends it and hands the sink back, flushed.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.buf.push(b'.');
        self.out.write_all(&self.buf)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Opens a list or a dict. What it returns means something only for one that is `shared`: that can be named again.
    pub(super) fn container(&mut self, dict: bool, shared: bool) -> io::Result<Memo> {
        self.item()?;
        self.buf.push(if dict { b'}' } else { b']' });
        self.open.push(Open { dict, batch: 0 });
        Ok(if shared { self.memoize() } else { Memo(0) })
    }

    /// Closes the innermost list or dict.
    pub(super) fn close(&mut self) -> io::Result<()> {
        if let Some(o) = self.open.pop()
            && o.batch > 0
        {
            self.buf.push(if o.dict { b'u' } else { b'e' });
        }
        self.spill()
    }

    /// Names something that was written before.
    #[inline]
    pub(super) fn again(&mut self, memo: Memo) -> io::Result<()> {
        self.item()?;
        let (bytes, n) = row::memo(memo);
        self.buf.extend(&bytes.to_le_bytes()[..n]);
        Ok(())
    }

    /// A text, written once and named after. For what recurs: keys, file names.
    pub(super) fn text(&mut self, s: &str) -> io::Result<()> {
        if let Some(&m) = self.texts.get(s) {
            return self.again(m);
        }
        let m = self.shared_text(s)?;
        self.texts.insert(s.to_owned(), m);
        Ok(())
    }

    /// A text of the entries: found without a look at its letters.
    #[inline]
    pub(super) fn put_word(&mut self, w: Word) -> io::Result<()> {
        if let Some(m) = self.words[w as usize] {
            return self.again(m);
        }
        // A dict key elsewhere may be the same text: then it is the same memo.
        if let Some(&m) = self.texts.get(w.name()) {
            self.words[w as usize] = Some(m);
            return self.again(m);
        }
        let m = self.shared_text(w.name())?;
        self.texts.insert(w.name().to_owned(), m);
        self.words[w as usize] = Some(m);
        Ok(())
    }

    /// An unsigned integer: what almost all integers are.
    #[inline]
    pub(super) fn unsigned(&mut self, v: u64) -> io::Result<()> {
        self.item()?;
        let (bytes, n, rest) = row::number(v);
        self.buf.extend(&bytes.to_le_bytes()[..n.min(8)]);
        self.buf.extend(&rest.to_le_bytes()[..n.saturating_sub(8)]);
        Ok(())
    }

    /// Whether [`Pickler::row`] can write such a dict: of what was written before, numbers and short texts.
    #[inline]
    pub(super) fn is_row(&self, fields: &[(Word, Field<'_>)]) -> bool {
        let is_known = |w: Word| self.words[w as usize].is_some();
        let mut texts = 0;
        let mut is_plain = |value: Field<'_>| match value {
            Field::Word(w) => is_known(w),
            Field::New(s) => {
                texts += 1;
                texts == 1 && s.len() <= row::LETTERS
            }
            Field::Number(_) | Field::Again(_) => true,
            _ => false,
        };
        fields.len() <= row::FIELDS
            && fields
                .iter()
                .all(|&(key, value)| matches!(value, Field::Absent) || is_known(key) && is_plain(value))
    }

    /// A whole dict. What is returned names its new text.
    #[inline]
    pub(super) fn row(&mut self, fields: &[(Word, Field<'_>)]) -> io::Result<Option<Memo>> {
        self.item()?;
        let (at, before) = (self.buf.len(), self.memos);
        self.buf.resize(at + row::ROOM, 0);
        let mut row = Row::new(&mut self.buf[at..]);
        row.put(u16::from_le_bytes(*b"}(").into(), 2);
        for &(key, value) in fields.iter().filter(|(_, value)| !matches!(value, Field::Absent)) {
            row.memo(self.words[key as usize].unwrap_or_default());
            match value {
                Field::Word(w) => row.memo(self.words[w as usize].unwrap_or_default()),
                Field::Number(v) => row.number(v),
                Field::Again(m) => row.memo(m),
                Field::New(s) => {
                    row.text(s);
                    self.memos += 1;
                }
                _ => {}
            }
        }
        row.put(b'u'.into(), 1);
        let n = row.n;
        self.buf.truncate(at + n);
        Ok((self.memos > before).then(|| Memo(self.memos - 1)))
    }

    /// A text whose number the caller keeps: for what recurs for a while only.
    pub(super) fn shared_text(&mut self, s: &str) -> io::Result<Memo> {
        self.item()?;
        match u8::try_from(s.len()) {
            Ok(n) => self.buf.extend([0x8c, n]),
            Err(_) => {
                // BINUNICODE8 exists for longer texts, but memory_viz does not know it.
                let n = u32::try_from(s.len())
                    .map_err(|_| io::Error::other("a text of more than 4 GiB in a snapshot"))?;
                self.opcode(b'X', &n.to_le_bytes());
            }
        }
        self.buf.extend(s.as_bytes());
        Ok(self.memoize())
    }

    /// An integer of any size up to 128 bits.
    pub(super) fn int(&mut self, v: impl Into<i128>) -> io::Result<()> {
        self.item()?;
        let v = v.into();
        if let Ok(b) = u8::try_from(v) {
            self.buf.extend([b'K', b]);
        } else if let Ok(h) = u16::try_from(v) {
            self.opcode(b'M', &h.to_le_bytes());
        } else if let Ok(w) = i32::try_from(v) {
            self.opcode(b'J', &w.to_le_bytes());
        } else {
            // LONG1: two's complement, as short as it goes; 2^63 and above need a ninth byte for the sign.
            let b = v.to_le_bytes();
            let fill = if v < 0 { 0xff } else { 0 };
            let mut n = b.len();
            while n > 1 && b[n - 1] == fill && (b[n - 2] & 0x80) == (fill & 0x80) {
                n -= 1;
            }
            self.buf.extend([0x8a, n as u8]);
            self.buf.extend(&b[..n]);
        }
        Ok(())
    }

    /// True or false.
    pub(super) fn bool(&mut self, v: bool) -> io::Result<()> {
        self.item()?;
        self.buf.push(if v { 0x88 } else { 0x89 });
        Ok(())
    }

    /// A float.
    pub(super) fn float(&mut self, v: f64) -> io::Result<()> {
        self.item()?;
        self.opcode(b'G', &v.to_be_bytes());
        Ok(())
    }

    /// A pair of integers as a tuple, which can be named again.
    pub(super) fn pair(&mut self, a: u64, b: u64) -> io::Result<Memo> {
        self.item()?;
        // The tuple is one item of what is open, its members are none.
        self.open.push(Open { dict: false, batch: 1 });
        self.int(a)?;
        self.int(b)?;
        self.open.pop();
        self.buf.push(0x86);
        Ok(self.memoize())
    }

    #[inline]
    fn opcode(&mut self, op: u8, argument: &[u8]) {
        self.buf.push(op);
        self.buf.extend(argument);
    }

    fn memoize(&mut self) -> Memo {
        self.buf.push(0x94);
        self.memos += 1;
        Memo(self.memos - 1)
    }

    /// Called before each item: opens and closes batches.
    #[inline]
    fn item(&mut self) -> io::Result<()> {
        let Some(o) = self.open.last_mut() else { return Ok(()) };
        let full = if o.dict { 2 * BATCH } else { BATCH };
        if o.batch == full {
            self.buf.push(if o.dict { b'u' } else { b'e' });
            o.batch = 0;
        }
        if o.batch == 0 {
            self.buf.push(b'(');
        }
        o.batch += 1;
        self.spill()
    }

    #[inline]
    fn spill(&mut self) -> io::Result<()> {
        if self.buf.len() >= CHUNK {
            self.out.write_all(&self.buf)?;
            self.buf.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::unpickle::{Limits, Value, read};
    use super::*;

    fn written(f: impl FnOnce(&mut Pickler<Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
        let mut p = Pickler::new(Vec::new());
        f(&mut p).unwrap();
        p.finish().unwrap()
    }

    #[test]
    fn integers_come_back_at_every_width() {
        let edges = [
            0i128,
            1,
            255,
            256,
            65535,
            65536,
            -1,
            -128,
            -129,
            1 << 31,
            (1 << 31) - 1,
            -(1 << 31),
            -(1 << 31) - 1,
            1 << 47,
            (1 << 53) + 1,
            (1 << 63) - 1,
            1 << 63,
            (1 << 64) - 1,
            -(1 << 63),
        ];
        for v in edges {
            let b = written(|p| p.int(v));
            let t = read(&b, &Limits::default()).unwrap();
            assert_eq!(t.root(), Value::Int(v), "{b:x?}");
            if let Ok(u) = u64::try_from(v) {
                assert_eq!(written(|p| p.unsigned(u)), b, "the short way is the same");
            }
        }
        // torch and CPython write 2^63 in nine bytes; eight would be a negative number.
        assert_eq!(written(|p| p.int(1i128 << 63))[2..4], [0x8a, 9]);
        assert_eq!(written(|p| p.int(1i128 << 47))[2..4], [0x8a, 7]);
    }

    #[test]
    fn a_dict_written_at_once_is_the_same() {
        let all = [0, 255, 256, 65535, 65536, i32::MAX as u64, 1 << 31, i64::MAX as u64, 1 << 63, u64::MAX];
        let begin = |p: &mut Pickler<Vec<u8>>| {
            p.container(false, false)?;
            (0..300).try_for_each(|i| p.text(&format!("t{i}")))?;
            [Word::Size, Word::Addr].into_iter().try_for_each(|w| p.put_word(w))
        };
        let slow = written(|p| {
            begin(p)?;
            for v in all {
                p.container(true, false)?;
                p.put_word(Word::Size)?;
                p.unsigned(v)?;
                p.put_word(Word::Addr)?;
                p.again(Memo(7))?;
                p.put_word(Word::Addr)?;
                p.shared_text("new")?;
                p.close()?;
            }
            p.close()
        });
        let quick = written(|p| {
            begin(p)?;
            for (i, v) in all.into_iter().enumerate() {
                let new = (Word::Addr, Field::New("new"));
                let row = [(Word::Size, Field::Number(v)), (Word::Addr, Field::Again(Memo(7))), new];
                assert!(p.is_row(&row) && !p.is_row(&[row[0], new, new]));
                assert_eq!(p.row(&row)?, Some(Memo(302 + i as u32)));
            }
            assert!(!p.is_row(&[(Word::Stream, Field::Number(1))]), "a word that was not written yet");
            p.close()
        });
        assert_eq!(slow, quick);
    }

    #[test]
    fn lists_go_out_in_batches_of_a_thousand() {
        let b = written(|p| {
            p.container(false, false)?;
            for _ in 0..2500 {
                p.int(7)?;
            }
            p.close()
        });
        assert_eq!(b.iter().filter(|&&c| c == b'(').count(), 3);
        assert_eq!(b.iter().filter(|&&c| c == b'e').count(), 3);
        let t = read(&b, &Limits::default()).unwrap();
        assert_eq!(t.list(t.root()).unwrap().len(), 2500);
    }

    #[test]
    fn dicts_nest_and_texts_are_written_once() {
        let b = written(|p| {
            p.container(false, false)?;
            for i in 0..3u64 {
                p.container(true, false)?;
                p.text("address")?;
                p.int(i)?;
                p.text("pool")?;
                p.pair(0, i)?;
                p.close()?;
            }
            p.close()
        });
        assert_eq!(b.windows(7).filter(|w| w == b"address").count(), 1);
        let t = read(&b, &Limits::default()).unwrap();
        let l = t.list(t.root()).unwrap();
        assert_eq!(t.get(l[2], "address"), Some(Value::Int(2)));
        let pool = t.get(l[2], "pool").unwrap();
        assert_eq!(t.tuple(pool).unwrap(), [Value::Int(0), Value::Int(2)]);
    }

    #[test]
    fn an_empty_container_has_no_batch() {
        assert_eq!(written(|p| p.container(true, false).and_then(|_| p.close())), [0x80, 4, b'}', b'.']);
        assert_eq!(written(|p| p.container(false, false).and_then(|_| p.close())), [0x80, 4, b']', b'.']);
    }

    #[test]
    fn more_than_256_memos_use_the_long_form() {
        let b = written(|p| {
            p.container(false, false)?;
            for i in 0..300 {
                p.text(&format!("t{i}"))?;
            }
            p.text("t299")?;
            p.close()
        });
        let t = read(&b, &Limits::default()).unwrap();
        let l = t.list(t.root()).unwrap();
        assert_eq!(t.text(l[300]), Some("t299"));
        assert!(b.windows(5).any(|w| w == [b'j', 43, 1, 0, 0]));
    }
}
