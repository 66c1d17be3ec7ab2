//! Walks the Python frames of the calling thread, without the GIL.
//!
//! Rules of this room: hot. The walk only reads; frames cannot change while their own thread sits in C, and every code
//! object is kept alive by its frame. It hashes first and stores nothing; frames are stored only where the hash is new.

use super::offsets::{OLDEST, OWNED_BY_C_STACK, Offsets, TABLE};
use super::{Frame, MAX_FRAMES};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

static GET_THREAD_STATE: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
static IS_FINALIZING: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(core::ptr::null_mut());
static MINOR: AtomicU32 = AtomicU32::new(0);
/// No real stack is deeper; a damaged chain ends here.
const ENDLESS: usize = 1 << 16;

/// Lets walks begin: from now on frames are read with the offsets of this version.
pub(super) fn start(
    minor: u32,
    get_thread_state: *mut std::ffi::c_void,
    is_finalizing: *mut std::ffi::c_void,
) {
    GET_THREAD_STATE.store(get_thread_state, Relaxed);
    IS_FINALIZING.store(is_finalizing, Relaxed);
    MINOR.store(minor, Release);
}

/// Lets no walk begin any more.
pub(super) fn stop() {
    MINOR.store(0, Release);
}

/// Depth and hash of this thread's stack; depth 0 where there is none. With `STORE`, the innermost frames are written to
/// `out`.
#[inline(always)]
pub(super) fn walk<const STORE: bool>(out: &mut [Frame; MAX_FRAMES]) -> (usize, u64) {
    // SAFETY: `MINOR` is set only to the running interpreter's own version (see `super::start`).
    unsafe {
        match MINOR.load(Acquire) {
            11 => walk_as::<11, STORE>(out),
            12 => walk_as::<12, STORE>(out),
            13 => walk_as::<13, STORE>(out),
            10 => walk_as::<10, STORE>(out),
            9 => walk_as::<9, STORE>(out),
            _ => (0, 0),
        }
    }
}

#[inline(always)]
unsafe fn read(base: u64, offset: usize) -> u64 {
    // SAFETY: the caller's: `base` is an object of the interpreter that has a word at `offset`.
    unsafe { *((base as usize + offset) as *const u64) }
}

/// # Safety
/// The process must run CPython 3.`V`, and `start` must have been given its functions.
#[inline(always)]
unsafe fn walk_as<const V: u32, const STORE: bool>(out: &mut [Frame; MAX_FRAMES]) -> (usize, u64) {
    let o: &Offsets = const { &TABLE[(V - OLDEST) as usize] };
    // SAFETY: by the caller's promise the offsets are right. The thread state is this thread's own and alive while the
    // thread is in C called from Python; its frames and their code objects are reachable from it, hence alive, and only
    // this thread changes the chain.
    unsafe {
        // A finalizing interpreter frees the thread states of threads that still run.
        let is_finalizing: extern "C" fn() -> i32 = core::mem::transmute(IS_FINALIZING.load(Relaxed));
        if is_finalizing() != 0 {
            return (0, 0);
        }
        let get: extern "C" fn() -> u64 = core::mem::transmute(GET_THREAD_STATE.load(Relaxed));
        let state = get();
        if state == 0 {
            return (0, 0);
        }
        let base = if o.cframe != 0 { read(state, o.cframe) } else { state };
        if base == 0 {
            return (0, 0);
        }
        let mut frame = read(base, o.current);
        let (mut depth, mut hash) = (0usize, 0x9e37_79b9_7f4a_7c15u64);
        while frame != 0 && depth < ENDLESS {
            let previous = read(frame, o.previous);
            if V >= 12 && *((frame as usize + o.owner) as *const u8) == OWNED_BY_C_STACK {
                frame = previous;
                continue;
            }
            let code = read(frame, o.code);
            let instruction = if V <= 10 {
                u64::from(*((frame as usize + o.instruction) as *const u32))
            } else {
                read(frame, o.instruction)
            };
            if STORE && let Some(slot) = out.get_mut(depth) {
                *slot = Frame { code, instruction };
            }
            hash = (hash ^ code.wrapping_mul(0x9ddf_ea08_eb38_2d69) ^ instruction)
                .wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash ^= hash >> 29;
            depth += 1;
            frame = previous;
        }
        (depth, hash)
    }
}

/// Offset of the instruction in its code object's bytecode, as the line table counts it.
pub(super) fn instruction_offset(o: &Offsets, f: Frame) -> u32 {
    match o.minor {
        9 => f.instruction as u32,
        10 => (f.instruction as u32).wrapping_mul(2),
        _ => f.instruction.wrapping_sub(f.code + o.first_instruction as u64) as u32,
    }
}
