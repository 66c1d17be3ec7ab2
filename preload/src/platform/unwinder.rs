//! The functions that unwind the stack, found when the first of them is needed.
//!
//! The standard library calls them, and has `libgcc_s.so.1` as needed for that. A library that is preloaded with it would load the machine's own before the
//! job's: a library that brings a newer one along, as conda environments can, could not be loaded any more. So these names are defined here, hidden in this library, and
//! jump to those of the `libgcc_s` that the process has by then. As in `glibc_compat`, this works where the whole library is one object. The law test reads
//! the result.

use super::loader;
#[cfg(strandline_floor)]
use core::arch::global_asm;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

const LIBRARY: &CStr = c"libgcc_s.so.1";

/// What [`FOUND`] has, and what is called where nobody has it.
const NAMES: [(&CStr, Missing); 12] = [
    (c"_Unwind_Backtrace", Missing::EndOfStack),
    (c"_Unwind_RaiseException", Missing::EndOfStack),
    (c"_Unwind_Resume", Missing::Ends),
    (c"_Unwind_DeleteException", Missing::Nothing),
    (c"_Unwind_GetDataRelBase", Missing::Nothing),
    (c"_Unwind_GetIP", Missing::Nothing),
    (c"_Unwind_GetIPInfo", Missing::Nothing),
    (c"_Unwind_GetLanguageSpecificData", Missing::Nothing),
    (c"_Unwind_GetRegionStart", Missing::Nothing),
    (c"_Unwind_GetTextRelBase", Missing::Nothing),
    (c"_Unwind_SetGR", Missing::Nothing),
    (c"_Unwind_SetIP", Missing::Nothing),
];

static FOUND: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; NAMES.len()];

/// What a function does that nobody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// It says that there are no more frames.
    EndOfStack,
    /// It has nothing to say.
    Nothing,
    /// There is no way on.
    Ends,
}

extern "C" fn end_of_stack() -> i32 {
    /// `_URC_END_OF_STACK`.
    const END: i32 = 5;
    END
}

extern "C" fn nothing() -> usize {
    0
}

extern "C" fn ends() -> ! {
    // SAFETY: the instruction does nothing but end the process.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}

impl Missing {
    fn function(self) -> *mut c_void {
        match self {
            Missing::EndOfStack => end_of_stack as *mut c_void,
            Missing::Nothing => nothing as *mut c_void,
            Missing::Ends => ends as *mut c_void,
        }
    }
}

/// Finds them where the process has a `libgcc_s` by now, so that nothing asks the loader later.
#[cold]
pub(crate) fn find() {
    let _in_loader = loader::enter();
    let library = loader::open(Some(LIBRARY));
    if !library.is_null() {
        find_in(library);
    }
}

/// Finds them now, wherever they are: one of them is called.
#[cfg(strandline_floor)]
#[cold]
extern "C" fn find_at_last() {
    let _errno = super::errno::keep();
    let _in_loader = loader::enter();
    let mut library = loader::open(Some(LIBRARY));
    if library.is_null() {
        // SAFETY: its initialisers look at the processor, and at nothing of the job's.
        library = unsafe { loader::load(LIBRARY) };
    }
    find_in(library);
}

fn find_in(library: *mut c_void) {
    for ((name, missing), found) in NAMES.iter().zip(&FOUND) {
        // SAFETY: the library is open and stays it; null asks all that the program began with, as `RTLD_DEFAULT` is.
        let function = unsafe { loader::symbol(library, name) };
        found.store(if function.is_null() { missing.function() } else { function }, Relaxed);
    }
}

// Each jumps: the frame below it is its caller's, as the unwinder expects.
#[cfg(strandline_floor)]
global_asm!(
    ".macro strandline_unwind name, place",
    ".hidden \\name",
    ".globl \\name",
    ".type \\name,@function",
    "\\name:",
    ".cfi_startproc",
    "endbr64",
    "lea r10, [rip + {found} + 8 * \\place]",
    "mov r11, [r10]",
    "test r11, r11",
    "jz strandline_unwind_first",
    "jmp r11",
    ".cfi_endproc",
    ".size \\name, . - \\name",
    ".endm",
    "strandline_unwind _Unwind_Backtrace, 0",
    "strandline_unwind _Unwind_RaiseException, 1",
    "strandline_unwind _Unwind_Resume, 2",
    "strandline_unwind _Unwind_DeleteException, 3",
    "strandline_unwind _Unwind_GetDataRelBase, 4",
    "strandline_unwind _Unwind_GetIP, 5",
    "strandline_unwind _Unwind_GetIPInfo, 6",
    "strandline_unwind _Unwind_GetLanguageSpecificData, 7",
    "strandline_unwind _Unwind_GetRegionStart, 8",
    "strandline_unwind _Unwind_GetTextRelBase, 9",
    "strandline_unwind _Unwind_SetGR, 10",
    "strandline_unwind _Unwind_SetIP, 11",
    ".purgem strandline_unwind",
    // None of them has more than three arguments; r10 says which it is. Five words keep the stack on sixteen bytes.
    "strandline_unwind_first:",
    ".cfi_startproc",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "push r10",
    ".cfi_adjust_cfa_offset 8",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {find}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "pop r10",
    ".cfi_adjust_cfa_offset -8",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "jmp [r10]",
    ".cfi_endproc",
    found = sym FOUND,
    find = sym find_at_last,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_those_of_the_library_that_the_process_has() {
        find();
        let all: Vec<*mut c_void> = FOUND.iter().map(|f| f.load(Relaxed)).collect();
        for ((name, missing), found) in NAMES.iter().zip(&all) {
            assert!(!found.is_null() && *found != missing.function(), "{name:?}");
        }
        assert!(all.iter().enumerate().all(|(i, f)| !all[..i].contains(f)), "each is another one");
    }
}
