//! Where CPython keeps what a stack walk reads.
//!
//! 3.9 to 3.12 by a table; 3.13 and newer by what the interpreter says of itself ([`super::described`]). Whichever it is,
//! it is a claim until [`super::proof`] has held it against frames that the running interpreter describes.

/// Byte offsets in CPython's structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    /// Minor version of CPython 3.
    pub(crate) minor: u32,
    /// `PyThreadState.cframe`; 0 where the current frame is in the thread state itself.
    pub(crate) cframe: usize,
    /// The current frame, in the thread state or in what `cframe` points to.
    pub(crate) current: usize,
    /// Frame: code object.
    pub(crate) code: usize,
    /// Bits of that word which are a tag and no address (3.14).
    pub(crate) tag: u64,
    /// Frame: last instruction: a pointer from 3.11, an index (i32) before.
    pub(crate) instruction: usize,
    /// Frame: the calling frame.
    pub(crate) previous: usize,
    /// Frame: its first local variable.
    pub(crate) locals: usize,
    /// Frame: who owns it (one byte); 0 where frames have no owner, or none that matters (before 3.12).
    pub(crate) owner: usize,
    /// Code: `co_filename`.
    pub(crate) file: usize,
    /// Code: `co_qualname`, `co_name` before 3.11.
    pub(crate) name: usize,
    /// Code: `co_linetable`, `co_lnotab` in 3.9.
    pub(crate) line_table: usize,
    /// Code: `co_firstlineno` (i32).
    pub(crate) first_line: usize,
    /// Code: its first instruction; 0 before 3.11.
    pub(crate) first_instruction: usize,
    /// Code: the number of its first instruction that is traced (i32). A frame before it does not run yet, and is in no traceback; a
    /// collection may come in there. 0 where none comes (but in 3.11).
    pub(crate) first_traced: usize,
    /// String: characters of an ASCII one.
    pub(crate) ascii: usize,
    /// String: characters of any other compact one.
    pub(crate) compact: usize,
    /// String: how far the kind lies from the lowest bit of the state word: one of [`KIND_SHIFTS`].
    pub(crate) kind_shift: u32,
}

/// Owners from this number on are the interpreter itself (frames on the C stack, shims, sentinels): no code of their own.
pub(crate) const OWNED_BY_INTERPRETER: u8 = 3;
/// Object: its type.
pub(crate) const TYPE: usize = 8;
/// Type: `tp_dealloc`, the same in every version.
pub(crate) const TP_DEALLOC: usize = 48;
/// String: length; bytes: size.
pub(crate) const LENGTH: usize = 16;
/// String: state word (above its shift: kind in 3 bits, compact, ASCII).
pub(crate) const STR_STATE: usize = 32;
/// Where a string's kind may begin in its state word. Pre-releases of 3.14 have 16 bits below it, its releases two as all before;
/// no description tells, so the proof looks at a string.
pub(crate) const KIND_SHIFTS: [u32; 2] = [2, 16];
/// What stands there in a compact string of ASCII: kind 1, compact, ASCII.
pub(crate) const ASCII_STATE: u32 = 1 | 1 << 3 | 1 << 4;
/// Bytes: data.
pub(crate) const BYTES_DATA: usize = 32;

/// The versions that do not describe themselves.
pub(crate) const TABLE: [Offsets; 4] = [
    Offsets { minor: 9, instruction: 104, locals: 360, ..FRAME_OBJECTS },
    Offsets { minor: 10, instruction: 96, locals: 352, ..FRAME_OBJECTS },
    Offsets {
        minor: 11,
        cframe: 56,
        current: 8,
        code: 32,
        instruction: 56,
        previous: 48,
        locals: 72,
        file: 112,
        name: 128,
        line_table: 136,
        first_line: 72,
        first_instruction: 184,
        first_traced: 168,
        ..FRAME_OBJECTS
    },
    Offsets {
        minor: 12,
        cframe: 56,
        current: 0,
        code: 0,
        instruction: 56,
        previous: 8,
        locals: 72,
        owner: 70,
        file: 112,
        name: 128,
        line_table: 136,
        first_line: 68,
        first_instruction: 192,
        ascii: 40,
        compact: 56,
        ..FRAME_OBJECTS
    },
];

/// 3.9 and 3.10: frames are `PyFrameObject`s.
const FRAME_OBJECTS: Offsets = Offsets {
    minor: 0,
    cframe: 0,
    current: 24,
    code: 32,
    tag: 0,
    instruction: 0,
    previous: 24,
    locals: 0,
    owner: 0,
    file: 104,
    name: 112,
    line_table: 120,
    first_line: 40,
    first_instruction: 0,
    first_traced: 0,
    ascii: 48,
    compact: 72,
    kind_shift: KIND_SHIFTS[0],
};

/// The offsets of a version of the table.
pub(crate) fn of_version(minor: u32) -> Option<Offsets> {
    TABLE.iter().find(|o| o.minor == minor).copied()
}
