//! As much of Thrift's compact protocol as the metadata of a Parquet file needs.

/// A structure that is being written: its fields come in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

impl Struct {
    /// A number of 32 bits.
    pub(super) fn i32(mut self, field: u8, value: i32) -> Struct {
        self.header(field, I32);
        varint(&mut self.bytes, zigzag(value.into()));
        self
    }

    /// A number of 64 bits.
    pub(super) fn i64(mut self, field: u8, value: i64) -> Struct {
        self.header(field, I64);
        varint(&mut self.bytes, zigzag(value));
        self
    }

    /// A text.
    pub(super) fn text(mut self, field: u8, text: &str) -> Struct {
        self.header(field, BINARY);
        binary(&mut self.bytes, text);
        self
    }

    /// A structure within this one.
    pub(super) fn inner(mut self, field: u8, inner: Struct) -> Struct {
        self.header(field, STRUCT);
        self.bytes.extend(inner.end());
        self
    }

    /// Structures, one after the other.
    pub(super) fn list(mut self, field: u8, all: Vec<Struct>) -> Struct {
        self.list_of(field, STRUCT, all.len());
        all.into_iter().for_each(|one| self.bytes.extend(one.end()));
        self
    }

    /// Numbers of 32 bits.
    pub(super) fn numbers(mut self, field: u8, all: &[i32]) -> Struct {
        self.list_of(field, I32, all.len());
        all.iter().for_each(|n| varint(&mut self.bytes, zigzag((*n).into())));
        self
    }

    /// Texts.
    pub(super) fn texts(mut self, field: u8, all: &[&str]) -> Struct {
        self.list_of(field, BINARY, all.len());
        all.iter().for_each(|text| binary(&mut self.bytes, text));
        self
    }

    /// Its bytes.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }

    fn header(&mut self, field: u8, kind: u8) {
        self.bytes.push((field - self.last) << 4 | kind);
        self.last = field;
    }

    fn list_of(&mut self, field: u8, kind: u8, count: usize) {
        self.header(field, LIST);
        if count < 15 {
            self.bytes.push((count as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            varint(&mut self.bytes, count as u64);
        }
    }
}

fn binary(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn zigzag(n: i64) -> u64 {
    (n << 1 ^ n >> 63).cast_unsigned()
}

/// LEB128.
pub(super) fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}
