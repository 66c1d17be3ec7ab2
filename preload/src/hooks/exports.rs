//! What is exported: a function under each symbol of the list, and where each of them is.

use super::entry_points::{Hook, Hooks};
use super::functions::{OfRuntime, P, Status, Stream, real};
use super::list::for_each_hook;
use super::{autograd, context, driver, entry_points, runtime, sticky_error, streams, torch};
use crate::platform::real::Library;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// What is exported under a symbol: the hook; with `called`, after the address that the call returns to was noted
/// (`tls::caller`), as all hooks of the runtime's functions need it; with `often`, for what is called thousands of times a step, beside the
/// code of the other such.
macro_rules! entry {
    ((often) $symbol:literal $real:ident ($($a:ident: $t:ty),*) ($(-> $r:ty)?) $hook:path) => {
        entry! { (() #[unsafe(link_section = ".text.strandline_hot")]) $symbol $real ($($a: $t),*) ($(-> $r)?) $hook }
    };
    (() $($rest:tt)*) => {
        entry! { (() #[inline(never)]) $($rest)* }
    };
    ((() #[$placed:meta]) $symbol:literal $real:ident ($($a:ident: $t:ty),*) ($(-> $r:ty)?) $hook:path) => {
        #[$placed]
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        pub(super) unsafe extern "C-unwind" fn $real($($a: $t),*) $(-> $r)? {
            // SAFETY: the caller's arguments are handed on as they are; hooks look at them only as the function itself would.
            unsafe { $hook($($a),*) }
        }
    };
    ((called) $($rest:tt)*) => {
        entry! { (called #[inline(never)]) $($rest)* }
    };
    ((often_called) $($rest:tt)*) => {
        entry! { (called #[unsafe(link_section = ".text.strandline_hot")]) $($rest)* }
    };
    ((called #[$placed:meta]) $symbol:literal $real:ident ($($a:ident: $t:ty),*) ($(-> $r:ty)?) $hook:path) => {
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(export_name = $symbol))]
        pub(super) unsafe extern "C-unwind" fn $real($($a: $t),*) $(-> $r)? {
            #[$placed]
            unsafe extern "C-unwind" fn entered($($a: $t),*) $(-> $r)? {
                // SAFETY: as above.
                unsafe { $hook($($a),*) }
            }
            // No argument is in these two registers, and the stack is as the caller left it.
            core::arch::naked_asm!(
                "mov r11, qword ptr [rip + strandline_tls_caller@GOTTPOFF]",
                "mov rax, qword ptr [rsp]",
                "mov qword ptr fs:[r11], rax",
                "jmp {entered}",
                entered = sym entered,
            )
        }
    };
}

macro_rules! exports {
    ($($symbol:literal in $library:ident as $real:ident ($($a:ident: $t:ty),*) $(-> $r:ty)? => $([$how:ident])? $hook:path;)*) => {
        #[allow(non_snake_case)]
        mod exported {
            use super::*;
            $(
                entry! { ($($how)?) $symbol $real ($($a: $t),*) ($(-> $r)?) $hook }
                // Keeps the function in test builds too, where it is not exported.
                #[cfg(test)]
                const _: unsafe extern "C-unwind" fn($($t),*) $(-> $r)? = $real;
            )*
        }
        /// Every symbol that is hooked, in the order of the list.
        #[allow(dead_code, unreachable_pub, reason = "the list, for those who check it")]
        pub const HOOKED: &[&str] = &[$($symbol),*];
        /// The driver's functions among them, and whatever else the list has, by name.
        static TABLE: &[Hook] = &[$(Hook {
            name: $symbol,
            library: Library::$library,
            hook: exported::$real as *const c_void,
            real: real::$real.place(),
        }),*];
        /// The runtime's functions that are hooked.
        #[cold]
        pub(super) fn functions_of_runtime() -> Vec<OfRuntime> {
            let all = [$((Library::$library, real::$real.name(), real::$real.place())),*];
            let of_runtime = all.into_iter().filter(|f| f.0 == Library::Cudart);
            of_runtime.map(|(_, name, place)| (name, std::ptr::from_ref(place) as usize, place.load(Relaxed) as usize)).collect()
        }
        /// Every symbol with the address of its hook and that of the real function, which is null where there is none.
        #[cold]
        pub(crate) fn addresses() -> Vec<(&'static str, usize, usize)> {
            vec![$(($symbol, exported::$real as *const () as usize, real::$real.resolve() as usize)),*]
        }
    };
}

for_each_hook!(exports);

/// All hooks.
pub(super) struct All;

impl Hooks for All {
    fn all() -> &'static [Hook] {
        TABLE
    }
}

/// A hook that may step aside: its name, its address and that of the real function.
pub(crate) type Trigger = (&'static str, usize, usize);

/// The hook with nothing to do any more once it is settled whether we are attached: what is called before every kernel comes to us
/// five thousand times a step.
#[cold]
pub(crate) fn attach_trigger() -> Option<Trigger> {
    let real = &real::GET_CURRENT_STREAM;
    trigger(real.name(), exported::GET_CURRENT_STREAM as *const c_void, real.resolve())
}

/// The same once our Python has run: what is called for each tensor that autograd takes in.
#[cold]
pub(crate) fn python_trigger() -> Option<Trigger> {
    let real = &real::GRADIENT_EDGE;
    trigger(real.name(), exported::GRADIENT_EDGE as *const c_void, real.resolve())
}

fn trigger(name: &'static CStr, hook: *const c_void, real: *mut c_void) -> Option<Trigger> {
    Some((name.to_str().ok()?, hook as usize, real as usize)).filter(|_| !real.is_null())
}

/// The address of our hook of `reportMemoryUsageToProfiler`, which PyTorch calls after each event of its allocator.
#[inline(always)]
pub(crate) fn memory_report_address() -> *const () {
    exported::REPORT_MEMORY_USAGE as *const ()
}

/// The C interface, exported beside the hooks.
#[allow(dead_code, unreachable_pub, reason = "the list, for those who check it")]
pub const CONTROL: &[&str] = &[
    "strandline_step",
    "strandline_phase",
    "strandline_mark",
    "strandline_snapshot",
    "strandline_version",
    // Steps that are NVTX ranges.
    "InitializeInjectionNvtx2",
    // How programs without an import of CUDA's find it.
    "dlsym",
    // The late door.
    "strandline_start",
    "strandline_device",
    "strandline_recording",
    "strandline_stop",
    // Blocks of CuPy's pool.
    "strandline_cupy",
    "strandline_block",
    "strandline_block_gone",
    // The pluggable door.
    "strandline_malloc",
    "strandline_free",
    "strandline_record_stream",
    "strandline_empty_cache",
    "strandline_set_memory_fraction",
    "strandline_memory_fraction",
    "strandline_begin_pool",
    "strandline_end_pool",
    "strandline_release_pool",
    "strandline_memory_stats",
    "strandline_reset_memory_stats",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_symbol_is_listed_twice_and_all_are_of_cuda_or_torch() {
        let mut all = HOOKED.to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), HOOKED.len());
        for s in HOOKED {
            let of_driver = s.starts_with("cu") && s.as_bytes().get(2).is_some_and(u8::is_ascii_uppercase);
            let ours = ["cuda", "_ZN3c10", "_ZN2at", "_ZN5torch"].iter().any(|p| s.starts_with(p));
            assert!(ours || of_driver, "{s}");
        }
        let of_cuda = |s: &&&str| s.starts_with("cu");
        assert_eq!(
            HOOKED.iter().find(|s| of_cuda(s) && !strandline_core::event::CALLS.contains(s)),
            None,
            "a call without a number"
        );
        let others = ["InitializeInjectionNvtx2", "dlsym"];
        assert!(CONTROL.iter().all(|s| s.starts_with("strandline_") || others.contains(s)));
    }
}
