//! Stacks: which line asked for a block.
//!
//! Hot: [`current`] hashes the frames and looks the hash up in the thread's own cache (42 ns for 23 frames), else in the
//! one that all threads share. Once per distinct stack of the process `intern` copies what the code objects say, as quietly: no
//! heap, no lock, no system call there either.
//!
//! Nothing is read before `proof` has held what is known of this Python's frames against what it says of them itself.

mod described;
pub(crate) mod fraction;
pub(crate) mod intern;
mod memory;
pub(crate) mod native;
mod node;
mod object;
mod offsets;
mod outgoing;
mod proof;
mod python;
mod running;
mod slot;
pub(crate) mod tables;
mod watch;

use crate::platform::config::Stacks;
use crate::platform::real;
use crate::platform::say::say;
use crate::python::version::{is_finalizing, minor_of, python_version};
use crate::python::{interpreter, is_torch_initializing};
use crate::recorder;
use crate::recorder::Thread;
use crate::recorder::stack_memory::{KnownStack, MAX_FRAMES, STACKS};
pub(crate) use node::type_name;
pub(crate) use running::{RunningFrame, frame_at, frames_of};
use serde_json::json;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

const PROBES: usize = 4;

/// Number of the calling thread's stack: its Python frames, its native ones, and the autograd node that runs on it; 0 where it has
/// none of them, or none is recorded.
#[inline(never)]
#[unsafe(link_section = ".text.strandline_hot")]
pub(crate) fn current(t: &mut Thread) -> u32 {
    let (depth, hash) = python::walk::<false>(&mut t.cache.frames);
    let native = if native::is_on() { native::hash(&mut t.rules) } else { 0 };
    if depth == 0 && t.node == 0 && native == 0 {
        return 0;
    }
    // 0 marks an empty entry
    let hash = (hash ^ native ^ t.node.wrapping_mul(0xd6e8_feb8_6659_fd93)) | 1;
    known(t, hash, 0)
}

/// The same for a CUDA call that returns to `caller`: of its native frames that one alone, which tells the library.
#[inline]
pub(crate) fn of_call(t: &mut Thread, caller: u64) -> u32 {
    let (_, hash) = python::walk::<false>(&mut t.cache.frames);
    let hash = hash ^ caller.wrapping_mul(0xa076_1d64_78bd_642f) ^ t.node.wrapping_mul(0xd6e8_feb8_6659_fd93);
    known(t, hash | 1, caller)
}

/// The stack of a block that a CUDA call returning to `caller` gave: all of it where native frames are recorded, else Python's
/// and the library.
#[inline]
pub(crate) fn of_block(t: &mut Thread, caller: u64) -> u32 {
    if native::is_on() { current(t) } else { of_call(t, caller) }
}

#[inline(always)]
fn known(t: &mut Thread, hash: u64, caller: u64) -> u32 {
    let epoch = watch::epoch();
    for k in 0..PROBES {
        // SAFETY: the index is masked to the array's length.
        let e = unsafe { t.cache.entries.get_unchecked((((hash >> 20) as usize) + k) & (STACKS - 1)) };
        if e.hash == hash && e.epoch == epoch {
            return e.id;
        }
        if e.hash == 0 {
            break;
        }
    }
    miss(t, hash, epoch, caller)
}

/// This thread has not seen the stack; somebody else may have.
#[cold]
#[inline(never)]
fn miss(t: &mut Thread, hash: u64, epoch: u32, caller: u64) -> u32 {
    let id = match tables::tables().map_or(0, |t| t.seen.find(hash, epoch)) {
        0 => first_sight(t, hash, epoch, caller),
        known => known,
    };
    if id == 0 {
        return 0; // no room for the definition just now: ask again next time
    }
    for k in 0..PROBES {
        let at = (((hash >> 20) as usize) + k) & (STACKS - 1);
        let Some(e) = t.cache.entries.get_mut(at) else { continue };
        if e.hash == 0 || e.hash == hash || e.epoch != epoch || k == PROBES - 1 {
            *e = KnownStack { hash, id, epoch };
            break;
        }
    }
    id
}

/// Nobody has seen the stack: it is defined. Once per distinct stack of the process.
#[cold]
#[inline(never)]
fn first_sight(t: &mut Thread, hash: u64, epoch: u32, caller: u64) -> u32 {
    let (depth, _) = python::walk::<true>(&mut t.cache.frames);
    let Some(frames) = t.cache.frames.get_mut(..depth.min(MAX_FRAMES)) else { return 0 };
    let kept = python::keep_begun(frames);
    let Some(frames) = frames.get_mut(..kept) else { return 0 };
    let whole = caller == 0 && native::is_on();
    let walk = if whole { native::walk::<true>(&mut t.rules) } else { native::Walk::default() };
    let mut calls = [caller];
    let native = if caller == 0 { t.rules.frames(walk.depth) } else { &mut calls };
    let mut seen = intern::Seen {
        frames,
        truncated: depth > MAX_FRAMES,
        node: t.node,
        native,
        native_truncated: walk.truncated,
    };
    intern::stack(&mut seen, (hash, epoch))
}

/// Begins to read the stacks that are wanted, once; whether any are.
#[cold]
pub(crate) fn begin(wanted: Stacks) -> bool {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static ANY: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, AcqRel) {
        return ANY.load(Acquire);
    }
    let native = wanted.native() && native::start();
    if wanted.native() && !native {
        say!("native stacks need glibc 2.35 or newer: none are recorded");
    }
    recorder::record_metadata(json!({ "stacks": if native { "native" } else { "none" } }));
    // A program without Python that has native frames lacks nothing: a line on its stderr would only disturb who reads that.
    let python = wanted.python() && !(native && python_version().is_none());
    let python = if python { start() } else { Err(String::new()) };
    if let Err(why) = &python
        && !why.is_empty()
    {
        say!("{why}");
    }
    let any = python.is_ok() || native;
    ANY.store(any, Release);
    any
}

/// What is being waited for; null where nothing is.
static WAITING: AtomicPtr<Candidate> = AtomicPtr::new(core::ptr::null_mut());
/// A thread holds the trial, or it has been held to its end.
static PROVING: AtomicBool = AtomicBool::new(false);
/// A pending call that is to prove the layout is queued.
static QUEUED: AtomicBool = AtomicBool::new(false);

/// An interpreter whose layout is claimed and not proved yet.
struct Candidate {
    interpreter: python::Interpreter,
    code_type: *mut c_void,
    version: String,
}

/// Looks at the interpreter, and begins to read its frames as soon as what is known of them has been proved. That runs Python, which may
/// let the GIL go: never here, where the caller may hold a lock of PyTorch's that a thread with the GIL waits for, but by a pending
/// call, or where Python itself has just called us.
///
/// # Errors
/// Why there are no stacks, as one sentence.
#[cold]
pub(crate) fn start() -> Result<(), String> {
    let Some(version) = python_version() else {
        return Err("no Python in this process: no stacks".into());
    };
    let short = version.split_whitespace().next().unwrap_or("").to_string();
    let no = |why: &str| Err(format!("Python {short}: {why}; no stacks"));
    if version.contains("free-threading") {
        return no("it is a free-threaded build");
    }
    let minor = minor_of(&version).unwrap_or(0);
    let offsets = match offsets::of_version(minor).map_or_else(|| described::read(minor), Ok) {
        Ok(o) => o,
        Err(why) => return no(why),
    };
    // SAFETY: they have had these types in every version that is known.
    let (thread_state, code_type) = unsafe {
        (real::of_python(c"PyGILState_GetThisThreadState"), real::of_python::<*mut c_void>(c"PyCode_Type"))
    };
    let all = thread_state.zip(code_type).zip(is_finalizing()).filter(|_| interpreter::prepare());
    let Some(((thread_state, code_type), is_finalizing)) = all else {
        return no("functions of its C API are missing");
    };
    let others = match minor {
        ..=11 => match others() {
            None => return no("functions of its C API are missing"),
            others => others,
        },
        _ => None,
    };
    let interpreter = python::Interpreter { offsets, thread_state, is_finalizing, others, state_at: 0 };
    let candidate = Box::new(Candidate { interpreter, code_type, version: short });
    WAITING.store(Box::into_raw(candidate), Release);
    retry();
    Ok(())
}

/// What tells that there are sub-interpreters.
fn others() -> Option<python::Others> {
    // SAFETY: all three have had this type in every version up to 3.11, need no GIL and only read a pointer.
    let find = |name: &CStr| unsafe { real::of_python::<extern "C" fn() -> u64>(name) };
    let (youngest, main) = (find(c"PyInterpreterState_Head")?, find(c"PyInterpreterState_Main")?);
    Some(python::Others { youngest, main, holder: find(c"_PyThreadState_UncheckedGet")? })
}

/// Whether the layout is still to be proved.
#[inline]
pub(crate) fn is_waiting() -> bool {
    !WAITING.load(Acquire).is_null()
}

/// Proves the layout, if that is still to be done and this thread holds the GIL: called by Python itself. A load where it is done.
#[inline]
pub(crate) fn attempt() {
    if is_waiting() && try_now() {
        interpreter::raise_later();
    }
}

/// As [`attempt`]; whether a script's own exception is set, which its thread must see.
#[cold]
#[inline(never)]
fn try_now() -> bool {
    // One thread at a time. The candidate stays where it is meanwhile: what calls this is taken away once it waits no more.
    // SAFETY: set by `start` to a value that is never freed.
    let candidate = unsafe { WAITING.load(Acquire).as_ref() };
    let Some(c) = candidate.filter(|_| !PROVING.swap(true, AcqRel)) else { return false };
    let verdict = proof::attempt(c.interpreter, c.code_type as u64);
    match verdict {
        proof::Verdict::Proved(mut interpreter) => {
            interpreter.state_at = state_at(interpreter.thread_state);
            // SAFETY: the type object is the running interpreter's, and where it keeps `tp_dealloc` was proved. This thread took the
            // candidate, so no other is here.
            unsafe { watch::install(c.code_type) };
            python::start(interpreter, c.code_type as u64);
            recorder::record_metadata(json!({ "stacks": if native::is_on() { "both" } else { "python" } }));
        }
        proof::Verdict::Disproved(ref what) => {
            say!("Python {}: its frame layout failed the self-check ({what}); no stacks", c.version);
        }
        proof::Verdict::NotNow | proof::Verdict::HandOn => {}
    }
    let is_known = matches!(verdict, proof::Verdict::Proved(_) | proof::Verdict::Disproved(_));
    if is_known {
        WAITING.store(core::ptr::null_mut(), Release);
    }
    // A look that came before the store may take the candidate once more: only where it is not known yet.
    PROVING.store(is_known, Release);
    matches!(verdict, proof::Verdict::HandOn)
}

/// Where each thread has its thread state in its own descriptor; 0: it has to be asked for. With the GIL.
///
/// What is read there is what would be said, until the interpreter has taken its key back. No stack is read while it goes; one that
/// begins anew in the same process is asked, as its key may be another.
#[cold]
fn state_at(thread_state: extern "C" fn() -> u64) -> usize {
    extern "C" fn ended() {
        python::ask_for_states();
    }
    // SAFETY: the function's type is part of the stable C API; the GIL is held.
    let at_exit = unsafe { real::of_python::<extern "C" fn(extern "C" fn()) -> c_int>(c"Py_AtExit") };
    match (slot::find(|| thread_state()), at_exit) {
        (Some(at), Some(at_exit)) if at_exit(ended) == 0 => at,
        _ => 0,
    }
}

/// Queues the proof for the main thread, where it is still to be done and is not queued. Called by the drain.
#[cold]
pub(crate) fn retry() {
    let waiting = is_waiting() && interpreter::is_there();
    if waiting && !QUEUED.swap(true, AcqRel) && !interpreter::add_pending_call(pending) {
        QUEUED.store(false, Release);
    }
}

/// Runs on the main thread, with the GIL, between two instructions of the script.
extern "C" fn pending(_: *mut c_void) -> c_int {
    if !recorder::is_recording() || !is_waiting() {
        return 0;
    }
    if is_torch_initializing() && interpreter::add_pending_call(pending) {
        return 0; // as soon as it is done
    }
    let hand_on = try_now();
    QUEUED.store(false, Release);
    if hand_on { -1 } else { 0 }
}

/// Whether frames are read: their layout has been proved.
pub(crate) fn are_proved() -> bool {
    python::is_proved()
}
