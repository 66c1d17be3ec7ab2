//! Stacks and the code they run through, interned once and named by number.

use super::{CodeId, StackId, make_printable};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A Python code object, as copied while a frame kept it alive: texts of its own, or, before it is written, wherever they lie.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CodeDef<S = String, B = Vec<u8>> {
    /// Its number in this recording.
    pub id: CodeId,
    /// `co_filename`.
    pub file: S,
    /// `co_qualname` (`co_name` before 3.11).
    pub function: S,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// The line table as the interpreter keeps it (`co_linetable`, `co_lnotab`).
    pub line_table: B,
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

/// A native frame: where in which module a call returns to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct NativeFrame {
    /// The module's path; empty for the program itself or where it is not known.
    pub module: Arc<str>,
    /// The module's build id; empty where it has none.
    pub build_id: Arc<[u8]>,
    /// The return address, relative to the module's load base (0: code that is in no module).
    pub offset: u32,
}

/// Stacks resolved to frames. Filled by whoever reads the definitions, asked by everybody after. Frames, nodes and texts are made
/// printable as they come in ([`super::printable`]): whoever asks may show them. The paths of native modules are as they were
/// recorded, since files are opened by them.
#[derive(Clone, Debug, Default)]
pub struct Names {
    frames: Vec<Frame>,
    frame_ids: FxHashMap<Frame, u32>,
    stacks: FxHashMap<StackId, Vec<u32>>,
    nodes: FxHashMap<StackId, String>,
    native: FxHashMap<StackId, Vec<NativeFrame>>,
    texts: FxHashMap<u32, String>,
}

impl Names {
    /// Adds a resolved stack, innermost frame first. A second definition of the same id replaces the first.
    pub fn add_stack(&mut self, id: StackId, frames: impl IntoIterator<Item = Frame>) {
        let ids = frames.into_iter().map(|f| self.add_frame(f)).collect();
        self.stacks.insert(id, ids);
    }

    /// Adds a stack of frames that were added, innermost first.
    pub fn add_stack_of(&mut self, id: StackId, frames: Vec<u32>) {
        self.stacks.insert(id, frames);
    }

    /// Adds the native frames of a stack, innermost first.
    pub fn add_native(&mut self, id: StackId, frames: Vec<NativeFrame>) {
        self.native.insert(id, frames);
    }

    /// The native frames of a stack, innermost first; empty where none were recorded.
    pub fn native(&self, id: StackId) -> &[NativeFrame] {
        self.native.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Forgets the innermost native frames of a stack: they say nothing of who asked.
    pub fn skip_native(&mut self, id: StackId, count: usize) {
        if let Some(frames) = self.native.get_mut(&id) {
            frames.drain(..count.min(frames.len()));
        }
    }

    /// Adds the autograd node that ran on the thread of a stack.
    pub fn add_node(&mut self, id: StackId, mut name: String) {
        make_printable(&mut name);
        self.nodes.insert(id, name);
    }

    /// The autograd node that ran on the thread of a stack, such as `MmBackward0`.
    pub fn node(&self, id: StackId) -> Option<&str> {
        self.nodes.get(&id).map(String::as_str)
    }

    /// Adds a text (the name of a mark or phase).
    pub fn add_text(&mut self, id: u32, mut text: String) {
        make_printable(&mut text);
        self.texts.insert(id, text);
    }

    /// The text with this number.
    pub fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// All stacks, in no particular order.
    pub fn stacks(&self) -> impl Iterator<Item = StackId> + '_ {
        self.stacks.keys().copied()
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

    /// Adds a frame, and returns the number by which stacks name it.
    pub fn add_frame(&mut self, mut f: Frame) -> u32 {
        make_printable(&mut f.file);
        make_printable(&mut f.function);
        if let Some(&id) = self.frame_ids.get(&f) {
            return id;
        }
        let id = self.frames.len() as u32;
        self.frame_ids.insert(f.clone(), id);
        self.frames.push(f);
        id
    }
}
