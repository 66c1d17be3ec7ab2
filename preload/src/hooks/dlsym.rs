//! `dlsym`, for programs that look the driver's functions up by name: see `asked`.

use super::entry_points::{find, gets_real_functions, library_name_is};
use super::exports::All;
use crate::platform::loader::{Dlsym, next};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The real `dlsym`.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks up the one that the job would have without us: the next library's behind this one, which another preloaded library may be.
#[cfg_attr(test, allow(dead_code, reason = "tests do not stand before the loader"))]
extern "C" fn find_dlsym() -> *mut c_void {
    let p = next(c"dlsym");
    DLSYM.store(p, Relaxed);
    p
}

/// A library is asked for a name that may be the driver's.
#[cfg_attr(test, allow(dead_code, reason = "as above"))]
unsafe extern "C" fn asked(
    library: *mut c_void,
    name: *const c_char,
    caller: *const c_void,
    dlsym: Dlsym,
) -> *mut c_void {
    // SAFETY: the caller's arguments; the library is a real one, so it does not matter who asks.
    let (real, name) = unsafe { (dlsym(library, name), CStr::from_ptr(name).to_bytes()) };
    match find::<All>(name) {
        Some(hook)
            if !real.is_null()
                && !core::ptr::eq(real, hook.hook)
                && library_name_is(real, |n| n.starts_with(b"libcuda.so"))
                && !gets_real_functions(caller) =>
        {
            hook.replacement_for(real)
        }
        _ => real,
    }
}

/// `dlsym`. Names that do not go on with a capital letter after `cu`, and look-ups without a library, are not looked at.
#[cfg(not(test))]
#[unsafe(naked)]
#[unsafe(export_name = "dlsym")]
pub(super) unsafe extern "C" fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "mov rcx, qword ptr [rip + {real}]",
        "test rcx, rcx",
        "jnz 2f",
        // The first look-up of the process, or there is no real one to be found.
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "mov rcx, rax",
        "test rcx, rcx",
        "jz 4f",
        "2:",
        "lea rax, [rdi + 1]", // RTLD_NEXT is -1, RTLD_DEFAULT is 0
        "cmp rax, 1",
        "jbe 3f",
        "test rsi, rsi",
        "jz 3f",
        "cmp byte ptr [rsi], 0x63", // c
        "jne 3f",
        "cmp byte ptr [rsi + 1], 0x75", // u
        "jne 3f",
        "movzx eax, byte ptr [rsi + 2]",
        "sub eax, 0x41", // A
        "cmp eax, 25",
        "ja 3f",
        "mov rdx, qword ptr [rsp]",
        "jmp {asked}",
        "3:",
        "jmp rcx",
        "4:",
        "ret", // rax is zero
        real = sym DLSYM,
        find = sym find_dlsym,
        asked = sym asked,
    )
}
