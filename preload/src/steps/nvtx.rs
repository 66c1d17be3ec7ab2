//! Steps that are NVTX ranges: `STRANDLINE_STEPS=nvtx:NAME`.
//!
//! NVTX is a header: every library that marks ranges has its own copy, which at its first mark loads the library that
//! `NVTX_INJECTION64_PATH` names and lets it fill a table of functions (nvToolsExt's `nvtxTypes.h`, version 3; the numbers
//! below are its). `strandline run` sets that variable to this library where such steps are asked for. A step ends when
//! its range does: popped on the thread that pushed it, or ended by its number on any.

use crate::platform::environment;
use crate::recorder::guard::{enter, enter_or_arm};
use once_cell::sync::OnceCell;
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strandline_core::event::HookId;
use strandline_core::format::env;
use strandline_core::format::raw::Kind;

/// What the shared memory calls what is recorded here.
const RANGE: HookId = HookId::of("nvtx");

/// The range's name.
static NAME: OnceCell<OsString> = OnceCell::new();
static STEPS: AtomicU64 = AtomicU64::new(0);
static RANGES: AtomicU64 = AtomicU64::new(0);

/// `NVTX_ETID_CALLBACKS`, `NVTX_CB_MODULE_CORE`.
const CALLBACKS: u32 = 1;
const CORE: u32 = 1;
/// `NVTX_CBID_CORE_…`
const RANGE_START_EX: usize = 4;
const RANGE_START_A: usize = 5;
const RANGE_END: usize = 7;
const RANGE_PUSH_EX: usize = 8;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;
/// `NVTX_MESSAGE_TYPE_ASCII`
const ASCII: i32 = 1;

/// `NvtxFunctionTable`: pointers to the words that hold the functions.
type Table = *mut *mut *const c_void;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
pub(crate) struct Exported {
    size: usize,
    table: Option<unsafe extern "C" fn(u32, *mut Table, *mut u32) -> c_int>,
}

/// The head of `nvtxEventAttributes_t`, as all versions have it.
#[repr(C)]
struct Attributes {
    version_and_size: u32,
    category: u32,
    color: [u32; 2],
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}
const _: () = assert!(core::mem::offset_of!(Attributes, message) == 40);

/// What a copy of NVTX calls when it is used first. 0: leave it without functions.
///
/// # Safety
/// `get` must be null or NVTX's own `NvtxGetExportTableFunc_t`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NVTX's name for it")]
pub(crate) unsafe extern "C" fn InitializeInjectionNvtx2(
    get: Option<unsafe extern "C" fn(u32) -> *const Exported>,
) -> c_int {
    let asked = environment::variable(env::STEPS).unwrap_or_default();
    let Some(name) = asked.as_bytes().strip_prefix(b"nvtx:").filter(|n| !n.is_empty()) else { return 0 };
    NAME.get_or_init(|| OsString::from(std::ffi::OsStr::from_bytes(name)));
    let Some(get) = get else { return 0 };
    let (mut table, mut size) = (core::ptr::null_mut(), 0);
    // SAFETY: the caller's function, given the number of a table that every version has; what it returns is null or that table.
    let done = unsafe {
        let exported = get(CALLBACKS).as_ref().filter(|e| e.size >= size_of::<Exported>());
        exported.and_then(|e| e.table).map(|fill| fill(CORE, &mut table, &mut size))
    };
    if done != Some(1) || table.is_null() {
        return 0;
    }
    let functions: [(usize, *const c_void); 6] = [
        (RANGE_START_EX, start_ex as *const c_void),
        (RANGE_START_A, start as *const c_void),
        (RANGE_END, end as *const c_void),
        (RANGE_PUSH_EX, push_ex as *const c_void),
        (RANGE_PUSH_A, push as *const c_void),
        (RANGE_POP, pop as *const c_void),
    ];
    for (i, function) in functions.into_iter().filter(|(i, _)| *i < size as usize) {
        // SAFETY: the table has `size` entries; an entry is null or points to a word of NVTX's that is ours to fill now.
        unsafe {
            let word = *table.add(i);
            if !word.is_null() {
                *word = function;
            }
        }
    }
    1
}

/// Whether a range of this name is a step.
///
/// # Safety
/// `name` must be null or a C string.
unsafe fn is_step(name: *const c_char) -> bool {
    // SAFETY: not null, hence a C string by the caller's promise.
    !name.is_null() && NAME.get().is_some_and(|n| n.as_bytes() == unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// The message of an event, where it is plain text.
///
/// # Safety
/// `attributes` must be null or what NVTX's caller filled.
unsafe fn message(attributes: *const Attributes) -> *const c_char {
    // SAFETY: the caller's promise.
    match unsafe { attributes.as_ref() } {
        Some(a) if a.message_type == ASCII => a.message,
        _ => core::ptr::null(),
    }
}

unsafe extern "C" fn push(name: *const c_char) -> c_int {
    // SAFETY: NVTX's caller passes a C string.
    pushed(unsafe { is_step(name) })
}

unsafe extern "C" fn push_ex(attributes: *const Attributes) -> c_int {
    // SAFETY: NVTX's caller filled them.
    pushed(unsafe { is_step(message(attributes)) })
}

/// A range begins on this thread; its level, from 0.
fn pushed(step: bool) -> c_int {
    // The range of the first step may begin before the first CUDA call.
    let Some(mut t) = (if step { enter_or_arm(RANGE) } else { enter(RANGE) }) else { return -1 };
    let level = t.ranges;
    t.ranges = level.saturating_add(1);
    if step && t.step_range.is_none() {
        t.step_range = Some(level);
    }
    c_int::try_from(level).unwrap_or(c_int::MAX)
}

extern "C" fn pop() -> c_int {
    let Some(mut t) = enter(RANGE) else { return -1 };
    t.ranges = t.ranges.saturating_sub(1);
    let level = t.ranges;
    if t.step_range == Some(level) {
        t.step_range = None;
        t.note(Kind::ManualStep, 0, STEPS.fetch_add(1, Relaxed) + 1, 0, 0);
    }
    c_int::try_from(level).unwrap_or(c_int::MAX)
}

unsafe extern "C" fn start(name: *const c_char) -> u64 {
    // SAFETY: NVTX's caller passes a C string.
    started(unsafe { is_step(name) })
}

unsafe extern "C" fn start_ex(attributes: *const Attributes) -> u64 {
    // SAFETY: NVTX's caller filled them.
    started(unsafe { is_step(message(attributes)) })
}

/// A range that any thread may end: odd numbers are steps.
fn started(step: bool) -> u64 {
    if step {
        drop(enter_or_arm(RANGE));
    }
    (RANGES.fetch_add(1, Relaxed) + 1) << 1 | u64::from(step)
}

extern "C" fn end(range: u64) {
    if range & 1 == 1
        && let Some(mut t) = enter(RANGE)
    {
        t.note(Kind::ManualStep, 0, STEPS.fetch_add(1, Relaxed) + 1, 0, 0);
    }
}
