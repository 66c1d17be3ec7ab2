//! Definitions → names: code objects are kept, stacks are resolved to file, line and function.

use crate::event::{CodeDef, CodeId, Frame, Item, Names, NativeFrame, StackDef};
use crate::format::definition::{self, Definition};
use crate::format::python;
use crate::format::wire::{Cursor, Malformed};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Everything defined so far.
#[derive(Default)]
pub(super) struct Definitions {
    codes: FxHashMap<CodeId, CodeDef>,
    modules: FxHashMap<CodeId, NativeFrame>,
    pub(super) names: Names,
    /// Bytes of definitions read so far, as the job counted them.
    pub(super) seen: u64,
    /// Some are missing: a chunk's copies are welcome.
    pub(super) hole: bool,
}

impl Definitions {
    /// Takes messages that begin at byte `start` of all definitions. What is known already is passed over.
    pub(super) fn take(
        &mut self,
        start: u64,
        bytes: &[u8],
        items: &mut VecDeque<Item>,
    ) -> Result<(), Malformed> {
        if start > self.seen {
            self.hole = true;
        }
        let mut c = Cursor::new(bytes);
        while !c.is_empty() {
            let at = start.saturating_add(c.at() as u64);
            let d = definition::next(&mut c).inspect_err(|_| self.hole = true)?;
            if at < self.seen && !self.hole {
                continue;
            }
            self.seen = self.seen.max(start.saturating_add(c.at() as u64));
            match d {
                Some(Definition::Code(code)) => {
                    if code.python_minor == 0 {
                        let module = code.file.as_str().into();
                        let build_id = code.line_table.as_slice().into();
                        self.modules.insert(code.id, NativeFrame { module, build_id, offset: 0 });
                    }
                    self.codes.insert(code.id, code);
                }
                Some(Definition::Stack(s)) => {
                    let frames: Vec<Frame> = self.resolve(&s).collect();
                    self.names.add_stack(s.id, frames);
                    items.push_back(Item::Stack(s.id));
                }
                Some(Definition::Text(id, text)) => {
                    self.names.add_text(id, text);
                    items.push_back(Item::Name(id));
                }
                Some(Definition::Native(s)) => {
                    let frame = |&(id, offset): &(CodeId, u32)| NativeFrame {
                        offset,
                        ..self.modules.get(&id).cloned().unwrap_or_default()
                    };
                    self.names.add_native(s.id, s.frames.iter().map(frame).collect());
                }
                Some(Definition::Node(id, mangled)) => self.names.add_node(id, type_name(&mangled).into()),
                None => {}
            }
        }
        Ok(())
    }

    fn resolve<'a>(&'a self, s: &'a StackDef) -> impl Iterator<Item = Frame> + 'a {
        let cut = s
            .truncated
            .then(|| Frame { function: "… deeper frames were cut off".into(), ..Frame::default() });
        let frames = s.frames.iter().map(|&(id, offset)| match self.codes.get(&id) {
            Some(c) if c.python_minor == 0 => {
                Frame { file: c.file.clone(), line: 0, function: format!("+{offset:#x}") }
            }
            Some(c) => {
                Frame { file: c.file.clone(), line: python::line(c, offset), function: c.function.clone() }
            }
            None => Frame { function: format!("? (code {})", id.0), ..Frame::default() },
        });
        frames.chain(cut)
    }
}

/// The last part of a C++ type's mangled name: `N5torch8autograd9generated11MmBackward0E` is an `MmBackward0`. What cannot
/// be read so is left as it is.
fn type_name(mangled: &str) -> &str {
    let mut rest = mangled.trim_start_matches('*');
    rest = rest.strip_prefix('N').unwrap_or(rest);
    let mut last = mangled;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, name) = rest.split_at(digits);
        let Some(part) = number.parse::<usize>().ok().and_then(|n| name.get(..n)) else { return last };
        last = part;
        rest = name.get(part.len()..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::type_name;

    #[test]
    fn a_node_is_called_as_in_python() {
        assert_eq!(type_name("N5torch8autograd9generated11MmBackward0E"), "MmBackward0");
        assert_eq!(type_name("*N5torch8autograd14AccumulateGradE"), "AccumulateGrad");
        assert_eq!(type_name("6MyNode"), "MyNode");
        assert_eq!(type_name("N5torch8autograd7CppNodeIN1a1bEEE"), "CppNode");
        assert_eq!(type_name("99short"), "99short");
        assert_eq!(type_name("N1\u{e4}E"), "N1\u{e4}E");
        assert_eq!(type_name(""), "");
    }
}
