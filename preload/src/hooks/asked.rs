//! Programs that ask for CUDA's driver by name: `dlsym`, and the driver's own `cuGetProcAddress`. A runtime that is linked
//! into a program or library (CuPy, JAX, NCCL, what nvcc makes) reaches the driver in this way and in no other.
//!
//! Whoever asks for a driver function of our list gets the hook, and the hook gets what would have been handed out. A dynamic
//! `libcudart` is the exception: its callers come to us already, one level higher, and would be counted twice.
//!
//! `dlsym` stands in every process of the job, so it decides by three letters of the name, and everything else is one jump to
//! the real one with the caller's own return address: that is what `RTLD_NEXT` goes by. A look-up without a library
//! (`RTLD_DEFAULT`, `RTLD_NEXT`) is not touched either: the loader's answer to it is right, since the hooks are exported.

use super::{P, SUCCESS, Status, TABLE, forward};
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

/// CUDA's numbering of `cuGetProcAddress` from which it takes a fifth argument.
const FIVE_ARGUMENTS: i32 = 12_000;
/// What a driver function of this version and newer takes is not known: it may have another form.
const UNKNOWN: i32 = 14_000;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// The hook before the driver's function of this name.
fn find(name: &[u8]) -> Option<&'static Hook> {
    TABLE.iter().find(|h| h.library == Library::Driver && h.name.as_bytes() == name)
}

/// The hook before what `cuGetProcAddress` gives out for a name: the newest form of it that the program's version has, and
/// that of threads with a default stream of their own where it wants those.
fn find_for(name: &[u8], version: i32, flags: u64) -> Option<&'static Hook> {
    if version >= UNKNOWN {
        return None;
    }
    match name {
        b"cuGetProcAddress" if version < FIVE_ARGUMENTS => return find(name),
        b"cuCtxCreate" if version >= 12_050 => return find(b"cuCtxCreate_v4"),
        b"cuCtxCreate" if version >= 11_040 => return None, // a form between the two
        _ => {}
    }
    let endings: [&[u8]; 4] = [b"_v2_ptsz", b"_ptsz", b"_v2", b""];
    let skip = if flags & PER_THREAD != 0 { 0 } else { 2 };
    endings.iter().skip(skip).find_map(|ending| {
        TABLE.iter().filter(|h| h.library == Library::Driver).find(|h| {
            let rest = h.name.as_bytes().strip_prefix(name);
            rest == Some(ending)
        })
    })
}

impl Hook {
    /// Stands before `real` from now on, if it stands before nothing yet, or before a driver that the program has let go: it may load
    /// that again elsewhere. (A driver gives out more than one address for a function: those are one as good as another.)
    #[cold]
    fn instead_of(&self, real: *mut c_void) -> *mut c_void {
        let before = self.real.load(Relaxed);
        if before.is_null() || before != real && library_of(before).is_none() {
            self.real.store(real, Relaxed);
        }
        self.hook.cast_mut()
    }
}

/// The loaded library that an address lies in.
fn library_of(address: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: all fields may be zero; the structure is ours, and the address is only looked up.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        (libc::dladdr(address, &mut info) != 0).then_some(info)
    }
}

/// The file name of that library, handed to `is`.
fn lies_in(address: *const c_void, is: impl Fn(&[u8]) -> bool) -> bool {
    let Some(name) = library_of(address).map(|l| l.dli_fname).filter(|n| !n.is_null()) else { return false };
    // SAFETY: the loader's own string, of a library that is loaded while the program asks about it.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    is(path.rsplit(|&b| b == b'/').next().unwrap_or(path))
}

/// Whether the program is to keep what it would have had without us: it is this library, or a runtime whose callers we see.
#[cold]
fn keeps_its_own(caller: *const c_void) -> bool {
    lies_in(caller, |n| n.starts_with(b"libcudart") || n.starts_with(b"libstrandline"))
}

pub(super) unsafe fn get_proc_address(name: *const c_char, f: *mut P, version: i32, flags: u64) -> Status {
    let caller = tls::caller();
    let status = forward!(GET_PROC_ADDRESS(name, f, version, flags));
    // SAFETY: the call has returned.
    unsafe { handed_out(status, name, f, version, flags, caller) };
    status
}

pub(super) unsafe fn get_proc_address_v2(
    name: *const c_char,
    f: *mut P,
    version: i32,
    flags: u64,
    found: P,
) -> Status {
    let caller = tls::caller();
    let status = forward!(GET_PROC_ADDRESS_V2(name, f, version, flags, found));
    // SAFETY: the call has returned.
    unsafe { handed_out(status, name, f, version, flags, caller) };
    status
}

/// After the driver has handed out a function.
///
/// # Safety
/// The arguments must be those of the call that returned `status`.
unsafe fn handed_out(status: Status, name: *const c_char, f: *mut P, version: i32, flags: u64, caller: u64) {
    if status != SUCCESS || name.is_null() || f.is_null() {
        return;
    }
    // SAFETY: not null, and the call that succeeded has read the one and filled the other.
    let (name, real) = unsafe { (CStr::from_ptr(name).to_bytes(), *f) };
    if real.is_null() {
        return;
    }
    if let Some(hook) = find_for(name, version, flags)
        && !keeps_its_own(caller as *const c_void)
    {
        // SAFETY: as above.
        unsafe { *f = hook.instead_of(real) };
    }
}

/// The real `dlsym`.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// Looks the real one up: the next library's behind this one. It has had two versions; the older is on every system.
#[cfg_attr(test, allow(dead_code, reason = "tests do not stand before the loader"))]
extern "C" fn find_dlsym() -> *mut c_void {
    // SAFETY: both are C strings, and the call comes from this library, behind which the search begins.
    let p = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.2.5".as_ptr()) };
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
    match find(name) {
        Some(hook)
            if !real.is_null()
                && !core::ptr::eq(real, hook.hook)
                && lies_in(real, |n| n.starts_with(b"libcuda.so"))
                && !keeps_its_own(caller) =>
        {
            hook.instead_of(real)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_the_form_that_its_asker_knows() {
        let name = |n: &str, version, flags| find_for(n.as_bytes(), version, flags).map(|h| h.name);
        assert_eq!(name("cuMemAlloc", 12_000, 0), Some("cuMemAlloc_v2"));
        assert_eq!(name("cuMemAlloc_v2", 12_000, 0), Some("cuMemAlloc_v2"));
        assert_eq!(name("cuMemAllocAsync", 11_030, 1), Some("cuMemAllocAsync"));
        assert_eq!(name("cuMemAllocAsync", 11_030, PER_THREAD), Some("cuMemAllocAsync_ptsz"));
        assert_eq!(name("cuMemAlloc", 13_000, PER_THREAD), Some("cuMemAlloc_v2"));
        assert_eq!(name("cuGetProcAddress", 11_030, 0), Some("cuGetProcAddress"));
        assert_eq!(name("cuGetProcAddress", 12_000, 0), Some("cuGetProcAddress_v2"));
        assert_eq!(name("cuCtxCreate", 10_000, 0), Some("cuCtxCreate_v2"));
        assert_eq!(name("cuCtxCreate", 12_000, 0), None);
        assert_eq!(name("cuCtxCreate", 13_000, 0), Some("cuCtxCreate_v4"));
        for unknown in ["cuMemAl", "cuMemAllocAs", "cuLaunchKernel", "cudaMalloc", ""] {
            assert_eq!(name(unknown, 12_000, PER_THREAD), None, "{unknown}");
        }
        assert_eq!(name("cuMemAlloc", 14_000, 0), None, "what comes then may have another form");
    }

    #[test]
    fn whose_code_an_address_is_can_be_told() {
        let here = find as *const c_void;
        assert!(lies_in(here, |n| !n.is_empty()));
        assert!(lies_in(libc::malloc as *const c_void, |n| n.starts_with(b"lib")));
        assert!(!keeps_its_own(libc::malloc as *const c_void));
        assert!(!lies_in(8 as *const c_void, |_| true));
    }
}
