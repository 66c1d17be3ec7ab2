//! Programs that ask for CUDA's driver by name: `dlsym`, and the driver's own `cuGetProcAddress`. A runtime that is linked
//! into a program or library (CuPy, JAX, NCCL, what nvcc makes) reaches the driver in this way and in no other.
//!
//! Whoever asks for a driver function of our list gets the hook, and the hook gets what would have been handed out. A dynamic
//! `libcudart` is the exception: its callers come to us already, one level higher, and would be counted twice.
//!
//! `dlsym` stands in every process of the job, so it decides by three letters of the name, and everything else is one jump to
//! the real one with the caller's own return address: that is what `RTLD_NEXT` goes by. A look-up without a library
//! (`RTLD_DEFAULT`, `RTLD_NEXT`) is not touched either: the loader's answer to it is right, since the hooks are exported.

use super::filled::filled;
use super::functions::{P, Status};
use super::sticky_error::forward;
use crate::platform::loader::library_of;
use crate::platform::real::Library;
use crate::platform::tls;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A hook, as the list has it.
pub(crate) struct Hook {
    /// What it is exported as.
    pub(super) name: &'static str,
    /// Who defines the real one.
    pub(super) library: Library,
    /// The hook.
    pub(super) hook: *const c_void,
    /// Where the real function's address is kept.
    pub(super) real: &'static AtomicPtr<c_void>,
}

// SAFETY: all of it is constant but the atomic.
unsafe impl Sync for Hook {}

/// All hooks, as whoever exports them knows them.
pub(super) trait Hooks {
    /// In the order of the list.
    fn all() -> &'static [Hook];
}

/// CUDA's numbering of `cuGetProcAddress` from which it takes a fifth argument.
const FIVE_ARGUMENTS: i32 = 12_000;
/// What a driver function of this version and newer takes is not known: it may have another form.
const UNKNOWN: i32 = 14_000;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// The hook before the driver's function of this name.
pub(super) fn find<H: Hooks>(name: &[u8]) -> Option<&'static Hook> {
    H::all().iter().find(|h| h.library == Library::Driver && h.name.as_bytes() == name)
}

/// The hook before what `cuGetProcAddress` gives out for a name: the newest form of it that the program's version has, and
/// that of threads with a default stream of their own where it wants those.
fn find_for<H: Hooks>(name: &[u8], version: i32, flags: u64) -> Option<&'static Hook> {
    if version >= UNKNOWN {
        return None;
    }
    match name {
        b"cuGetProcAddress" if version < FIVE_ARGUMENTS => return find::<H>(name),
        b"cuCtxCreate" if version >= 12_050 => return find::<H>(b"cuCtxCreate_v4"),
        b"cuCtxCreate" if version >= 11_040 => return None, // a form between the two
        _ => {}
    }
    let since = match name {
        b"cuCtxSynchronize" => 13_000, // takes a context
        b"cuCtxPushCurrent" | b"cuCtxPopCurrent" => 4_000,
        _ => 3_020,
    };
    let endings: [&[u8]; 6] = [b"_v2_ptsz", b"_ptsz", b"_v2_ptds", b"_ptds", b"_v2", b""];
    let skip = if flags & PER_THREAD != 0 && version >= 7_000 { 0 } else { 4 };
    let endings = endings.iter().skip(skip).filter(|e| version >= since || !e.starts_with(b"_v2"));
    endings.into_iter().find_map(|ending| {
        H::all().iter().filter(|h| h.library == Library::Driver).find(|h| {
            let rest = h.name.as_bytes().strip_prefix(name);
            rest == Some(ending)
        })
    })
}

impl Hook {
    /// The hook's own address, to be returned in place of `real`. It forwards to `real` from now on if it has no function yet, or one of a
    /// driver that was unloaded: a program may load the driver again at another address. (A driver has several addresses for one
    /// function; any of them serves.)
    #[cold]
    pub(super) fn replacement_for(&self, real: *mut c_void) -> *mut c_void {
        let before = self.real.load(Relaxed);
        if before.is_null() || before != real && library_of(before).is_none() {
            self.real.store(real, Relaxed);
        }
        self.hook.cast_mut()
    }
}

/// Whether the file name of the library that holds this address is one that `is` accepts.
pub(super) fn library_name_is(address: *const c_void, is: impl Fn(&[u8]) -> bool) -> bool {
    let Some(name) = library_of(address).map(|l| l.dli_fname).filter(|n| !n.is_null()) else { return false };
    // SAFETY: the loader's own string, of a library that is loaded while the program asks about it.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    is(path.rsplit(|&b| b == b'/').next().unwrap_or(path))
}

/// Whether this caller gets the real function, not our hook: it is this library, or a CUDA runtime whose callers are hooked themselves.
#[cold]
pub(super) fn gets_real_functions(caller: *const c_void) -> bool {
    let base = |address| library_of(address).map(|l| l.dli_fbase);
    base(caller).is_some_and(|b| base(gets_real_functions as *const c_void) == Some(b))
        || library_name_is(caller, |n| n.starts_with(b"libcudart") || n.starts_with(b"libstrandline"))
}

pub(super) unsafe fn get_proc_address<H: Hooks>(
    name: *const c_char,
    f: *mut P,
    version: i32,
    flags: u64,
) -> Status {
    let caller = tls::caller();
    let status = forward!(GET_PROC_ADDRESS(name, f, version, flags));
    // SAFETY: the call has returned.
    unsafe { handed_out::<H>(status, name, f, version, flags, caller) };
    status
}

pub(super) unsafe fn get_proc_address_v2<H: Hooks>(
    name: *const c_char,
    f: *mut P,
    version: i32,
    flags: u64,
    found: P,
) -> Status {
    let caller = tls::caller();
    let status = forward!(GET_PROC_ADDRESS_V2(name, f, version, flags, found));
    // SAFETY: the call has returned.
    unsafe { handed_out::<H>(status, name, f, version, flags, caller) };
    status
}

/// After the driver has handed out a function.
///
/// # Safety
/// The arguments must be those of the call that returned `status`.
unsafe fn handed_out<H: Hooks>(
    status: Status,
    name: *const c_char,
    f: *mut P,
    version: i32,
    flags: u64,
    caller: u64,
) {
    // SAFETY: the caller's promise.
    let Some(real) = unsafe { filled(status, f) }.filter(|real| !real.is_null() && !name.is_null()) else {
        return;
    };
    // SAFETY: not null, and the call that succeeded has read it.
    let name = unsafe { CStr::from_ptr(name).to_bytes() };
    if let Some(hook) = find_for::<H>(name, version, flags)
        // A driver in between may have found ours, by its name.
        && !core::ptr::eq(real, hook.hook)
        && !gets_real_functions(caller as *const c_void)
    {
        // SAFETY: as above.
        unsafe { *f = hook.replacement_for(real) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::exports::All;
    use super::*;

    #[test]
    fn a_name_is_given_the_form_that_its_asker_knows() {
        let name = |n: &str, version, flags| find_for::<All>(n.as_bytes(), version, flags).map(|h| h.name);
        assert_eq!(name("cuMemAlloc", 12_000, 0), Some("cuMemAlloc_v2"));
        assert_eq!(name("cuMemAlloc_v2", 12_000, 0), Some("cuMemAlloc_v2"));
        assert_eq!(name("cuMemAllocAsync", 11_030, 1), Some("cuMemAllocAsync"));
        assert_eq!(name("cuMemAllocAsync", 11_030, PER_THREAD), Some("cuMemAllocAsync_ptsz"));
        assert_eq!(name("cuMemAlloc", 13_000, PER_THREAD), Some("cuMemAlloc_v2"));
        assert_eq!(name("cuMemcpyDtoH", 3_020, 0), Some("cuMemcpyDtoH_v2"));
        assert_eq!(name("cuMemcpyDtoH", 7_000, PER_THREAD), Some("cuMemcpyDtoH_v2_ptds"));
        assert_eq!(name("cuMemcpyDtoHAsync", 7_000, PER_THREAD), Some("cuMemcpyDtoHAsync_v2_ptsz"));
        assert_eq!(name("cuGetProcAddress", 11_030, 0), Some("cuGetProcAddress"));
        assert_eq!(name("cuGetProcAddress", 12_000, 0), Some("cuGetProcAddress_v2"));
        assert_eq!(name("cuCtxCreate", 10_000, 0), Some("cuCtxCreate_v2"));
        assert_eq!(name("cuCtxCreate", 12_000, 0), None);
        assert_eq!(name("cuCtxSynchronize", 12_000, 0), Some("cuCtxSynchronize"));
        assert_eq!(name("cuCtxSynchronize", 13_000, 0), Some("cuCtxSynchronize_v2"));
        assert_eq!(name("cuMemAlloc", 2_000, 0), None, "sizes of 32 bits");
        assert_eq!(name("cuCtxPopCurrent", 3_020, 0), None);
        assert_eq!(name("cuCtxPopCurrent", 4_000, 0), Some("cuCtxPopCurrent_v2"));
        assert_eq!(name("cuMemcpyDtoH", 3_020, PER_THREAD), Some("cuMemcpyDtoH_v2"));
        assert_eq!(name("cuCtxCreate", 13_000, 0), Some("cuCtxCreate_v4"));
        for unknown in ["cuMemAl", "cuMemAllocAs", "cuLaunchKernel", "cudaMalloc", ""] {
            assert_eq!(name(unknown, 12_000, PER_THREAD), None, "{unknown}");
        }
        assert_eq!(name("cuMemAlloc", 14_000, 0), None, "what comes then may have another form");
    }

    #[test]
    fn whose_code_an_address_is_can_be_told() {
        let here = find::<All> as *const c_void;
        assert!(library_name_is(here, |n| !n.is_empty()));
        assert!(library_name_is(libc::malloc as *const c_void, |n| n.starts_with(b"lib")));
        assert!(!gets_real_functions(libc::malloc as *const c_void));
        assert!(!library_name_is(8 as *const c_void, |_| true));
    }
}
