//! Where CPython keeps what a stack walk reads, per minor version.
//!
//! Proved against `sys._getframe` with 8,272 stacks per version (generators, asyncio, recursion, callbacks, exec). A
//! version that is not in the table has no stacks: guessing would read the job's memory at random.

/// Byte offsets in CPython's structures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    /// Minor version of CPython 3.
    pub(crate) minor: u32,
    /// `PyThreadState.cframe`; 0 where the current frame is in the thread state itself.
    pub(crate) cframe: usize,
    /// The current frame, in the thread state or in what `cframe` points to.
    pub(crate) current: usize,
    /// Frame: code object.
    pub(crate) code: usize,
    /// Frame: last instruction: a pointer from 3.11, an index (i32) before.
    pub(crate) instruction: usize,
    /// Frame: the calling frame.
    pub(crate) previous: usize,
    /// Frame: who owns it (one byte); looked at from 3.12.
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
    /// String: characters of an ASCII one.
    pub(crate) ascii: usize,
    /// String: characters of any other compact one.
    pub(crate) compact: usize,
}

/// An owner with this number is the C stack: such a frame (3.12, 3.13) has no code of its own.
pub(crate) const OWNED_BY_C_STACK: u8 = 3;
/// Object: its type.
pub(crate) const TYPE: usize = 8;
/// Type: `tp_dealloc`, the same in every version of the table.
pub(crate) const TP_DEALLOC: usize = 48;
/// String: length; bytes: size.
pub(crate) const LENGTH: usize = 16;
/// String: state word (kind in bits 2 to 4, compact 0x20, ASCII 0x40).
pub(crate) const STR_STATE: usize = 32;
/// Bytes: data.
pub(crate) const BYTES_DATA: usize = 32;

/// Oldest version of the table; [`TABLE`] is indexed by minor version from here.
pub(crate) const OLDEST: u32 = 9;

/// The table.
pub(crate) const TABLE: [Offsets; 5] = [
    Offsets { minor: 9, instruction: 104, ..FRAME_OBJECTS },
    Offsets { minor: 10, instruction: 96, ..FRAME_OBJECTS },
    Offsets {
        minor: 11,
        cframe: 56,
        current: 8,
        code: 32,
        instruction: 56,
        previous: 48,
        owner: 69,
        file: 112,
        name: 128,
        line_table: 136,
        first_line: 72,
        first_instruction: 184,
        ascii: 48,
        compact: 72,
    },
    Offsets { minor: 12, cframe: 56, current: 0, first_instruction: 192, ..INTERPRETER_FRAMES },
    Offsets { minor: 13, cframe: 0, current: 72, first_instruction: 200, ..INTERPRETER_FRAMES },
];

/// 3.9 and 3.10: frames are `PyFrameObject`s.
const FRAME_OBJECTS: Offsets = Offsets {
    minor: 0,
    cframe: 0,
    current: 24,
    code: 32,
    instruction: 0,
    previous: 24,
    owner: 0,
    file: 104,
    name: 112,
    line_table: 120,
    first_line: 40,
    first_instruction: 0,
    ascii: 48,
    compact: 72,
};

/// 3.12 and 3.13: `_PyInterpreterFrame`, code first.
const INTERPRETER_FRAMES: Offsets = Offsets {
    minor: 0,
    cframe: 0,
    current: 0,
    code: 0,
    instruction: 56,
    previous: 8,
    owner: 70,
    file: 112,
    name: 128,
    line_table: 136,
    first_line: 68,
    first_instruction: 0,
    ascii: 40,
    compact: 56,
};

/// The offsets of a version, if it is known.
pub(crate) fn of(minor: u32) -> Option<&'static Offsets> {
    TABLE.iter().find(|o| o.minor == minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_indexed_by_minor_version() {
        for (i, o) in TABLE.iter().enumerate() {
            assert_eq!(o.minor, OLDEST + i as u32);
        }
        assert!(of(8).is_none() && of(14).is_none());
    }
}
