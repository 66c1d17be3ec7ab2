//! Four thread-local words, reached through the thread pointer alone.
//!
//! `thread_local!` in a shared library goes through `__tls_get_addr`, which may allocate on a thread's first access and
//! costs 2.6 ns against 1.0 ns here. The stable compiler cannot ask for the initial-exec model, so the words are
//! defined in assembly and read through `@GOTTPOFF`; the library is loaded at start-up, so static TLS always has room.

use core::arch::{asm, global_asm};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A word of every thread's: its symbol, how to read it and how to set it.
macro_rules! word {
    ($symbol:literal, $get:ident, $set:ident) => {
        global_asm!(
            ".section .tbss.strandline,\"awT\",@nobits",
            ".p2align 3",
            concat!(".hidden ", $symbol),
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ",@object"),
            concat!(".size ", $symbol, ",8"),
            concat!($symbol, ":"),
            ".zero 8",
            ".text",
        );

        #[inline(always)]
        fn $get() -> u64 {
            let word: u64;
            // SAFETY: loads the word's offset from the GOT and the word relative to the thread pointer; touches nothing
            // else.
            unsafe {
                asm!(
                    concat!("mov {p}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov {p}, qword ptr fs:[{p}]",
                    p = out(reg) word,
                    options(nostack, preserves_flags, readonly)
                )
            };
            word
        }

        #[inline(always)]
        #[allow(dead_code, reason = "one of them is set in assembly")]
        fn $set(word: u64) {
            // SAFETY: as above, with a store to a word that only this thread can reach.
            unsafe {
                asm!(
                    concat!("mov {p}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov qword ptr fs:[{p}], {w}",
                    p = out(reg) _,
                    w = in(reg) word,
                    options(nostack, preserves_flags)
                )
            };
        }
    };
}

word!("strandline_tls_thread", get_thread_word, set_thread_word);
word!("strandline_tls_device", get_device_word, set_device_word);
word!("strandline_tls_autograd", get_autograd_word, set_autograd_word);
word!("strandline_tls_caller", get_caller_word, set_caller_word);

/// Where the CUDA call that is being made returns to: hooks that are entered with `called` note it. Good until the call is
/// forwarded.
#[inline(always)]
pub(crate) fn caller() -> u64 {
    get_caller_word()
}

/// Address of this thread's state; null before its first event.
#[inline(always)]
pub(crate) fn thread() -> *mut c_void {
    get_thread_word() as *mut c_void
}

/// Sets this thread's state.
#[inline(always)]
pub(crate) fn set_thread(t: *mut c_void) {
    set_thread_word(t as u64);
}

/// What a thread is taken to have chosen that was not seen to choose.
static USUAL_DEVICE: AtomicU64 = AtomicU64::new(0);

/// The device this thread last chose, with `cudaSetDevice` or by a context of the driver's; where it never did, 0 as in the runtime, or the one that
/// [`set_usual_device`] told.
#[inline(always)]
pub(crate) fn device() -> u8 {
    match get_device_word() as u8 {
        0 => USUAL_DEVICE.load(Relaxed) as u8,
        chosen => chosen - 1,
    }
}

/// Notes the device that this thread chose.
#[inline(always)]
pub(crate) fn set_device(d: u8) {
    set_device_word(get_device_word() & !0xff | u64::from(d.saturating_add(1)));
}

/// Notes the device of the context that this thread pushed on its stack of them: the word is that stack, a byte for each,
/// the current one lowest. A context of an unknown device changes nothing.
#[inline(always)]
pub(crate) fn push_device(d: Option<u8>) {
    let known = d.map_or(get_device_word() & 0xff, |d| u64::from(d.saturating_add(1)));
    set_device_word(get_device_word() << 8 | known);
}

/// It was popped. Where more are popped than were seen to be pushed, the last one stays.
#[inline(always)]
pub(crate) fn pop_device() {
    let below = get_device_word() >> 8;
    if below != 0 {
        set_device_word(below);
    }
}

/// Threads chose their device before we were there to see it: most probably this one.
pub(crate) fn set_usual_device(d: u8) {
    USUAL_DEVICE.store(u64::from(d), Relaxed);
}

/// Whether torch has named this thread as one of its autograd engine.
pub(crate) fn is_autograd() -> bool {
    get_autograd_word() != 0
}

/// This thread is one of the autograd engine.
pub(crate) fn set_autograd() {
    set_autograd_word(1);
}

/// Bytes of a thread's descriptor that are looked at: it is larger in every glibc for x86-64 (2,304 and more), and this library is
/// linked against no other C library.
const DESCRIPTOR: usize = 2048;

/// The places of its words.
pub(crate) fn words_of_descriptor() -> impl Iterator<Item = usize> {
    (0..DESCRIPTOR).step_by(8)
}

/// The word `at` so many bytes behind the thread pointer, where the C library keeps what it knows of a thread.
#[inline(always)]
pub(crate) fn word_of_descriptor(at: usize) -> u64 {
    let word: u64;
    // SAFETY: the C library's descriptor of a thread begins at the thread pointer and is more than 2 KiB large; an aligned word
    // below that is loaded. Touches nothing else.
    unsafe {
        asm!("mov {w}, qword ptr fs:[{at}]", at = in(reg) at & (DESCRIPTOR - 8), w = out(reg) word,
            options(nostack, preserves_flags, readonly))
    };
    word
}

/// The kernel's number of this thread, as the C library keeps it `at` so many bytes behind the thread pointer.
#[inline(always)]
pub(crate) fn tid_at(at: usize) -> u32 {
    let tid: u32;
    // SAFETY: the C library's descriptor of a thread begins at the thread pointer and is more than 2 KiB large; callers
    // stay below. The load touches nothing else.
    unsafe {
        asm!("mov {t:e}, dword ptr fs:[{at}]", at = in(reg) at & 1023, t = out(reg) tid,
            options(nostack, preserves_flags, readonly))
    };
    tid
}
