//! Walks the Python frames of the calling thread, without the GIL.
//!
//! Rules of this room: hot. The walk only reads; frames cannot change while their own thread sits in C, and every code
//! object is kept alive by its frame. It hashes first and stores nothing; frames are stored only where the hash is new.

use super::memory::{At, Direct, Memory};
use super::object::Code;
use super::offsets::{OWNED_BY_INTERPRETER, Offsets};
use crate::platform::tls;
use crate::recorder::stack_memory::{Frame, MAX_FRAMES};
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// All that a walk needs of the running interpreter.
#[derive(Clone, Copy)]
pub(super) struct Interpreter {
    /// Its layout.
    pub(super) offsets: Offsets,
    /// `PyGILState_GetThisThreadState`.
    pub(super) thread_state: extern "C" fn() -> u64,
    /// Where, in its descriptor, each thread has what that says; 0: it has to be asked for.
    pub(super) state_at: usize,
    /// `Py_IsFinalizing`, by whichever name.
    pub(super) is_finalizing: extern "C" fn() -> i32,
    /// How to tell that a thread may be in a sub-interpreter, where `thread_state` does not know it (up to 3.11).
    pub(super) others: Option<Others>,
}

/// Up to 3.11 a thread that enters a sub-interpreter is still told the thread state that it had first.
#[derive(Clone, Copy)]
pub(super) struct Others {
    /// `PyInterpreterState_Head`: the youngest interpreter.
    pub(super) youngest: extern "C" fn() -> u64,
    /// `PyInterpreterState_Main`: the main one, which is the oldest. Null before Python begins; another one where it begins anew.
    pub(super) main: extern "C" fn() -> u64,
    /// `_PyThreadState_UncheckedGet`: who holds the GIL.
    pub(super) holder: extern "C" fn() -> u64,
}

impl Others {
    /// Whether the frames of this thread state may not be those that run. Where there are other interpreters, only a thread
    /// that holds the GIL with it is known to be where it says.
    #[inline(always)]
    fn are_near(&self, state: u64) -> bool {
        (self.youngest)() != (self.main)() && (self.holder)() != state
    }
}

/// An interpreter whose layout has been proved, and its type of code objects.
struct Proved(Interpreter, u64);

/// Set once the layout has been proved; null while nothing may be read.
#[unsafe(link_section = ".data.strandline_hot")]
static PROVED: AtomicPtr<Proved> = AtomicPtr::new(core::ptr::null_mut());
/// No real stack is deeper; a damaged chain ends here.
const ENDLESS: usize = 1 << 16;

/// Lets walks begin. The interpreter's layout has been proved.
#[cold]
pub(super) fn start(interpreter: Interpreter, code_type: u64) {
    PROVED.store(Box::into_raw(Box::new(Proved(interpreter, code_type))), Release);
}

/// The layout that was proved, and the type of code objects; `None` while nothing may be read.
pub(super) fn proved() -> Option<(&'static Offsets, u64)> {
    // SAFETY: set by `start` to a value that is never freed.
    unsafe { PROVED.load(Acquire).as_ref() }.map(|p| (&p.0.offsets, p.1))
}

/// Whether the layout has been proved.
pub(super) fn is_proved() -> bool {
    !PROVED.load(Acquire).is_null()
}

/// Thread states have to be asked for from now on.
#[cold]
pub(super) fn ask_for_states() {
    // SAFETY: set by `start` to a value that is never freed.
    let Some(Proved(interpreter, code_type)) = (unsafe { PROVED.load(Acquire).as_ref() }) else { return };
    start(Interpreter { state_at: 0, ..*interpreter }, *code_type);
}

/// Lets no walk begin any more.
pub(super) fn stop() {
    PROVED.store(core::ptr::null_mut(), Release);
}

/// Depth and hash of this thread's stack; depth 0 where there is none. With `STORE`, the innermost frames are written to
/// `out`.
#[inline(always)]
pub(super) fn walk<const STORE: bool>(out: &mut [Frame; MAX_FRAMES]) -> (usize, u64) {
    let Some((i, state)) = here() else { return (0, 0) };
    // SAFETY: the layout was proved against this interpreter's own word. The thread state is this thread's own and alive
    // while the thread is in C called from Python; its frames and their code objects are reachable from it, hence alive,
    // and only this thread changes the chain.
    let memory = unsafe { Direct::new() };
    frames::<_, STORE>(&i.offsets, &memory, state, out).unwrap_or((0, 0))
}

/// The interpreter and the calling thread's own state (0: it has none), where its frames may be read.
#[inline(always)]
fn here() -> Option<(&'static Interpreter, u64)> {
    // SAFETY: set by `start` to a value that is never freed.
    let Proved(i, _) = unsafe { PROVED.load(Acquire).as_ref() }?;
    // A finalizing interpreter frees the thread states of threads that still run.
    if (i.is_finalizing)() != 0 {
        return None;
    }
    let state = if i.state_at == 0 { (i.thread_state)() } else { tls::word_of_descriptor(i.state_at) };
    (!i.others.is_some_and(|o| o.are_near(state))).then_some((i, state))
}

/// The innermost Python frame of the calling thread, and its code object. `None`: it has none, and a thread that has a Python
/// state may have none: one of autograd's, or one of C that let the GIL go.
#[cold]
pub(super) fn innermost<M: Memory>(memory: &M) -> Option<(&'static Offsets, At, Code)> {
    let (i, state) = here()?;
    let (_, code_type) = proved()?;
    let o = &i.offsets;
    let mut chain = Chain::of(o, memory, At::new(state)?)?;
    let frame =
        if o.owner != 0 { chain.next::<M, true>(o, memory) } else { chain.next::<M, false>(o, memory) };
    let frame = frame??;
    let code = memory.read::<u64>(frame, o.code)? & !o.tag;
    Some((o, frame, Code::checked(memory, code, code_type)?))
}

/// The frames of a thread, innermost first: the one walk, whoever reads them, and by whichever memory.
pub(super) struct Chain {
    /// The next one; null behind the outermost.
    frame: u64,
}

impl Chain {
    /// Those of a thread state. `None`: something could not be read.
    #[inline(always)]
    pub(super) fn of<M: Memory>(o: &Offsets, memory: &M, state: At) -> Option<Chain> {
        let base = if o.cframe != 0 { memory.pointer(state, o.cframe)? } else { Some(state) };
        let frame = match base {
            Some(base) => memory.read::<u64>(base, o.current)?,
            None => 0,
        };
        Some(Chain { frame })
    }

    /// The next link: a frame, and whether it is Python's; with `OWNER` some are the interpreter's own. `None`: it could not be read;
    /// `Some(None)`: there are no more.
    #[inline(always)]
    pub(super) fn link<M: Memory, const OWNER: bool>(
        &mut self,
        o: &Offsets,
        memory: &M,
    ) -> Option<Option<(At, bool)>> {
        let Some(at) = At::new(self.frame) else { return Some(None) };
        self.frame = memory.read::<u64>(at, o.previous)?;
        Some(Some((at, !OWNER || memory.read::<u8>(at, o.owner)? < OWNED_BY_INTERPRETER)))
    }

    /// The next frame of Python's. `None`: one could not be read; `Some(None)`: there are no more.
    #[inline(always)]
    fn next<M: Memory, const OWNER: bool>(&mut self, o: &Offsets, memory: &M) -> Option<Option<At>> {
        while let Some((at, is_pythons)) = self.link::<M, OWNER>(o, memory)? {
            if is_pythons {
                return Some(Some(at));
            }
        }
        Some(None)
    }
}

/// The same, from a thread state on, through any memory. `None`: something could not be read.
#[inline(always)]
pub(super) fn frames<M: Memory, const STORE: bool>(
    o: &Offsets,
    memory: &M,
    state: u64,
    out: &mut [Frame; MAX_FRAMES],
) -> Option<(usize, u64)> {
    let Some(state) = At::new(state) else { return Some((0, 0)) };
    let frames = Chain::of(o, memory, state)?;
    match (o.minor <= 10, o.owner != 0) {
        (true, _) => frames_from::<M, STORE, true, false>(o, memory, frames, out),
        (_, true) => frames_from::<M, STORE, false, true>(o, memory, frames, out),
        _ => frames_from::<M, STORE, false, false>(o, memory, frames, out),
    }
}

/// [`chain`], where it lies: that of every allocation beside what else is called so often.
#[inline(always)]
fn frames_from<M: Memory, const STORE: bool, const INDEX: bool, const OWNER: bool>(
    o: &Offsets,
    memory: &M,
    frames: Chain,
    out: &mut [Frame; MAX_FRAMES],
) -> Option<(usize, u64)> {
    if M::IS_DIRECT && !STORE {
        chain_often::<M, INDEX, OWNER>(o, memory, frames, out)
    } else {
        chain_seldom::<M, STORE, INDEX, OWNER>(o, memory, frames, out)
    }
}

#[inline(never)]
#[unsafe(link_section = ".text.strandline_hot")]
fn chain_often<M: Memory, const INDEX: bool, const OWNER: bool>(
    o: &Offsets,
    memory: &M,
    frames: Chain,
    out: &mut [Frame; MAX_FRAMES],
) -> Option<(usize, u64)> {
    chain::<M, false, INDEX, OWNER>(o, memory, frames, out)
}

#[inline(never)]
fn chain_seldom<M: Memory, const STORE: bool, const INDEX: bool, const OWNER: bool>(
    o: &Offsets,
    memory: &M,
    frames: Chain,
    out: &mut [Frame; MAX_FRAMES],
) -> Option<(usize, u64)> {
    chain::<M, STORE, INDEX, OWNER>(o, memory, frames, out)
}

/// Depth and hash of these frames. `INDEX`: a frame says its instruction by number. `OWNER`: it says whose it is, and the
/// interpreter's own are left out. (3.9 and 3.10 have no frames but Python's.)
#[inline(always)]
fn chain<M: Memory, const STORE: bool, const INDEX: bool, const OWNER: bool>(
    o: &Offsets,
    memory: &M,
    mut frames: Chain,
    out: &mut [Frame; MAX_FRAMES],
) -> Option<(usize, u64)> {
    let o = *o;
    let (mut depth, mut hash) = (0usize, 0x9e37_79b9_7f4a_7c15u64);
    while depth < ENDLESS
        && let Some(frame) = frames.next::<M, OWNER>(&o, memory)?
    {
        let code = memory.read::<u64>(frame, o.code)? & !o.tag;
        let instruction = match INDEX {
            true => u64::from(memory.read::<u32>(frame, o.instruction)?),
            false => memory.read::<u64>(frame, o.instruction)?,
        };
        if STORE && let Some(slot) = out.get_mut(depth) {
            *slot = Frame { code, instruction };
        }
        hash = (hash ^ code.wrapping_mul(0x9ddf_ea08_eb38_2d69) ^ instruction)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
            .rotate_left(32);
        depth += 1;
    }
    Some((depth, hash))
}

/// Whether a frame runs already, and is not being made. `None`: its code could not be read.
pub(super) fn has_begun<M: Memory>(o: &Offsets, memory: &M, f: Frame) -> Option<bool> {
    if o.first_traced == 0 {
        return Some(true);
    }
    let first = memory.read::<u32>(At::new(f.code)?, o.first_traced)?;
    Some(f.instruction >= f.code + o.first_instruction as u64 + u64::from(first) * 2)
}

/// Leaves out, of frames that a walk has just stored, those that are only being made. How many are left.
pub(super) fn keep_begun(frames: &mut [Frame]) -> usize {
    let Some((o, _)) = proved().filter(|(o, _)| o.first_traced != 0) else { return frames.len() };
    // SAFETY: the layout was proved, and the frames of the calling thread keep their code objects alive.
    let memory = unsafe { Direct::new() };
    let mut kept = 0;
    for i in 0..frames.len() {
        let Some(&f) = frames.get(i) else { break };
        if has_begun(o, &memory, f) == Some(true)
            && let Some(to) = frames.get_mut(kept)
        {
            *to = f;
            kept += 1;
        }
    }
    kept
}

/// Offset of the instruction in its code object's bytecode, as the line table counts it.
pub(super) fn instruction_offset(o: &Offsets, f: Frame) -> u32 {
    match o.minor {
        9 => f.instruction as u32,
        10 => (f.instruction as u32).wrapping_mul(2),
        _ => f.instruction.wrapping_sub(f.code + o.first_instruction as u64) as u32,
    }
}
