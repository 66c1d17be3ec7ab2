//! Line tables of CPython: the line of an instruction, as `traceback` would print it.
//!
//! Encodings: 3.11 and newer `co_linetable` as location entries (Objects/locations.md); 3.10 `co_linetable` as line
//! deltas over ranges (Objects/lnotab_notes.txt); 3.9 and older `co_lnotab`. Tables come out of recordings: any bytes do.

use crate::event::CodeDef;

/// The line that the instruction at byte `offset` belongs to; 0 where the table does not tell.
///
/// Up to 3.10 a frame that has not run an instruction yet stands at -1 (a pending call may be made there), and its line is the first.
pub fn line(code: &CodeDef, offset: u32) -> u32 {
    let first = i64::from(code.first_line);
    if code.python_minor <= 10 && offset.cast_signed() < 0 {
        return code.first_line;
    }
    let offset = u64::from(offset);
    let line = match code.python_minor {
        0 => None,
        1..=9 => lnotab(&code.line_table, first, offset),
        10 => deltas(&code.line_table, first, offset),
        _ => locations(&code.line_table, first, offset),
    };
    line.and_then(|l| u32::try_from(l).ok()).unwrap_or(0)
}

/// 3.9: pairs of (bytes to go, lines to add); a line holds from its pair on.
fn lnotab(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut line, mut at) = (first, 0u64);
    for &[bytes, lines] in table.as_chunks::<2>().0 {
        at += u64::from(bytes);
        if at > offset {
            break;
        }
        line += i64::from(lines as i8);
    }
    Some(line)
}

/// 3.10: pairs of (length of the range, lines to add before it); -128 = the range has no line.
fn deltas(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (first, 0u64);
    for &[bytes, lines] in table.as_chunks::<2>().0 {
        let none = lines as i8 == i8::MIN;
        if !none {
            line += i64::from(lines as i8);
        }
        end += u64::from(bytes);
        if offset < end {
            return (!none).then_some(line);
        }
    }
    None
}

/// 3.11: entries of `1 code(4) length(3)` and operands; the length counts instructions of two bytes.
fn locations(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (first, 0u64);
    let mut bytes = table.iter().copied();
    while let Some(head) = bytes.next() {
        let code = head >> 3 & 15;
        end += (u64::from(head & 7) + 1) * 2;
        match code {
            // Within a line, columns in one byte.
            0..=9 => {
                bytes.next();
            }
            // 0 to 2 lines on, columns in two bytes.
            10..=12 => {
                line += i64::from(code) - 10;
                bytes.next();
                bytes.next();
            }
            // Lines, no columns.
            13 => line = line.wrapping_add(signed(&mut bytes)?),
            // Lines, end line, two columns.
            14 => {
                line = line.wrapping_add(signed(&mut bytes)?);
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
            }
            _ => {}
        }
        if offset < end {
            return (code != 15).then_some(line);
        }
    }
    None
}

/// Six bits a byte, least first; 64 = more follow.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..60).step_by(6) {
        let b = bytes.next()?;
        n |= u64::from(b & 63) << shift;
        if b & 64 == 0 {
            return Some(n);
        }
    }
    None
}

/// The sign is the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let n = unsigned(bytes)?;
    let magnitude = (n >> 1) as i64;
    Some(if n & 1 == 1 { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(python_minor: u8, line_table: &[u8]) -> CodeDef {
        CodeDef { python_minor, first_line: 10, line_table: line_table.to_vec(), ..CodeDef::default() }
    }

    #[test]
    fn the_three_encodings() {
        let old = code(9, &[0, 1, 4, 2, 6, 0xff]);
        assert_eq!([0, 3, 4, 9, 10, 999].map(|o| line(&old, o)), [11, 11, 13, 13, 12, 12]);
        assert_eq!([9, 10].map(|m| line(&code(m, &[0, 1, 4, 2]), u32::MAX - 1)), [10, 10], "not begun");
        let deltas = code(10, &[4, 1, 6, 0x80, 2, 0xfe]);
        assert_eq!([0, 4, 9, 10, 12].map(|o| line(&deltas, o)), [11, 0, 0, 9, 0]);
        // +1 line over 2 instructions with columns; none over 1; -40 lines without columns over 1 (0x51 = 81, 80 >> 1 = 40).
        let new = code(11, &[0x80 | 11 << 3 | 1, 0, 5, 0x80 | 15 << 3, 0x80 | 13 << 3, 0x40 | 17, 1]);
        assert_eq!([0, 3, 4, 6, 8].map(|o| line(&new, o)), [11, 11, 0, 0, 0]);
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut x = 1u32;
        let bytes: Vec<u8> = (0..4000)
            .map(|_| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (x >> 24) as u8
            })
            .collect();
        for minor in [0, 9, 10, 11, 255] {
            for n in 0..300 {
                line(&code(minor, &bytes[n..n * 10]), n as u32 * 7);
            }
        }
    }
}
