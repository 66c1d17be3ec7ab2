//! A pickle, read as data: nothing in it can run.
//!
//! The opcodes that build lists, dicts, tuples, texts and numbers are understood, and no other: a pickle that names a
//! class or calls something is refused with its opcode and offset. Sizes are bounded, memory is proportional to the
//! input, and what comes out is an arena ([`Tree`]), so that shared and even self-containing values cost nothing.

use std::fmt;

/// What is accepted at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Values pushed in all.
    pub values: usize,
    /// Length of one text, in bytes.
    pub text: usize,
}

impl Default for Limits {
    /// Room for a snapshot of some ten million events.
    fn default() -> Limits {
        Limits { values: 400_000_000, text: 64 << 20 }
    }
}

/// A value: small, copied freely; containers are named by number within their [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer that fits 128 bits.
    Int(i128),
    /// A float.
    Float(f64),
    /// A text of the tree.
    Text(u32),
    /// A list of the tree.
    List(u32),
    /// A dict of the tree.
    Dict(u32),
    /// A tuple of the tree.
    Tuple(u32),
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

/// What was read, and which opcodes it took.
#[derive(Debug, Default)]
pub struct Tree {
    texts: Vec<String>,
    lists: Vec<Vec<Value>>,
    dicts: Vec<Vec<(Value, Value)>>,
    tuples: Vec<Vec<Value>>,
    root: Option<Value>,
    opcodes: Vec<bool>,
    protocol: u8,
    longest_batch: usize,
}

impl Tree {
    /// The outermost value.
    pub fn root(&self) -> Value {
        self.root.unwrap_or(Value::None)
    }

    /// The pickle protocol it was written in.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The opcodes that occurred.
    pub fn opcodes(&self) -> impl Iterator<Item = u8> + '_ {
        self.opcodes.iter().enumerate().filter(|(_, seen)| **seen).map(|(op, _)| op as u8)
    }

    /// Most items that one opcode appended or set.
    pub fn longest_batch(&self) -> usize {
        self.longest_batch
    }

    /// The text, where the value is one.
    pub fn text(&self, v: Value) -> Option<&str> {
        match v {
            Value::Text(i) => self.texts.get(i as usize).map(String::as_str),
            _ => None,
        }
    }

    /// The items, where the value is a list.
    pub fn list(&self, v: Value) -> Option<&[Value]> {
        match v {
            Value::List(i) => self.lists.get(i as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// The members, where the value is a tuple.
    pub fn tuple(&self, v: Value) -> Option<&[Value]> {
        match v {
            Value::Tuple(i) => self.tuples.get(i as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Keys and values in the order they were set, where the value is a dict.
    pub fn dict(&self, v: Value) -> Option<&[(Value, Value)]> {
        match v {
            Value::Dict(i) => self.dicts.get(i as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// What a dict has under a text key; a later setting wins, as in Python.
    pub fn get(&self, v: Value, key: &str) -> Option<Value> {
        self.dict(v)?.iter().rev().find(|(k, _)| self.text(*k) == Some(key)).map(|(_, v)| *v)
    }
}

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
        tree: Tree { opcodes: vec![false; 256], ..Tree::default() },
    };
    while !m.step()? {}
    Ok(m.tree)
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    op_at: usize,
    limits: &'a Limits,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    pushed: usize,
    tree: Tree,
}

impl Machine<'_> {
    /// One opcode; `true` after STOP.
    fn step(&mut self) -> Result<bool, Refused> {
        self.op_at = self.at;
        let op = self.take(1)?[0];
        self.tree.opcodes[op as usize] = true;
        match op {
            0x80 => {
                let p = self.take(1)?[0];
                if !(2..=5).contains(&p) {
                    return self.refuse(format!("pickle protocol {p}, of which 2 to 5 are read,"));
                }
                self.tree.protocol = p;
            }
            // FRAME: the length of what follows, which is bounded by the input anyway.
            0x95 => drop(self.take(8)?),
            b'.' => {
                self.tree.root = Some(self.pop()?);
                return Ok(true);
            }
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'K' => {
                let v = self.take(1)?[0];
                self.push(Value::Int(v.into()))?;
            }
            b'M' => {
                let v = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(v.into()))?;
            }
            b'J' => {
                let v = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(v.into()))?;
            }
            0x8a => {
                let n = self.take(1)?[0] as usize;
                let v = self.long(n)?;
                self.push(v)?;
            }
            b'G' => {
                let v = f64::from_be_bytes(self.array()?);
                self.push(Value::Float(v))?;
            }
            0x8c => {
                let n = self.take(1)?[0] as usize;
                self.string(n)?;
            }
            b'X' => {
                let n = u32::from_le_bytes(self.array()?) as usize;
                self.string(n)?;
            }
            b']' => {
                let v = self.new_list(Vec::new());
                self.push(v)?;
            }
            b'l' => {
                let items = self.batch()?;
                let v = self.new_list(items);
                self.push(v)?;
            }
            b'}' => {
                let v = self.new_dict();
                self.push(v)?;
            }
            b'd' => {
                let items = self.batch()?;
                let v = self.new_dict();
                self.set(v, &items)?;
                self.push(v)?;
            }
            b')' => self.tuple(Vec::new())?,
            0x85..=0x87 => {
                let n = (op - 0x84) as usize;
                let Some(from) = self.stack.len().checked_sub(n) else {
                    return self.refuse("a tuple of nothing");
                };
                let items = self.stack.split_off(from);
                self.tuple(items)?;
            }
            b't' => {
                let items = self.batch()?;
                self.tuple(items)?;
            }
            b'a' => {
                let v = self.pop()?;
                self.append(&[v])?;
            }
            b'e' => {
                let items = self.batch()?;
                self.append(&items)?;
            }
            b's' => {
                let v = self.pop()?;
                let k = self.pop()?;
                let d = self.top()?;
                self.set(d, &[k, v])?;
            }
            b'u' => {
                let items = self.batch()?;
                let d = self.top()?;
                self.set(d, &items)?;
            }
            0x94 => {
                let v = self.top()?;
                self.memo.push(Some(v));
            }
            b'q' => {
                let i = self.take(1)?[0] as usize;
                self.put(i)?;
            }
            b'r' => {
                let i = u32::from_le_bytes(self.array()?) as usize;
                self.put(i)?;
            }
            b'h' => {
                let i = self.take(1)?[0] as usize;
                self.again(i)?;
            }
            b'j' => {
                let i = u32::from_le_bytes(self.array()?) as usize;
                self.again(i)?;
            }
            _ => {
                return self.refuse(format!(
                    "opcode 0x{op:02x}, which is no plain data (a snapshot holds none; it is never executed),"
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
        let Some(end) = end else { return self.refuse("the end of the file in the middle of a value") };
        let b = &self.bytes[self.at..end];
        self.at = end;
        Ok(b)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refused> {
        let mut a = [0; N];
        a.copy_from_slice(self.take(N)?);
        Ok(a)
    }

    fn long(&mut self, n: usize) -> Result<Value, Refused> {
        if n > 16 {
            return self.refuse(format!("an integer of {n} bytes"));
        }
        let b = self.take(n)?;
        let negative = b.last().is_some_and(|&x| x >= 0x80);
        let mut w = [if negative { 0xff } else { 0 }; 16];
        w[..n].copy_from_slice(b);
        Ok(Value::Int(i128::from_le_bytes(w)))
    }

    fn string(&mut self, n: usize) -> Result<(), Refused> {
        if n > self.limits.text {
            return self.refuse(format!("a text of {n} bytes"));
        }
        let s = String::from_utf8_lossy(self.take(n)?).into_owned();
        self.tree.texts.push(s);
        self.push(Value::Text(self.tree.texts.len() as u32 - 1))
    }

    fn push(&mut self, v: Value) -> Result<(), Refused> {
        self.pushed += 1;
        // Numbers of texts, lists, dicts and tuples are 32 bit; each of them is a value that was pushed.
        if self.pushed > self.limits.values.min(u32::MAX as usize) {
            return self.refuse(format!("more than {} values", self.limits.values));
        }
        self.stack.push(v);
        Ok(())
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value, Refused> {
        if self.stack.len() <= self.floor() {
            return self.refuse("a value that is not there");
        }
        Ok(self.stack.pop().unwrap_or(Value::None))
    }

    fn top(&self) -> Result<Value, Refused> {
        match self.stack.last() {
            Some(&v) if self.stack.len() > self.floor() => Ok(v),
            _ => self.refuse("a container that is not there"),
        }
    }

    fn batch(&mut self) -> Result<Vec<Value>, Refused> {
        let Some(m) = self.marks.pop() else { return self.refuse("the end of a batch that did not begin") };
        let items = self.stack.split_off(m);
        self.tree.longest_batch = self.tree.longest_batch.max(items.len());
        Ok(items)
    }

    fn new_list(&mut self, items: Vec<Value>) -> Value {
        self.tree.lists.push(items);
        Value::List(self.tree.lists.len() as u32 - 1)
    }

    fn new_dict(&mut self) -> Value {
        self.tree.dicts.push(Vec::new());
        Value::Dict(self.tree.dicts.len() as u32 - 1)
    }

    fn tuple(&mut self, items: Vec<Value>) -> Result<(), Refused> {
        self.tree.tuples.push(items);
        self.push(Value::Tuple(self.tree.tuples.len() as u32 - 1))
    }

    fn append(&mut self, items: &[Value]) -> Result<(), Refused> {
        let Value::List(i) = self.top()? else { return self.refuse("an append to what is no list") };
        self.tree.lists[i as usize].extend_from_slice(items);
        Ok(())
    }

    fn set(&mut self, dict: Value, items: &[Value]) -> Result<(), Refused> {
        let Value::Dict(i) = dict else { return self.refuse("an item set in what is no dict") };
        if !items.len().is_multiple_of(2) {
            return self.refuse("a key without a value");
        }
        self.tree.dicts[i as usize].extend(items.chunks_exact(2).map(|kv| (kv[0], kv[1])));
        Ok(())
    }

    fn put(&mut self, i: usize) -> Result<(), Refused> {
        // CPython numbers memos densely; a number far beyond what was pushed would only cost memory.
        if i > self.pushed {
            return self.refuse(format!("memo {i}, far beyond what was written"));
        }
        let v = self.top()?;
        if self.memo.len() <= i {
            self.memo.resize(i + 1, None);
        }
        self.memo[i] = Some(v);
        Ok(())
    }

    fn again(&mut self, i: usize) -> Result<(), Refused> {
        match self.memo.get(i).copied().flatten() {
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
        let l = Limits { values: 3, text: 4 };
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
        let whole = include_bytes!("../../../tests/golden/snapshots/ref_plain.pickle");
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
}
