//! Stacks and the code they run through, interned once and named by number.

use super::{CodeId, StackId};
use rustc_hash::FxHashMap;

/// A Python code object, as copied while a frame kept it alive.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CodeDef {
    /// Its number in this recording.
    pub id: CodeId,
    /// `co_filename`.
    pub file: String,
    /// `co_qualname` (`co_name` before 3.11).
    pub function: String,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// The line table as the interpreter keeps it (`co_linetable`, `co_lnotab`).
    pub line_table: Vec<u8>,
    /// Minor version of the CPython 3 that wrote the table: it decides the encoding.
    pub python_minor: u8,
}

/// An interned stack: innermost frame first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StackDef {
    /// Its number in this recording.
    pub id: StackId,
    /// Code object and byte offset of the instruction in it.
    pub frames: Vec<(CodeId, u32)>,
    /// Deeper frames were cut off.
    pub truncated: bool,
}

/// A frame as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Frame {
    /// File, as the interpreter names it.
    pub file: String,
    /// Line; 0 where the table does not tell.
    pub line: u32,
    /// Qualified name of the function.
    pub function: String,
}

/// Stacks resolved to frames. Filled by whoever reads the definitions, asked by everybody after.
#[derive(Clone, Debug, Default)]
pub struct Names {
    frames: Vec<Frame>,
    frame_ids: FxHashMap<Frame, u32>,
    stacks: FxHashMap<StackId, Vec<u32>>,
    texts: FxHashMap<u32, String>,
}

impl Names {
    /// Adds a resolved stack, innermost frame first. A second definition of the same id replaces the first.
    pub fn add_stack(&mut self, id: StackId, frames: impl IntoIterator<Item = Frame>) {
        let ids = frames.into_iter().map(|f| self.intern(f)).collect();
        self.stacks.insert(id, ids);
    }

    /// Adds a text (the name of a mark or phase).
    pub fn add_text(&mut self, id: u32, text: String) {
        self.texts.insert(id, text);
    }

    /// The text with this number.
    pub fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// Numbers of the frames of a stack, innermost first; empty for stack 0 and unknown stacks.
    pub fn stack(&self, id: StackId) -> &[u32] {
        self.stacks.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The frame with this number.
    pub fn frame(&self, id: u32) -> Option<&Frame> {
        self.frames.get(id as usize)
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, id: StackId) -> impl Iterator<Item = &Frame> {
        self.stack(id).iter().filter_map(|&f| self.frame(f))
    }

    /// How many stacks are known.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    fn intern(&mut self, f: Frame) -> u32 {
        if let Some(&id) = self.frame_ids.get(&f) {
            return id;
        }
        let id = self.frames.len() as u32;
        self.frame_ids.insert(f.clone(), id);
        self.frames.push(f);
        id
    }
}
