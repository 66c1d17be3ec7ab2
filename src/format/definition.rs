//! Messages of the definitions ring, and of Definitions pages: code objects, stacks with their autograd nodes and
//! native frames, and texts.
//!
//! ```text
//! message = length u32 (of what follows), kind u8, payload
//! code    = id, python minor u8, first line, file, function, line table
//! stack   = id, truncated u8, count, (code id, offset)…          innermost frame first
//! text    = id, text
//! node    = stack id, name of the C++ type, as its ABI mangles it      before the stack's own message
//! native  = as stack: its native frames                             before the stack's own message
//! ```
//!
//! Numbers are varints, texts and tables are a varint length and bytes. Unknown kinds are skipped. A *native* module is
//! a code object with `python_minor` 0: `file` is its path, `line_table` its build id, and a frame's offset is relative to
//! its load base.

use super::wire::{Cursor, Malformed, Out, put, put_bytes};
use crate::event::{CodeDef, CodeId, StackDef, StackId};

const CODE: u8 = 1;
const STACK: u8 = 2;
const TEXT: u8 = 3;
const NODE: u8 = 4;
const NATIVE: u8 = 5;

/// Most frames a stack is written with; deeper ones are cut and marked.
pub const MAX_FRAMES: usize = 1024;
/// Longest text, file name or function name in bytes; longer ones are cut.
pub const MAX_TEXT: usize = 16 << 10;
/// Longest line table in bytes; a longer one is left out (lines read as 0).
pub const MAX_TABLE: usize = 256 << 10;

/// A definition, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// A code object.
    Code(CodeDef),
    /// A stack.
    Stack(StackDef),
    /// A text: the name of a mark or phase.
    Text(u32, String),
    /// The autograd node that ran on the thread of a stack: its C++ type, mangled. The stack itself follows.
    Node(StackId, String),
    /// The native frames of a stack: modules, and return addresses relative to their load bases. The stack itself follows.
    Native(StackDef),
}

/// A code object whose parts lie elsewhere.
pub type Code<'a> = CodeDef<&'a str, &'a [u8]>;

/// Appends a code object's message.
pub fn put_code<O: Out>(out: &mut O, d: &CodeDef<impl AsRef<str>, impl AsRef<[u8]>>) {
    framed(out, CODE, |out| {
        put(out, u64::from(d.id.0));
        out.push(d.python_minor);
        put(out, u64::from(d.first_line));
        put_bytes(out, cut(d.file.as_ref()));
        put_bytes(out, cut(d.function.as_ref()));
        let table = d.line_table.as_ref();
        put_bytes(out, if table.len() <= MAX_TABLE { table } else { &[] });
    });
}

/// Frames as they are written: as in [`StackDef`], and how many there are is known.
pub trait Frames: ExactSizeIterator<Item = (CodeId, u32)> {}
impl<I: ExactSizeIterator<Item = (CodeId, u32)>> Frames for I {}

/// Appends a stack's message.
pub fn put_stack<O: Out>(out: &mut O, id: StackId, frames: impl Frames, truncated: bool) {
    put_frames(out, STACK, id, frames, truncated);
}

/// Appends the native frames of a stack, whose own message must follow.
pub fn put_native<O: Out>(out: &mut O, id: StackId, frames: impl Frames, truncated: bool) {
    put_frames(out, NATIVE, id, frames, truncated);
}

fn put_frames<O: Out>(out: &mut O, kind: u8, id: StackId, frames: impl Frames, truncated: bool) {
    let (all, kept) = (frames.len(), frames.len().min(MAX_FRAMES));
    framed(out, kind, |out| {
        put(out, u64::from(id.0));
        out.push(u8::from(truncated || kept < all));
        put(out, kept as u64);
        for (code, offset) in frames.take(kept) {
            put(out, u64::from(code.0));
            put(out, u64::from(offset));
        }
    });
}

/// Appends a text's message.
pub fn put_text<O: Out>(out: &mut O, id: u32, text: &str) {
    framed(out, TEXT, |out| {
        put(out, u64::from(id));
        put_bytes(out, cut(text));
    });
}

/// Appends a node's message; its stack's message must follow.
pub fn put_node<O: Out>(out: &mut O, stack: StackId, mangled: &str) {
    framed(out, NODE, |out| {
        put(out, u64::from(stack.0));
        put_bytes(out, cut(mangled));
    });
}

fn framed<O: Out>(out: &mut O, kind: u8, payload: impl FnOnce(&mut O)) {
    let start = out.at();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    payload(out);
    let length = (out.at() - start).saturating_sub(4) as u32;
    out.patch(start, length.to_le_bytes());
}

fn cut(s: &str) -> &[u8] {
    let mut end = s.len().min(MAX_TEXT);
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    s.as_bytes().get(..end).unwrap_or_default()
}

/// Reads the next message; `None` for a kind that this version does not know.
///
/// # Errors
/// [`Malformed`], with the cursor anywhere: nothing after it can be trusted.
pub fn next(c: &mut Cursor<'_>) -> Result<Option<Definition>, Malformed> {
    let length = c.word32("definition length")? as usize;
    let mut m = Cursor::new(c.take(length, "definition")?);
    let read = |m: &mut Cursor<'_>| -> Result<Option<Definition>, Malformed> {
        Ok(match m.byte("definition kind")? {
            CODE => Some(Definition::Code(code(m)?)),
            STACK => Some(Definition::Stack(stack(m)?)),
            TEXT => Some(Definition::Text(m.number32("text id")?, m.text("text")?)),
            NATIVE => Some(Definition::Native(stack(m)?)),
            NODE => Some(Definition::Node(StackId(m.number32("stack id")?), m.text("node")?)),
            _ => None,
        })
    };
    read(&mut m).map_err(|e| Malformed { at: e.at + c.at() - length, ..e })
}

fn code(m: &mut Cursor<'_>) -> Result<CodeDef, Malformed> {
    let id = CodeId(m.number32("code id")?);
    let python_minor = m.byte("python version")?;
    let first_line = m.number32("first line")?;
    let file = m.text("file name")?;
    let function = m.text("function name")?;
    let line_table = m.bytes("line table")?.to_vec();
    Ok(CodeDef { id, file, function, first_line, line_table, python_minor })
}

fn stack(m: &mut Cursor<'_>) -> Result<StackDef, Malformed> {
    let id = StackId(m.number32("stack id")?);
    let truncated = m.byte("truncated")? != 0;
    let count = m.count("frame count")?;
    let mut frames = Vec::with_capacity(count.min(MAX_FRAMES));
    for _ in 0..count {
        frames.push((CodeId(m.number32("frame code")?), m.number32("frame offset")?));
    }
    Ok(StackDef { id, frames, truncated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::wire::Fixed;

    #[test]
    fn definitions_come_back_and_unknown_kinds_are_skipped() {
        let code = CodeDef {
            id: CodeId(3),
            file: "/x/ä.py".into(),
            function: "f.<locals>.g".into(),
            first_line: 300,
            line_table: vec![1, 2, 255],
            python_minor: 12,
        };
        let mut b = Vec::new();
        put_code(&mut b, &code);
        b.extend_from_slice(&[3, 0, 0, 0, 99, 1, 2]);
        put_stack(&mut b, StackId(1), [(CodeId(3), 70_000); 2000].into_iter(), false);
        put_text(&mut b, 4, &"ü".repeat(MAX_TEXT));
        put_native(&mut b, StackId(2), [(CodeId(3), 0x1234)].into_iter(), true);
        put_node(&mut b, StackId(2), "6MyNode");
        let mut c = Cursor::new(&b);
        assert_eq!(next(&mut c), Ok(Some(Definition::Code(code))));
        assert_eq!(next(&mut c), Ok(None));
        let Ok(Some(Definition::Stack(s))) = next(&mut c) else { panic!("stack") };
        assert_eq!((s.frames.len(), s.truncated, s.frames[9]), (MAX_FRAMES, true, (CodeId(3), 70_000)));
        assert_eq!(next(&mut c), Ok(Some(Definition::Text(4, "ü".repeat(MAX_TEXT / 2)))));
        let Ok(Some(Definition::Native(n))) = next(&mut c) else { panic!("native") };
        assert_eq!((n.id, n.frames, n.truncated), (StackId(2), vec![(CodeId(3), 0x1234)], true));
        assert_eq!(next(&mut c), Ok(Some(Definition::Node(StackId(2), "6MyNode".into()))));
        assert!(c.is_empty());
    }

    #[test]
    fn memory_that_is_too_short_is_known_to_be() {
        let code = CodeDef { file: "/x.py".to_owned(), line_table: vec![7; 300], ..CodeDef::default() };
        let mut whole = Vec::new();
        put_code(&mut whole, &code);
        let mut room = vec![0; whole.len()];
        for n in 0..=whole.len() {
            let mut fixed = Fixed::new(&mut room[..n]);
            put_code(&mut fixed, &code);
            assert_eq!(fixed.whole(), (n == whole.len()).then_some(n));
        }
        assert_eq!(room, whole);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let mut b = Vec::new();
        put_stack(&mut b, StackId(1), [(CodeId(1), 2), (CodeId(300), 4)].into_iter(), true);
        for n in 0..b.len() {
            assert!(next(&mut Cursor::new(&b[..n])).is_err(), "{n}");
        }
    }
}
