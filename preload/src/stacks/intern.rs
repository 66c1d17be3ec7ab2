//! The registry of code objects and stacks: cold, under one lock, with heap. Once per distinct stack.
//!
//! The lock is a leaf: nothing is called under it but the heap and the definitions ring. It may be taken while an
//! allocator lock is held (first sight of a stack) and while the GIL is held (a code object dies), never the other way round.

use super::native::modules;
use super::offsets::{BYTES_DATA, LENGTH, Offsets, STR_STATE, TYPE};
use super::{Frame, node, python, shared, watch};
use crate::say::say;
use crate::session;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use strandline_core::event::{CodeDef, CodeId, StackId};
use strandline_core::format::definition;

/// Most bytes that definitions (the writer keeps them) and our keys to them take together. A job needs some hundred KiB;
/// one that makes new stacks for ever gets none beyond.
const BUDGET: usize = 24 << 20;
/// Longest string or line table that is copied from the interpreter.
const LONGEST: usize = 1 << 20;

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
/// Events whose stack could not be defined (ring full, budget used up).
static UNDEFINED: AtomicU64 = AtomicU64::new(0);
/// The budget is used up, and that has been said.
static FULL: AtomicBool = AtomicBool::new(false);

/// A stack as a thread saw it.
pub(super) struct Seen<'a> {
    /// Python frames, innermost first.
    pub(super) frames: &'a [Frame],
    /// There were more.
    pub(super) truncated: bool,
    /// Vtable of the autograd node that runs on the thread, or 0.
    pub(super) node: u64,
    /// Return addresses, innermost first.
    pub(super) native: &'a [u64],
    /// There were more.
    pub(super) native_truncated: bool,
}

/// What makes a stack: the node, Python frames, native frames.
type Key = (u64, Box<[(CodeId, u32)]>, Box<[(CodeId, u32)]>);

#[derive(Default)]
struct Registry {
    /// The running Python's layout, and its type of code objects; `None` where no Python frames are read.
    python: Option<(Offsets, u64)>,
    /// Live code objects by their address.
    codes: HashMap<u64, CodeId>,
    /// Those that were ever defined, by what they say: source that is compiled again and again is defined once.
    contents: HashMap<u128, CodeId>,
    /// Bytes of the budget that are used.
    spent: usize,
    /// Libraries by where they are loaded and what they are.
    modules: HashMap<(usize, Box<str>), CodeId>,
    stacks: HashMap<Key, StackId>,
    last_code: u32,
    bytes: Vec<u8>,
}

fn registry() -> std::sync::MutexGuard<'static, Option<Registry>> {
    REGISTRY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sets the registry up for a version of Python.
pub(super) fn set_python(offsets: Offsets, code_type: u64) {
    registry().get_or_insert_default().python = Some((offsets, code_type));
}

/// Events that were recorded without their stack because there was no room for it.
pub(crate) fn undefined() -> u64 {
    UNDEFINED.load(Relaxed)
}

/// The code object at this address is about to be freed. Whether it was registered.
pub(super) fn forget(code: u64) -> bool {
    registry().as_mut().is_some_and(|r| r.codes.remove(&code).is_some())
}

/// The number of a stack; defined before this returns. 0: it cannot be defined now.
///
/// Other threads find it from now on by its hash, while no code object dies.
pub(super) fn stack(seen: &Seen<'_>, (hash, epoch): (u64, u32)) -> u32 {
    let mut guard = registry();
    let id = guard.get_or_insert_default().stack(seen);
    if let Some(id) = id {
        shared::note(hash, epoch, id.0);
    }
    drop(guard);
    if id.is_none() {
        UNDEFINED.fetch_add(1, Relaxed);
    }
    id.map_or(0, |s| s.0)
}

impl Registry {
    fn stack(&mut self, seen: &Seen<'_>) -> Option<StackId> {
        let mut codes = Vec::with_capacity(seen.frames.len());
        for &f in seen.frames {
            let (offsets, code_type) = self.python?;
            codes.push((self.code(f.code, &offsets, code_type)?, python::instruction_offset(&offsets, f)));
        }
        let mut native = Vec::with_capacity(seen.native.len());
        for &address in seen.native {
            native.push(self.place(address)?);
        }
        let key = (seen.node, codes.into_boxed_slice(), native.into_boxed_slice());
        if let Some(&id) = self.stacks.get(&key) {
            return Some(id);
        }
        let id = StackId(self.stacks.len() as u32 + 1);
        self.bytes.clear();
        if seen.node != 0 {
            definition::put_node(&mut self.bytes, id, &node::type_name(seen.node));
        }
        if !key.2.is_empty() {
            definition::put_native(&mut self.bytes, id, &key.2, seen.native_truncated);
        }
        definition::put_stack(&mut self.bytes, id, &key.1, seen.truncated);
        self.define((key.1.len() + key.2.len()) * size_of::<(CodeId, u32)>())?;
        self.stacks.insert(key, id);
        Some(id)
    }

    /// Commits what lies in `bytes`, if there is room for it, and in the budget for it and for `kept` bytes beside it.
    fn define(&mut self, kept: usize) -> Option<()> {
        /// An entry of a table, and what the heap adds.
        const ENTRY: usize = 64;
        let spent = self.spent + self.bytes.len() + kept + ENTRY;
        if spent > BUDGET {
            if !FULL.swap(true, Relaxed) {
                say!(
                    "no room for more than {} different stacks: blocks on others have none",
                    self.stacks.len()
                );
            }
            return None;
        }
        session::region()?.define(&self.bytes).then(|| self.spent = spent)
    }

    /// The library of a return address, and how far from its base that is. Code that is in no library (compiled at run time)
    /// has number 0.
    fn place(&mut self, address: u64) -> Option<(CodeId, u32)> {
        // The call, not what follows it: that may be the next library's.
        let module = modules::current().and_then(|m| m.find((address as usize).wrapping_sub(1)));
        let Some(m) = module else { return Some((CodeId(0), 0)) };
        let Ok(offset) = u32::try_from((address as usize).wrapping_sub(m.base)) else {
            return Some((CodeId(0), 0));
        };
        let key = (m.base, m.path.clone());
        if let Some(&id) = self.modules.get(&key) {
            return Some((id, offset));
        }
        let id = CodeId(self.last_code + 1);
        let (file, line_table) = (m.path.to_string(), m.build_id.to_vec());
        self.bytes.clear();
        definition::put_code(&mut self.bytes, &CodeDef { id, file, line_table, ..CodeDef::default() });
        self.define(0)?;
        self.last_code = id.0;
        self.modules.insert(key, id);
        Some((id, offset))
    }

    fn code(&mut self, address: u64, o: &Offsets, code_type: u64) -> Option<CodeId> {
        if let Some(&id) = self.codes.get(&address) {
            return Some(id);
        }
        if !is_code(address, code_type) {
            return None;
        }
        // Before anything is copied: should it die from now on, we hear of it.
        watch::expect(address);
        // SAFETY: a frame of the calling thread keeps the code object alive, and its type was checked; the layout was proved.
        let def = unsafe { describe(o, address) };
        let content = fingerprint(&def);
        let id = match self.contents.get(&content) {
            Some(&id) => id,
            None => {
                let id = CodeId(self.last_code + 1);
                self.bytes.clear();
                definition::put_code(&mut self.bytes, &CodeDef { id, ..def });
                self.define(0)?;
                self.last_code = id.0;
                self.contents.insert(content, id);
                id
            }
        };
        self.codes.insert(address, id);
        Some(id)
    }
}

/// 128 bits of all that a code object says.
fn fingerprint(d: &CodeDef) -> u128 {
    let half = |salt: u8| {
        let mut h = DefaultHasher::new();
        (salt, &d.file, &d.function, d.first_line, &d.line_table).hash(&mut h);
        h.finish()
    };
    u128::from(half(0)) << 64 | u128::from(half(1))
}

/// What a frame calls its code must be a code object; anything else means that the offsets are wrong for this
/// interpreter, and then walking must end.
fn is_code(address: u64, code_type: u64) -> bool {
    let plausible = address != 0 && address.is_multiple_of(8);
    // SAFETY: the address was read where the version keeps the code of a live frame, so it is an object.
    if plausible && unsafe { word(address, TYPE) } == code_type {
        return true;
    }
    python::stop();
    say!("this Python's frames are not laid out as in its release: no more stacks in this recording");
    false
}

/// What a code object says of itself; its number is still to be given.
///
/// # Safety
/// `address` must be a live code object of the version whose offsets are given.
pub(super) unsafe fn describe(o: &Offsets, address: u64) -> CodeDef {
    // SAFETY: by the caller's promise; the fields are immutable objects that the code object owns.
    unsafe {
        CodeDef {
            file: text(word(address, o.file), o),
            function: text(word(address, o.name), o),
            first_line: *((address as usize + o.first_line) as *const u32),
            line_table: bytes(word(address, o.line_table)),
            python_minor: o.minor as u8,
            ..CodeDef::default()
        }
    }
}

/// # Safety
/// `base` must be an object with a word at `offset`.
unsafe fn word(base: u64, offset: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { *((base as usize + offset) as *const u64) }
}

/// # Safety
/// `s` must be null or a `str` of the version whose offsets are given.
unsafe fn text(s: u64, o: &Offsets) -> String {
    // SAFETY: by the caller's promise the header can be read, and a compact string has `length` characters of the width
    // that its kind tells, right behind its header.
    unsafe {
        if s == 0 {
            return String::new();
        }
        let length = word(s, LENGTH) as usize;
        let state = *((s as usize + STR_STATE) as *const u32);
        let state = state >> o.kind_shift;
        let (width, compact, ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
        if !compact || length > LONGEST {
            return String::new();
        }
        let data = s as usize + if ascii { o.ascii } else { o.compact };
        let character = |c: u32| char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER);
        match width {
            1 => std::slice::from_raw_parts(data as *const u8, length).iter().map(|&c| c as char).collect(),
            2 => std::slice::from_raw_parts(data as *const u16, length)
                .iter()
                .map(|&c| character(u32::from(c)))
                .collect(),
            4 => {
                std::slice::from_raw_parts(data as *const u32, length).iter().map(|&c| character(c)).collect()
            }
            _ => String::new(),
        }
    }
}

/// # Safety
/// `b` must be null or a `bytes` object.
unsafe fn bytes(b: u64) -> Vec<u8> {
    // SAFETY: by the caller's promise there is a size, and so many bytes from the data offset on.
    unsafe {
        if b == 0 {
            return Vec::new();
        }
        let length = word(b, LENGTH) as usize;
        if length > LONGEST {
            return Vec::new();
        }
        std::slice::from_raw_parts((b as usize + BYTES_DATA) as *const u8, length).to_vec()
    }
}
