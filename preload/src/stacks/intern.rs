//! First sight of a stack: what it says gets a number, and its definition goes into the recording, once.
//!
//! Called from hooks, under an allocator's lock at times: no heap, no lock, no system call. What finds no room is recorded
//! without a stack, and counted; the writing thread says so.

use super::memory::Direct;
use super::native::modules;
use super::object::{self, Code, Said};
use super::tables::{Key, Place, Tables, tables};
use super::{node, python};
use crate::platform::say::say;
use crate::recorder;
use crate::recorder::stack_memory::Frame;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use strandline_core::event::{CodeId, StackId};
use strandline_core::format::definition::{self, MAX_TEXT};
use strandline_core::format::wire::Fixed;

/// Most bytes of definitions, which the writing thread keeps. A job needs some hundred KiB; one that makes new stacks for ever
/// gets none beyond.
const BUDGET: u64 = 16 << 20;
/// Bytes of a message beside its texts, tables and frames; of a frame.
const HEAD: usize = 64;
const PER_FRAME: usize = 10;

/// Events whose stack could not be defined (ring full, tables full, budget used up).
static UNDEFINED: AtomicU64 = AtomicU64::new(0);
/// The tables or the budget are full, and that is to be said; it has been.
static FULL: AtomicBool = AtomicBool::new(false);
/// What frames call their code is none, and that is to be said.
static FOREIGN: AtomicBool = AtomicBool::new(false);
/// What has been said of these.
static SAID: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// A stack as a thread saw it. Frames are replaced by what they mean.
pub(super) struct Seen<'a> {
    /// Python frames, innermost first.
    pub(super) frames: &'a mut [Frame],
    /// There were more.
    pub(super) truncated: bool,
    /// Vtable of the autograd node that runs on the thread, or 0.
    pub(super) node: u64,
    /// Return addresses, innermost first.
    pub(super) native: &'a mut [u64],
    /// There were more.
    pub(super) native_truncated: bool,
}

/// Events that were recorded without their stack because there was no room for it.
pub(crate) fn undefined() -> u64 {
    UNDEFINED.load(Relaxed)
}

/// What the writing thread does before it looks at the rings: definitions that still wait are carried into theirs, and what
/// hooks may not say is said.
#[cold]
pub(crate) fn poll() {
    if let (Some(t), Some(region)) = (tables(), recorder::region()) {
        t.outgoing.carry(|m| region.try_define(m));
        if FULL.load(Relaxed) && !SAID[0].swap(true, Relaxed) {
            let n = t.last_stack.load(Relaxed);
            say!(
                "no room for more than {n} different stacks: allocations with other stacks are recorded without one"
            );
        }
    }
    if FOREIGN.load(Relaxed) && !SAID[1].swap(true, Relaxed) {
        say!("this Python's frames are not laid out as in its release: no more stacks in this recording");
    }
}

/// The code object at this address is about to be freed. Whether it had a number.
pub(super) fn forget(code: u64) -> bool {
    tables().is_some_and(|t| t.codes.forget(code))
}

/// The number of a stack; its definition is on its way when this returns. 0: it cannot be defined now.
///
/// Other threads find it from now on by its hash, while no code object dies.
pub(super) fn stack(seen: &mut Seen<'_>, (hash, epoch): (u64, u32)) -> u32 {
    let id = tables().and_then(|t| {
        let id = define_stack(t, seen)?;
        t.seen.note(hash, epoch, id);
        Some(id)
    });
    if id.is_none() {
        UNDEFINED.fetch_add(1, Relaxed);
    }
    id.unwrap_or(0)
}

fn define_stack(t: &Tables, seen: &mut Seen<'_>) -> Option<u32> {
    let mut digest = Digest::new(1);
    digest.word(seen.node);
    digest.word(u64::from(seen.truncated) | u64::from(seen.native_truncated) << 1);
    for f in seen.frames.iter_mut() {
        let (python, code_type) = python::proved()?;
        let offset = python::instruction_offset(python, *f);
        *f = Frame { code: u64::from(code(t, f.code, code_type)?), instruction: u64::from(offset) };
        digest.word(f.code << 32 | f.instruction);
    }
    digest.word(u64::MAX);
    for address in seen.native.iter_mut() {
        *address = place(t, *address)?;
        digest.word(*address);
    }
    let free = match t.stacks.place(digest.key()).or_else(full)? {
        Place::Known(id) => return Some(id),
        Place::Free(free) => free,
    };
    let node = if seen.node == 0 { "" } else { node::type_name(seen.node) };
    let bound = 3 * HEAD + node.len().min(MAX_TEXT) + PER_FRAME * (seen.frames.len() + seen.native.len());
    let id = send(t, bound, &t.last_stack, |id, out| {
        let id = StackId(id);
        let mut out = Fixed::new(out);
        if seen.node != 0 {
            definition::put_node(&mut out, id, node);
        }
        if !seen.native.is_empty() {
            let frames = seen.native.iter().map(|n| (CodeId((n >> 32) as u32), *n as u32));
            definition::put_native(&mut out, id, frames, seen.native_truncated);
        }
        let frames = seen.frames.iter().map(|f| (CodeId(f.code as u32), f.instruction as u32));
        definition::put_stack(&mut out, id, frames, seen.truncated);
        out.whole().map(|n| (0, n))
    })?;
    free.settle(id)
}

/// Sends the message that `write` makes for the next number; it says where in the bytes it lies. The number; `None`: there
/// is no room.
fn send(
    t: &Tables,
    bound: usize,
    last: &AtomicU32,
    write: impl FnOnce(u32, &mut [u8]) -> Option<(usize, usize)>,
) -> Option<u32> {
    let region = recorder::region()?;
    if region.definition_room() < bound as u64 {
        return None;
    }
    if t.spent.load(Relaxed).saturating_add(bound as u64) > BUDGET {
        return full();
    }
    let mut piece = t.outgoing.piece(bound)?;
    let id = last.fetch_add(1, Relaxed).wrapping_add(1);
    let (from, len) = write(id, piece.bytes())?;
    t.spent.fetch_add(len as u64, Relaxed);
    piece.send(from, len);
    t.outgoing.carry(|m| region.try_define(m));
    Some(id)
}

#[cold]
fn full<T>() -> Option<T> {
    FULL.store(true, Relaxed);
    None
}

/// The library of a return address, above how far from its base that is. Code that is in no library (compiled at run time) has
/// number 0.
fn place(t: &Tables, address: u64) -> Option<u64> {
    // The call, not what follows it: that may be the next library's.
    let module = modules::current().and_then(|m| m.find((address as usize).wrapping_sub(1)));
    let Some(m) = module else { return Some(0) };
    let Ok(offset) = u32::try_from((address as usize).wrapping_sub(m.base)) else { return Some(0) };
    let mut id = m.library.id.load(Acquire);
    if id == 0 {
        let (path, build_id) = (&*m.library.path, &*m.library.build_id);
        let sent = send(t, HEAD + path.len().min(MAX_TEXT) + build_id.len(), &t.last_code, |id, out| {
            let (id, file) = (CodeId(id), path);
            let code = definition::Code {
                id,
                file,
                function: "",
                first_line: 0,
                line_table: build_id,
                python_minor: 0,
            };
            let mut out = Fixed::new(out);
            definition::put_code(&mut out, &code);
            out.whole().map(|n| (0, n))
        })?;
        // Somebody may have been faster; either number means this library.
        id = m.library.id.compare_exchange(0, sent, AcqRel, Acquire).map_or_else(|first| first, |_| sent);
    }
    Some(u64::from(id) << 32 | u64::from(offset))
}

/// The number of a code object.
fn code(t: &Tables, address: u64, code_type: u64) -> Option<u32> {
    match t.codes.find(address) {
        0 => {}
        id => return Some(id),
    }
    let object = checked(address, code_type)?;
    if !t.codes.has_room(address) {
        return full();
    }
    let (python, _) = python::proved()?;
    // SAFETY: a frame of the calling thread keeps the code object alive; the layout was proved.
    let said = unsafe { object::read(python, object) };
    let id = match t.contents.place(key(&said)).or_else(full)? {
        Place::Known(id) => id,
        Place::Free(free) => {
            let id = send(t, HEAD + 2 * said.bound(), &t.last_code, |id, out| {
                let (room, out) = out.split_at_mut_checked(said.file.bound())?;
                let file = said.file.utf8(room);
                let (room, out) = out.split_at_mut_checked(said.function.bound())?;
                let (function, minor) = (said.function.utf8(room), python.minor as u8);
                let mut out = Fixed::new(out);
                let (id, first_line, line_table) = (CodeId(id), said.first_line, said.line_table());
                definition::put_code(
                    &mut out,
                    &definition::Code { id, file, function, first_line, line_table, python_minor: minor },
                );
                out.whole().map(|n| (said.file.bound() + said.function.bound(), n))
            })?;
            free.settle(id)?
        }
    };
    // Should it die from now on, we hear of it; until here this thread's frame kept it alive.
    if t.codes.put(address, id) { Some(id) } else { full() }
}

/// What frames call their code must be a code object; anything else means that the offsets are wrong for this interpreter,
/// and then walking must end.
fn checked(address: u64, code_type: u64) -> Option<Code> {
    // SAFETY: the address was read where the version keeps the code of a live frame, so it is an object or null.
    let code = Code::checked(&unsafe { Direct::new() }, address, code_type);
    if code.is_none() {
        python::stop();
        FOREIGN.store(true, Relaxed);
    }
    code
}

/// All that a code object says.
fn key(said: &Said) -> Key {
    let mut d = Digest::new(2);
    for part in [said.file.raw(), said.function.raw(), said.line_table()] {
        d.word(part.len() as u64);
        d.0.write(part);
        d.1.write(part);
    }
    d.word(u64::from(said.first_line));
    d.key()
}

struct Digest(DefaultHasher, DefaultHasher);

impl Digest {
    fn new(salt: u64) -> Digest {
        let mut d = Digest(DefaultHasher::new(), DefaultHasher::new());
        d.0.write_u64(salt);
        d.1.write_u64(!salt);
        d
    }
    fn word(&mut self, w: u64) {
        self.0.write_u64(w);
        self.1.write_u64(w);
    }
    fn key(&self) -> Key {
        Key { hash: self.0.finish() | 1, check: self.1.finish() as u32 }
    }
}
