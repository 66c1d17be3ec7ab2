//! The real functions behind the hooks, and the types in which C passes things.

use super::list::for_each_hook;
use crate::platform::real::{Library, Real};
use cudarc::runtime::sys::cudaError_t;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::AtomicPtr;

/// Any pointer.
pub(super) type P = *mut c_void;
/// The default stream.
pub(super) const NO_STREAM: P = core::ptr::null_mut();
/// What a function of the runtime returns.
pub(crate) type Status = i32;
/// Success.
pub(crate) const SUCCESS: Status = cudaError_t::cudaSuccess as Status;
/// Returned only where no real function exists in the whole process.
pub(crate) const NOTHING_BEHIND: Status = cudaError_t::cudaErrorNotSupported as Status;

/// A function of the CUDA runtime: its name, where its usual address is kept, and that address.
pub(super) type OfRuntime = (&'static CStr, usize, usize);

/// A `c10::Stream` or `c10::cuda::CUDAStream` by value: two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// Device type in the low byte, device index in the next; the rest is not defined.
    pub(crate) device: u64,
    /// c10's own number of the stream.
    pub(crate) id: u64,
}

impl Stream {
    /// CUDA ordinal.
    #[inline(always)]
    pub(crate) fn index(self) -> u8 {
        (self.device >> 8) as u8
    }
}

pub(super) const fn terminated(symbol: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(symbol.as_bytes()) {
        Ok(s) => s,
        Err(_) => c"",
    }
}

/// Calls the real function behind a hook of PyTorch's; where there is none, the hook returns `else`.
macro_rules! pass_on {
    ($real:ident($($a:expr),*)) => {
        $crate::hooks::functions::pass_on!($real($($a),*) else ())
    };
    ($real:ident($($a:expr),*) else $none:expr) => {
        match $crate::hooks::functions::real::$real.get() {
            // SAFETY: the arguments are those of the hook's own caller.
            Some(f) => unsafe { f($($a),*) },
            None => $none,
        }
    };
}
pub(super) use pass_on;

macro_rules! functions {
    ($($symbol:literal in $library:ident as $real:ident ($($a:ident: $t:ty),*) $(-> $r:ty)? => $([$how:ident])? $hook:path;)*) => {
        /// The real functions.
        pub(crate) mod real {
            use super::*;
            $(
                #[doc = concat!("`", $symbol, "`")]
                pub(crate) static $real: Real<unsafe extern "C-unwind" fn($($t),*) $(-> $r)?> =
                    // SAFETY: the type is the function's, as its library's headers declare it.
                    unsafe {
                        Real::new(
                            {
                                #[unsafe(link_section = ".data.strandline_hot")]
                                static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                                &ADDRESS
                            },
                            terminated(concat!($symbol, "\0")),
                            Library::$library,
                        )
                    };
            )*
        }
        /// What the shared memory calls each hook.
        #[allow(dead_code, reason = "not every hook records")]
        pub(crate) mod id {
            use strandline_core::event::HookId;
            $(pub(crate) const $real: HookId = HookId::of($symbol);)*
        }
        /// Looks all real functions up, outside of any allocator lock.
        #[cold]
        pub(crate) fn resolve_all() {
            $(real::$real.resolve();)*
        }
    };
}

for_each_hook!(functions);
