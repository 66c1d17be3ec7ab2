//! The registry of code objects and stacks: cold, under one lock, with heap. Once per distinct stack.
//!
//! The lock is a leaf: nothing is called under it but the heap and the definitions ring. It may be taken while an
//! allocator lock is held (first sight of a stack) and while the GIL is held (a code object dies), never the other way round.

use super::offsets::{BYTES_DATA, LENGTH, Offsets, STR_STATE, TYPE};
use super::{Frame, python, watch};
use crate::say::say;
use crate::session;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strandline_core::event::{CodeDef, CodeId, StackId};
use strandline_core::format::definition;

/// Distinct stacks and code objects that are kept; beyond, stacks are 0. A job has hundreds, a pathological one this many.
const MOST: usize = 1 << 20;
/// Longest string or line table that is copied from the interpreter.
const LONGEST: usize = 1 << 20;

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);
/// Stacks that could not be defined (ring full, registry full).
static UNDEFINED: AtomicU64 = AtomicU64::new(0);

struct Registry {
    offsets: &'static Offsets,
    code_type: u64,
    codes: HashMap<u64, CodeId>,
    stacks: HashMap<Box<[(CodeId, u32)]>, StackId>,
    last_code: u32,
    bytes: Vec<u8>,
}

fn registry() -> std::sync::MutexGuard<'static, Option<Registry>> {
    REGISTRY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sets the registry up for a version.
pub(super) fn start(offsets: &'static Offsets, code_type: u64) {
    *registry() = Some(Registry {
        offsets,
        code_type,
        codes: HashMap::new(),
        stacks: HashMap::new(),
        last_code: 0,
        bytes: Vec::new(),
    });
}

/// Stacks that were recorded as 0 because there was no room for them.
pub(crate) fn undefined() -> u64 {
    UNDEFINED.load(Relaxed)
}

/// The code object at this address is about to be freed. Whether it was registered.
pub(super) fn forget(code: u64) -> bool {
    registry().as_mut().is_some_and(|r| r.codes.remove(&code).is_some())
}

/// The number of a stack, innermost frame first; defined before this returns. 0: it cannot be defined now.
pub(super) fn stack(frames: &[Frame], truncated: bool) -> u32 {
    let mut guard = registry();
    let id = guard.as_mut().and_then(|r| r.stack(frames, truncated));
    if id.is_none() {
        UNDEFINED.fetch_add(1, Relaxed);
    }
    id.map_or(0, |s| s.0)
}

impl Registry {
    fn stack(&mut self, frames: &[Frame], truncated: bool) -> Option<StackId> {
        let mut key = Vec::with_capacity(frames.len());
        for &f in frames {
            key.push((self.code(f.code)?, python::instruction_offset(self.offsets, f)));
        }
        if let Some(&id) = self.stacks.get(key.as_slice()) {
            return Some(id);
        }
        if self.stacks.len() >= MOST {
            return None;
        }
        let id = StackId(self.stacks.len() as u32 + 1);
        self.bytes.clear();
        definition::put_stack(&mut self.bytes, id, &key, truncated);
        session::region()?.define(&self.bytes).then(|| self.stacks.insert(key.into(), id))?;
        Some(id)
    }

    fn code(&mut self, address: u64) -> Option<CodeId> {
        if let Some(&id) = self.codes.get(&address) {
            return Some(id);
        }
        if self.codes.len() >= MOST || !self.is_code(address) {
            return None;
        }
        // Before anything is copied: should it die from now on, we hear of it.
        watch::expect(address);
        let id = CodeId(self.last_code + 1);
        let o = self.offsets;
        // SAFETY: a frame of the calling thread keeps the code object alive, and its type was checked; the fields are
        // immutable objects that it owns, at offsets of the running version.
        let def = unsafe {
            CodeDef {
                id,
                file: text(word(address, o.file), o),
                function: text(word(address, o.name), o),
                first_line: *((address as usize + o.first_line) as *const u32),
                line_table: bytes(word(address, o.line_table)),
                python_minor: o.minor as u8,
            }
        };
        self.bytes.clear();
        definition::put_code(&mut self.bytes, &def);
        if !session::region()?.define(&self.bytes) {
            return None;
        }
        self.last_code = id.0;
        self.codes.insert(address, id);
        Some(id)
    }

    /// What a frame calls its code must be a code object; anything else means that the offsets are wrong for this
    /// interpreter, and then walking must end.
    fn is_code(&self, address: u64) -> bool {
        let plausible = address != 0 && address.is_multiple_of(8);
        // SAFETY: the address was read where the version keeps the code of a live frame, so it is an object.
        if plausible && unsafe { word(address, TYPE) } == self.code_type {
            return true;
        }
        python::stop();
        say!("this Python's frames are not laid out as in its release: no more stacks in this recording");
        false
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
        let (width, compact, ascii) = (state >> 2 & 7, state & 0x20 != 0, state & 0x40 != 0);
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
