//! What a code object says of itself, read where it lies. No heap, no lock: a first sight may be under an allocator's lock.

use super::memory::{At, Memory};
use super::offsets::{BYTES_DATA, LENGTH, Offsets, STR_STATE, TYPE};
use strandline_core::format::definition::{MAX_TABLE, MAX_TEXT};

/// Longest string that is read.
const LONGEST: usize = 1 << 20;

/// A code object's parts, in the memory of the interpreter.
pub(super) struct Said {
    /// `co_filename`.
    pub(super) file: Text,
    /// `co_qualname`, or `co_name`.
    pub(super) function: Text,
    /// `co_firstlineno`.
    pub(super) first_line: u32,
    line_table: (usize, usize),
}

/// A compact string: characters of one width, from the lowest that holds them all.
#[derive(Clone, Copy, Default)]
pub(super) struct Text {
    at: usize,
    /// Characters.
    len: usize,
    /// Bytes of each: 1, 2 or 4.
    width: usize,
    ascii: bool,
}

/// A code object: an address that is not null, lies as objects do, and has the type of code objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code(At);

impl Code {
    /// What a frame calls its code. `None`: it is none, or cannot be read.
    #[inline]
    pub(super) fn checked<M: Memory>(memory: &M, address: u64, code_type: u64) -> Option<Code> {
        let at = At::new(address).filter(|_| address.is_multiple_of(8))?;
        (memory.read::<u64>(at, TYPE)? == code_type).then_some(Code(at))
    }

    /// Where it lies.
    pub(super) const fn at(self) -> At {
        self.0
    }
}

/// # Safety
/// The code object must be alive, and of the version whose offsets are given, and stay alive as long as what is returned.
pub(super) unsafe fn read(o: &Offsets, Code(code): Code) -> Said {
    // SAFETY: by the caller's promise; the fields are immutable objects that the code object owns, or null.
    unsafe {
        let line_table = At::new(word(code, o.line_table))
            .map_or((0, 0), |b| (b.address() as usize + BYTES_DATA, word(b, LENGTH) as usize));
        Said {
            file: text(At::new(word(code, o.file)), o),
            function: text(At::new(word(code, o.name)), o),
            first_line: *((code.address() as usize + o.first_line) as *const u32),
            line_table,
        }
    }
}

/// # Safety
/// `base` must be an object with a word at `offset`.
unsafe fn word(base: At, offset: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { *((base.address() as usize + offset) as *const u64) }
}

/// # Safety
/// `s` must be a `str` of the version whose offsets are given, where it is any.
unsafe fn text(s: Option<At>, o: &Offsets) -> Text {
    let Some(s) = s else { return Text::default() };
    // SAFETY: by the caller's promise the header can be read.
    let (len, state) =
        unsafe { (word(s, LENGTH) as usize, *((s.address() as usize + STR_STATE) as *const u32)) };
    let state = state >> o.kind_shift;
    let (width, compact, ascii) = ((state & 7) as usize, state & 8 != 0, state & 16 != 0);
    if !compact || len > LONGEST || ![1, 2, 4].contains(&width) {
        return Text::default();
    }
    Text { at: s.address() as usize + if ascii { o.ascii } else { o.compact }, len, width, ascii }
}

impl Said {
    /// The line table; empty where it is missing, or longer than is written.
    pub(super) fn line_table(&self) -> &[u8] {
        match self.line_table {
            // SAFETY: `read` found a `bytes` object of this length there, and its caller keeps it alive.
            (at, len) if at != 0 && len <= MAX_TABLE => unsafe {
                core::slice::from_raw_parts(at as *const u8, len)
            },
            _ => &[],
        }
    }

    /// Bytes that its texts take where they must be rewritten, and those of the table.
    pub(super) fn bound(&self) -> usize {
        self.file.bound() + self.function.bound() + self.line_table().len()
    }
}

impl Text {
    /// The characters as they lie in memory: the same for the same text.
    pub(super) fn raw(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: a compact string has so many characters of this width right behind its header.
        unsafe { core::slice::from_raw_parts(self.at as *const u8, self.len * self.width) }
    }

    /// Bytes of UTF-8 that it has at most, of what is written.
    pub(super) fn bound(&self) -> usize {
        if self.ascii { self.len.min(MAX_TEXT) } else { self.len.min(MAX_TEXT) * (self.width + 1).min(4) }
    }

    /// As UTF-8, written into `room` where it does not lie in memory as such; it may be cut behind [`MAX_TEXT`] characters.
    pub(super) fn utf8<'a>(&'a self, room: &'a mut [u8]) -> &'a str {
        if self.ascii {
            return core::str::from_utf8(self.raw()).unwrap_or_default();
        }
        let mut used = 0;
        for c in self.raw().chunks_exact(self.width.max(1)).take(MAX_TEXT) {
            let n = c.iter().rev().fold(0u32, |n, &b| n << 8 | u32::from(b));
            let c = char::from_u32(n).unwrap_or(char::REPLACEMENT_CHARACTER);
            let Some(at) = room.get_mut(used..used + c.len_utf8()) else { break };
            used += c.encode_utf8(at).len();
        }
        room.get(..used).and_then(|b| core::str::from_utf8(b).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_width_become_utf8() {
        let (two, four) = ([0x51fdu16, 0x6570, 0xd800], [0x20000u32, 0x61]);
        let of = |at: usize, len, width, ascii| Text { at, len, width, ascii };
        let mut room = [0; 64];
        let mut is = |t: Text, what: &str| {
            assert!(what.len() <= t.bound());
            assert_eq!(t.utf8(&mut room), what);
        };
        is(of(b"plain".as_ptr() as usize, 5, 1, true), "plain");
        is(of(b"gr\xf6\xdfe".as_ptr() as usize, 5, 1, false), "größe");
        is(of(two.as_ptr() as usize, 3, 2, false), "函数\u{fffd}");
        is(of(four.as_ptr() as usize, 2, 4, false), "𠀀a");
        is(Text::default(), "");
        assert_eq!(of(two.as_ptr() as usize, 2, 2, false).utf8(&mut [0; 4]), "函", "no half characters");
    }
}
