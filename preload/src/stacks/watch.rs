//! Tells when a registered code object dies.
//!
//! The address of a freed code object is reused, often at once and with the same name and file, so no fingerprint tells
//! old from new (5,001 of 8,272 stacks were wrong without this watch). `PyCode_Type.tp_dealloc` is replaced by a function
//! that forgets the address first: one aligned 8-byte store, for which the GIL is not needed.

use super::{intern, offsets};
use crate::recorder;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

static OLD: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Counts up when a registered code object dies. Stacks cached under an older count are resolved anew.
#[unsafe(link_section = ".data.strandline_hot")]
static EPOCH: AtomicU32 = AtomicU32::new(1);

/// The count of deaths.
#[inline(always)]
pub(super) fn epoch() -> u32 {
    EPOCH.load(Acquire)
}

/// Puts the watch in place.
///
/// # Safety
/// - `code_type` must be the interpreter's `PyCode_Type`, of a version in the table.
/// - No two threads at once: the second would take our function for the type's own, and it would call itself.
pub(super) unsafe fn install(code_type: *mut c_void) {
    if !OLD.load(Relaxed).is_null() {
        return;
    }
    // SAFETY: `tp_dealloc` lies at this offset in every version of the table, and is 8-aligned in a static object.
    let slot = unsafe { AtomicPtr::<c_void>::from_ptr(code_type.byte_add(offsets::TP_DEALLOC).cast()) };
    OLD.store(slot.load(Acquire), Release);
    slot.store(died as *mut c_void, Release);
}

/// Called by the interpreter with the GIL held: two cache lines are looked at (an `import torch` frees 30,000 code objects that
/// nobody noted). In a forked child it only goes on to the old function.
extern "C" fn died(code: *mut c_void) {
    if recorder::is_recording() && intern::forget(code as u64) {
        EPOCH.fetch_add(1, Release);
    }
    // SAFETY: `OLD` was set, before this function became reachable, to the type's own `tp_dealloc`.
    let old: extern "C" fn(*mut c_void) = unsafe { core::mem::transmute(OLD.load(Acquire)) };
    old(code);
}
