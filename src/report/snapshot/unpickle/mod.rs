//! A pickle, read as data: nothing in it can run.
//!
//! The opcodes that build lists, dicts, tuples, texts and numbers are understood, and no other: a pickle that names a
//! class or calls something is refused with its opcode and offset. Sizes are bounded, memory is at most twice the input and a little
//! ([`Limits`]), and what comes out is an arena ([`Tree`]), so that shared and even self-containing values cost nothing.

mod tree;
mod value;

use std::fmt;
use tree::Cell;
pub use tree::{Items, Tree};
pub use value::Value;

/// What is accepted at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Values pushed in all.
    pub values: usize,
    /// Length of one text, in bytes.
    pub text: usize,
    /// Bytes that are taken beyond twice those of the pickle: one that was made to be large here and small there is refused.
    pub slack: usize,
}

impl Default for Limits {
    /// Room for a snapshot of some ten million events.
    fn default() -> Limits {
        Limits { values: 200_000_000, text: 64 << 20, slack: 16 << 20 }
    }
}

/// Why a pickle was not read: what, at which byte, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Offset of the opcode.
    pub offset: usize,
    /// What was wrong with it.
    pub what: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a snapshot that can be read: {} at byte {}", self.what, self.offset)
    }
}

impl std::error::Error for Refused {}

/// Reads a pickle of protocol 2 to 5 that holds nothing but data.
pub fn read(bytes: &[u8], limits: &Limits) -> Result<Tree, Refused> {
    let mut m = Machine {
        bytes,
        at: 0,
        op_at: 0,
        limits,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        pushed: 0,
        tree: Tree::new(),
        look: 0,
    };
    while !m.step()? {}
    Ok(m.tree)
}

/// Opcodes between two looks at the memory.
const LOOK: u32 = 4096;

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    op_at: usize,
    limits: &'a Limits,
    stack: Vec<Cell>,
    marks: Vec<u32>,
    memo: Vec<Cell>,
    pushed: usize,
    tree: Tree,
    /// Opcodes until the memory is looked at again.
    look: u32,
}

impl Machine<'_> {
    /// One opcode; `true` after STOP.
    fn step(&mut self) -> Result<bool, Refused> {
        self.op_at = self.at;
        let op = self.take(1)?[0];
        self.tree.opcodes[op as usize] = true;
        self.look = self.look.checked_sub(1).unwrap_or(LOOK);
        if self.look == 0 {
            self.bounded()?;
        }
        // The number that the opcode brings: of bytes, of a memo, or the value itself.
        let number = match op {
            0x80 | 0x8a | 0x8c | b'K' | b'q' | b'h' => self.take(1)?[0] as usize,
            b'M' => u16::from_le_bytes(self.array()?).into(),
            b'X' | b'r' | b'j' => u32::from_le_bytes(self.array()?) as usize,
            _ => 0,
        };
        // Where what it takes from the stack begins.
        let from = match op {
            b'l' | b'd' | b't' | b'e' | b'u' => self.batch()?,
            b'a' => self.last(1)?,
            b's' => self.last(2)?,
            0x85..=0x87 => match self.stack.len().checked_sub((op - 0x84) as usize) {
                Some(from) => from,
                None => return self.refuse("a tuple of nothing"),
            },
            _ => self.stack.len(),
        };
        match op {
            0x80 if (2..=5).contains(&number) => self.tree.protocol = number as u8,
            0x80 => return self.refuse(format!("pickle protocol {number} (only 2 to 5 can be read)")),
            // FRAME: the length of what follows, which is bounded by the input anyway.
            0x95 => drop(self.take(8)?),
            b'.' => {
                self.tree.root = Some(self.pop()?);
                return Ok(true);
            }
            b'(' => self.marks.push(self.stack.len() as u32),
            b'N' => self.push(Tree::none())?,
            0x88 => self.push(Tree::bool(true))?,
            0x89 => self.push(Tree::bool(false))?,
            b'K' | b'M' => self.int(number as i128)?,
            b'J' => {
                let v = i32::from_le_bytes(self.array()?);
                self.int(v.into())?;
            }
            0x8a => {
                let v = self.long(number)?;
                self.int(v)?;
            }
            b'G' => {
                let v = f64::from_be_bytes(self.array()?);
                let v = self.tree.add_float(v);
                self.push(v)?;
            }
            0x8c | b'X' => self.string(number)?,
            b']' | b'l' => {
                let v = self.tree.add_list(self.stack.get(from..).unwrap_or_default());
                self.stack.truncate(from);
                self.push(v)?;
            }
            b'}' | b'd' => {
                let v = self.tree.add_dict();
                self.set(v, from)?;
                self.push(v)?;
            }
            b')' | 0x85..=0x87 | b't' => self.tuple(from)?,
            b'a' | b'e' => self.append(from)?,
            b's' | b'u' => {
                let dict = self.below(from)?;
                self.set(dict, from)?;
            }
            0x94 => {
                let v = self.top()?;
                self.memo.push(v);
            }
            b'q' | b'r' => self.put(number)?,
            b'h' | b'j' => self.again(number)?,
            _ => {
                return self.refuse(format!(
                    "opcode 0x{op:02x}, which is not plain data (a snapshot has none; it is never executed),"
                ));
            }
        }
        Ok(false)
    }

    fn refuse<T>(&self, what: impl Into<String>) -> Result<T, Refused> {
        Err(Refused { offset: self.op_at, what: what.into() })
    }

    fn take(&mut self, n: usize) -> Result<&[u8], Refused> {
        let end = self.at.checked_add(n).filter(|&e| e <= self.bytes.len());
        let Some(end) = end else { return self.refuse("the file ends in the middle of a value") };
        let b = &self.bytes[self.at..end];
        self.at = end;
        Ok(b)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let mut a = [0; N];
        a.copy_from_slice(self.take(N)?);
        Ok(a)
    }

    /// What is held so far is in proportion to the input.
    fn bounded(&self) -> Result<(), Refused> {
        let held =
            self.tree.bytes() + (self.stack.len() + self.marks.len() + self.memo.len()) * size_of::<Cell>();
        if held > self.bytes.len().saturating_mul(2).saturating_add(self.limits.slack) {
            return self.refuse("more values than a snapshot of this size has");
        }
        Ok(())
    }

    fn int(&mut self, v: i128) -> Result<(), Refused> {
        let v = self.tree.add_int(v);
        self.push(v)
    }

    fn long(&mut self, n: usize) -> Result<i128, Refused> {
        if n > 16 {
            return self.refuse(format!("an integer of {n} bytes"));
        }
        let b = self.take(n)?;
        let negative = b.last().is_some_and(|&x| x >= 0x80);
        let mut w = [if negative { 0xff } else { 0 }; 16];
        w[..n].copy_from_slice(b);
        Ok(i128::from_le_bytes(w))
    }

    fn string(&mut self, n: usize) -> Result<(), Refused> {
        if n > self.limits.text {
            return self.refuse(format!("a text of {n} bytes"));
        }
        let bytes = self.bytes;
        self.take(n)?;
        let text = bytes.get(self.at - n..self.at).unwrap_or_default();
        match self.tree.add_text(text) {
            Some(v) => self.push(v),
            None => self.refuse("more than 4 GiB of texts"),
        }
    }

    fn push(&mut self, v: Cell) -> Result<(), Refused> {
        self.pushed += 1;
        // Numbers of a cell have 28 bits; whatever is numbered is a value that was pushed.
        let most = self.limits.values.min(tree::MOST - 1);
        if self.pushed > most {
            return self.refuse(format!("more than {most} values"));
        }
        self.stack.push(v);
        Ok(())
    }

    fn floor(&self) -> usize {
        self.marks.last().map_or(0, |m| *m as usize)
    }

    fn pop(&mut self) -> Result<Cell, Refused> {
        match self.stack.pop().filter(|_| self.stack.len() >= self.floor()) {
            Some(v) => Ok(v),
            None => self.refuse("a missing value"),
        }
    }

    fn top(&self) -> Result<Cell, Refused> {
        self.below(self.stack.len())
    }

    /// What lies before this place of the stack, and is no part of an outer batch.
    fn below(&self, at: usize) -> Result<Cell, Refused> {
        match at.checked_sub(1).and_then(|i| self.stack.get(i)) {
            Some(&v) if at > self.floor() => Ok(v),
            _ => self.refuse("a missing container"),
        }
    }

    /// Where the last values begin, so many of them.
    fn last(&self, n: usize) -> Result<usize, Refused> {
        match self.stack.len().checked_sub(n).filter(|from| *from >= self.floor()) {
            Some(from) => Ok(from),
            None => self.refuse("a missing value"),
        }
    }

    /// Where the values since the last mark begin.
    fn batch(&mut self) -> Result<usize, Refused> {
        let Some(mark) = self.marks.pop() else {
            return self.refuse("the end of a batch that was never started");
        };
        let from = (mark as usize).min(self.stack.len());
        self.tree.longest_batch = self.tree.longest_batch.max(self.stack.len() - from);
        Ok(from)
    }

    fn tuple(&mut self, from: usize) -> Result<(), Refused> {
        let v = self.tree.add_tuple(self.stack.get(from..).unwrap_or_default());
        self.stack.truncate(from);
        self.push(v)
    }

    fn append(&mut self, from: usize) -> Result<(), Refused> {
        let list = self.below(from)?;
        if !Tree::is_list(list) {
            return self.refuse("an append to something that is not a list");
        }
        self.tree.extend(list, self.stack.get(from..).unwrap_or_default());
        self.stack.truncate(from);
        Ok(())
    }

    fn set(&mut self, dict: Cell, from: usize) -> Result<(), Refused> {
        if !Tree::is_dict(dict) {
            return self.refuse("an item set in something that is not a dict");
        }
        let items = self.stack.get(from..).unwrap_or_default();
        if !items.len().is_multiple_of(2) {
            return self.refuse("a key without a value");
        }
        self.tree.extend(dict, items);
        self.stack.truncate(from);
        Ok(())
    }

    fn put(&mut self, i: usize) -> Result<(), Refused> {
        // CPython numbers memos densely; a number far beyond what was pushed would only cost memory.
        if i > self.pushed {
            return self.refuse(format!("memo {i}, far beyond what was written"));
        }
        let v = self.top()?;
        if self.memo.len() <= i {
            self.memo.resize(i + 1, Cell::EMPTY);
        }
        self.memo[i] = v;
        Ok(())
    }

    fn again(&mut self, i: usize) -> Result<(), Refused> {
        match self.memo.get(i).copied().filter(|v| *v != Cell::EMPTY) {
            Some(v) => self.push(v),
            None => self.refuse(format!("memo {i}, which was never written")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(b: &[u8]) -> Refused {
        read(b, &Limits::default()).unwrap_err()
    }

    #[test]
    fn a_pickle_that_calls_something_is_refused() {
        // pickle.dumps(os.system) begins a global: protocol 2, GLOBAL 'c'.
        let e = refused(b"\x80\x02cposix\nsystem\nq\x00.");
        assert_eq!(e.offset, 2);
        assert!(e.to_string().contains("never executed"), "{e}");
        // STACK_GLOBAL and REDUCE of protocol 4.
        assert!(refused(b"\x80\x04\x8c\x05posix\x8c\x06system\x93.").what.contains("0x93"));
    }

    #[test]
    fn torn_and_nonsensical_pickles_are_refused_with_a_place() {
        assert_eq!(refused(b"").offset, 0);
        assert_eq!(refused(b"\x80\x04K").offset, 2);
        assert_eq!(refused(b"\x80\x09.").offset, 0);
        assert_eq!(refused(b"\x80\x04e.").offset, 2);
        assert_eq!(refused(b"\x80\x04K\x01(e.").offset, 5);
        assert_eq!(refused(b"\x80\x04h\x05.").offset, 2);
        assert_eq!(refused(b"\x80\x04\x8a\x20.").offset, 2);
        assert_eq!(refused(b"\x80\x04}r\xff\xff\xff\x7f.").offset, 3);
        assert_eq!(refused(b"\x80\x04](K\x01K\x02K\x03u.").offset, 10);
    }

    #[test]
    fn limits_hold() {
        let l = Limits { values: 3, text: 4, ..Limits::default() };
        assert!(read(b"\x80\x04](K\x01K\x02K\x03e.", &l).unwrap_err().what.contains("more than 3"));
        assert!(read(b"\x80\x04\x8c\x05hello.", &l).unwrap_err().what.contains("5 bytes"));
    }

    #[test]
    fn a_list_that_contains_itself_is_data_too() {
        let t = read(b"\x80\x04]\x94h\x00a.", &Limits::default()).unwrap();
        assert_eq!(t.list(t.root()).unwrap(), [t.root()]);
    }

    #[test]
    fn every_prefix_and_every_flipped_byte_ends_without_a_panic() {
        let whole = include_bytes!("../../../../tests/golden/snapshots/ref_plain.pickle");
        assert!(read(whole, &Limits::default()).is_ok());
        for n in (0..whole.len()).step_by(7) {
            assert!(read(&whole[..n], &Limits::default()).is_err());
        }
        let mut b = whole.to_vec();
        for i in (0..b.len()).step_by(11) {
            b[i] ^= 0x5a;
            let _ = read(&b, &Limits::default());
            b[i] ^= 0x5a;
        }
    }
    /// A byte of each of these makes a value that needs more than a few bytes.
    #[test]
    fn a_pickle_that_is_small_and_would_be_large_is_refused() {
        for unit in [&b"]"[..], b"}", b")", b"]\x94", b"N", b"(", b"K\x01\x85", b"](NNe0"] {
            let mut b = b"\x80\x04".to_vec();
            b.extend(unit.repeat((4 << 20) / unit.len()));
            let limits = Limits { slack: 1 << 20, ..Limits::default() };
            let told = read(&b, &limits).unwrap_err().what;
            assert!(
                told.contains("more values") || told.contains("end of the file") || told.contains("opcode"),
                "{unit:?}: {told}"
            );
        }
    }

    #[test]
    fn what_is_appended_to_again_and_again_stays_in_order() {
        // A list that gets a number, a batch of two, and a new list with one in it, 200 times.
        let mut b = b"\x80\x04]".to_vec();
        for i in 0..200u8 {
            b.extend([b'K', i, b'a', b'(', b'K', i, b'K', i, b'e', b']', b'K', i, b'a', b'a']);
        }
        b.push(b'.');
        let t = read(&b, &Limits::default()).unwrap();
        let all = t.list(t.root()).unwrap();
        assert_eq!(all.len(), 800);
        for (at, v) in all.into_iter().enumerate() {
            let i = Value::Int(at as i128 / 4);
            match at % 4 {
                3 => assert_eq!(t.list(v).unwrap(), [i]),
                _ => assert_eq!(v, i),
            }
        }
    }
}
