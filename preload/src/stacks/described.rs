//! What CPython says of its own structures: `_Py_DebugOffsets`, the first words of `_PyRuntime` from 3.13 on.
//!
//! The words are named by position, and positions change with minor versions: those of 3.13 were read in a running
//! interpreter, as were those of 3.14 and 3.15. A version that is not here has no stacks.

use super::offsets::{KIND_SHIFTS, Offsets};
use crate::platform::real;

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
/// Words that are looked at, at most.
const WORDS: usize = 96;
/// No structure of an interpreter's that matters here is larger.
const LARGEST: u64 = 1 << 16;

/// Where a version's description has the sizes that its groups begin with. The words behind them follow the order of the
/// fields in the header.
struct Shape {
    thread: usize,
    frame: usize,
    code: usize,
    string: usize,
    /// Bits of a frame's word for its code that are a tag.
    tag: u64,
}

fn shape(minor: u32) -> Option<Shape> {
    Some(match minor {
        13 => Shape { thread: 19, frame: 28, code: 34, string: 67, tag: 0 },
        14 => Shape { thread: 22, frame: 31, code: 39, string: 77, tag: 3 },
        15 => Shape { thread: 22, frame: 39, code: 47, string: 89, tag: 3 },
        _ => return None,
    })
}

/// The running interpreter's own description.
///
/// # Errors
/// Why it cannot be used, as the end of a sentence about this Python.
#[cold]
pub(super) fn read(minor: u32) -> Result<Offsets, &'static str> {
    let shape = shape(minor).ok_or("its frames are not known to this version of strandline")?;
    let runtime = real::python(c"_PyRuntime").cast::<u64>();
    if runtime.is_null() {
        return Err("it does not say where its stack frames are in memory");
    }
    // SAFETY: `_PyRuntime` is several hundred KiB large and lives as long as the process; the words of its description
    // are constants.
    let words = unsafe { core::slice::from_raw_parts(runtime, WORDS) };
    parse(minor, &shape, words)
}

fn parse(minor: u32, s: &Shape, words: &[u64]) -> Result<Offsets, &'static str> {
    const DAMAGED: &str = "its description of where it keeps its stack frames cannot be understood";
    let word = |at: usize| words.get(at).copied().unwrap_or(u64::MAX);
    let version = word(1);
    if word(0) != COOKIE || version >> 24 != 3 || version >> 16 & 0xff != u64::from(minor) {
        return Err(DAMAGED);
    }
    if word(2) != 0 {
        return Err("it is a free-threaded build");
    }
    // An offset of `width` bytes within the structure whose size begins its group.
    let field = |group: usize, at: usize, width: u64| {
        let (size, offset) = (word(group), word(group + at));
        let fits = size < LARGEST && offset.is_multiple_of(width) && offset.saturating_add(width) <= size;
        fits.then_some(offset as usize).ok_or(DAMAGED)
    };
    let ascii = word(s.string + 3) as usize;
    if ascii != 40 || field(s.string, 1, 4)? != 32 || field(s.string, 2, 8)? != 16 {
        return Err(DAMAGED);
    }
    Ok(Offsets {
        minor,
        cframe: 0,
        current: field(s.thread, 4, 8)?,
        previous: field(s.frame, 1, 8)?,
        code: field(s.frame, 2, 8)?,
        tag: s.tag,
        instruction: field(s.frame, 3, 8)?,
        locals: field(s.frame, 4, 8)?,
        owner: field(s.frame, 5, 1)?,
        file: field(s.code, 1, 8)?,
        name: field(s.code, 3, 8)?,
        line_table: field(s.code, 4, 8)?,
        first_line: field(s.code, 5, 4)?,
        first_instruction: field(s.code, 9, 2)?,
        first_traced: 0,
        ascii,
        compact: ascii + 16,
        kind_shift: KIND_SHIFTS[0],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first words of `_PyRuntime` in CPython 3.13.0, as a running interpreter has them.
    #[rustfmt::skip]
    const OF_3_13_0: [u64; 75] = [
        8750607829840520312, 51183856, 0, 283320, 608, 632, 194968, 7272, 7264, 7344, 7400, 7656, 7640, 7648,
        16, 7752, 0, 7768, 7760, 304, 0, 8, 16, 72, 152, 160, 232, 32,
        80, 8, 0, 56, 72, 70, 208, 112, 120, 128, 136, 68, 52, 96,
        104, 200, 16, 8, 416, 24, 88, 168, 32, 24, 16, 40, 24, 16,
        48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16,
        40, 240, 200, 1, 4294967297,
    ];

    /// The same in 3.14.10.
    #[rustfmt::skip]
    const OF_3_14_10: [u64; 81] = [
        8750607829840520312, 51251952, 0, 316616, 784, 808, 225864, 7280, 7272, 7344, 7360, 7408, 7688, 7672,
        7680, 16, 7784, 0, 7800, 7792, 7992, 0, 832, 0, 8, 16, 72, 152,
        160, 232, 32, 88, 8, 0, 56, 80, 74, 64, 0, 216, 112, 120,
        128, 136, 68, 52, 96, 104, 208, 0, 16, 8, 416, 24, 88, 168,
        40, 32, 16, 40, 24, 16, 200, 24, 40, 32, 48, 32, 40, 24,
        16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40,
    ];

    /// The same in 3.15.2.
    #[rustfmt::skip]
    const OF_3_15_2: [u64; 93] = [
        8750607829840520312, 51315440, 0, 346568, 912, 936, 226240, 7272, 7264, 7336, 7352, 7400, 7592, 7576,
        7584, 16, 7736, 0, 7752, 7744, 7944, 0, 888, 0, 8, 16, 72, 80,
        88, 96, 176, 184, 256, 32, 36, 40, 136, 288, 0, 88, 8, 0,
        56, 80, 74, 64, 0, 216, 112, 120, 128, 136, 68, 52, 96, 104,
        208, 0, 16, 8, 424, 24, 88, 168, 32, 288, 944, 888, 40, 32,
        16, 40, 24, 16, 200, 24, 40, 32, 48, 32, 40, 24, 16, 32,
        16, 24, 40, 16, 32, 64, 32, 16, 40,
    ];

    fn of_3_13(words: &[u64]) -> Result<Offsets, &'static str> {
        parse(13, &shape(13).expect("a shape"), words)
    }

    #[test]
    fn a_real_description_is_understood() {
        let o = of_3_13(&OF_3_13_0).expect("offsets");
        assert_eq!((o.current, o.previous, o.code, o.instruction, o.owner), (72, 8, 0, 56, 70));
        assert_eq!(o.locals, 72);
        assert_eq!(
            (o.file, o.name, o.line_table, o.first_line, o.first_instruction),
            (112, 128, 136, 68, 200)
        );
        assert_eq!((o.ascii, o.compact), (40, 56));
        for (minor, words) in [(14, &OF_3_14_10[..]), (15, &OF_3_15_2)] {
            let newer = parse(minor, &shape(minor).expect("a shape"), words).expect("offsets");
            let differs = Offsets { minor, owner: 74, tag: 3, locals: 80, first_instruction: 208, ..o };
            assert_eq!(newer, differs);
            assert!(parse(minor, &shape(minor).expect("a shape"), &words[..words.len() - 1]).is_err());
        }
    }

    #[test]
    fn what_does_not_make_sense_is_refused() {
        let with = |at: usize, value: u64| {
            let mut words = OF_3_13_0;
            words[at] = value;
            of_3_13(&words)
        };
        assert!(with(0, 1).is_err(), "the cookie");
        assert!(with(1, 0x030e_00f0).is_err(), "another version");
        assert_eq!(with(2, 1), Err("it is a free-threaded build"));
        assert!(with(23, 304).is_err(), "a field beyond its structure");
        assert!(with(23, 73).is_err(), "a pointer that is not aligned");
        assert!(with(19, 1 << 20).is_err(), "an impossible size");
        assert!(of_3_13(&OF_3_13_0[..40]).is_err(), "too short");
        assert!(shape(12).is_none() && shape(16).is_none());
    }
}
