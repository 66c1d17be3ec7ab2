//! A stack with room, for what is done once: a process's first CUDA call may come from a thread with 16 KiB of stack, or from a signal
//! handler on an alternate one.

use super::{errno, mapping};
use core::arch::asm;
use core::ffi::c_void;

/// Bytes of it, and of the page below that nobody may touch.
const BYTES: usize = 512 << 10;
const GUARD: usize = 4096;

/// What is to be run, and what it gave.
struct Task<F, R> {
    run: Option<F>,
    result: Option<R>,
}

/// How a thread computes with floating-point numbers unless it says otherwise: nothing traps.
static USUAL_MXCSR: u32 = 0x1f80;

/// Runs `f` on a stack of its own, and with the usual floating-point settings, which threads begun by it inherit; `errno` and the settings stay
/// as they were. `None`: there is no memory for one, or `f` panicked. Cold: two mappings.
#[cold]
#[inline(never)]
pub(crate) fn with_room<R, F: FnOnce() -> R>(f: F) -> Option<R> {
    let _errno = errno::keep();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let base =
        mapping::map(BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1).ok()?.as_ptr().cast::<c_void>();
    let mut task = Task { run: Some(f), result: None };
    // SAFETY: the first page is of our own mapping and holds nothing yet. The top of the mapping is a multiple of 16, as the ABI wants
    // it before a call; `r12` is kept by the callee, so the old stack pointer is back afterwards; nothing unwinds out of `enter`,
    // which returns before the mapping goes. `task` outlives the call, and nobody else knows it.
    let mut mxcsr = 0u32;
    // SAFETY: as above; the register that holds the settings is put back before anybody else computes.
    unsafe {
        libc::mprotect(base, GUARD, libc::PROT_NONE);
        asm!("stmxcsr [{0}]", "ldmxcsr [{1}]", in(reg) &raw mut mxcsr, in(reg) &raw const USUAL_MXCSR, options(nostack));
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            // Whoever walks the stack stops here: beyond the mapping it has no frames, and may have no memory.
            ".cfi_remember_state",
            ".cfi_undefined rip",
            "call {enter}",
            "mov rsp, r12",
            ".cfi_restore_state",
            top = in(reg) base.add(BYTES),
            enter = in(reg) enter::<R, F> as extern "C" fn(*mut c_void),
            in("rdi") (&raw mut task).cast::<c_void>(),
            out("r12") _,
            clobber_abi("C"),
        );
        asm!("ldmxcsr [{0}]", in(reg) &raw const mxcsr, options(nostack, readonly));
        mapping::unmap(base, BYTES);
    }
    task.result
}

extern "C" fn enter<R, F: FnOnce() -> R>(task: *mut c_void) {
    // SAFETY: `with_room` passes its own task, and waits for this to return.
    let task = unsafe { &mut *task.cast::<Task<F, R>>() };
    if let Some(f) = task.run.take() {
        task.result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn deep(n: usize) -> usize {
        let filled = std::hint::black_box([n as u8; 1024]);
        if n == 0 { 0 } else { deep(n - 1) + usize::from(filled[n % 1024] == n as u8) }
    }

    #[test]
    fn what_a_small_stack_cannot_hold_runs_and_gives_its_result() {
        let small = std::thread::Builder::new().stack_size(16 << 10);
        let ran = small.spawn(|| with_room(|| deep(200))).expect("a thread").join();
        assert_eq!(ran.ok().flatten(), Some(200));
    }

    #[test]
    fn a_panic_stays_inside() {
        assert_eq!(with_room(|| -> u32 { panic!("inside") }), None);
        assert_eq!(with_room(|| 7), Some(7));
    }
}
