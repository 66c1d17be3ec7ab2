//! A failed allocation becomes the exception that PyTorch's own allocator throws.
//!
//! PyTorch hands on whatever a pluggable allocator returns, a null pointer too, and the job dies of it much later. So the
//! exception is made here: `c10::OutOfMemoryError` where the libraries have what it takes (2.7 and newer), which Python
//! knows as `torch.OutOfMemoryError`; else `c10::Error`.

use crate::platform::real::{Library, look_up};
use core::ffi::{CStr, c_char, c_void};

/// `c10::SourceLocation`.
#[repr(C)]
struct Source {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// `std::string` of libstdc++'s present ABI.
#[repr(C)]
struct Text {
    data: *mut u8,
    length: usize,
    short: [u8; 16],
}

type Construct = unsafe extern "C-unwind" fn(*mut c_void, Source, *mut Text);
type Append = unsafe extern "C" fn(*mut Text, *const u8, usize) -> *mut Text;
type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void);
type Check = unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char);

/// More than a `c10::Error` takes in any version (about 200 bytes).
const ROOM: usize = 1024;
const FUNCTION: &CStr = c"strandline_malloc";

fn symbol(name: &CStr, library: Library) -> Option<*mut c_void> {
    Some(look_up(name, library)).filter(|p| !p.is_null())
}

/// Throws, where there is something that can be thrown; else returns, and the caller hands out null.
///
/// # Safety
/// Called from a frame that C++ exceptions may leave, with nothing locked.
#[cold]
#[inline(never)]
pub(super) unsafe fn throw(message: &str, out_of_memory: bool) {
    if out_of_memory {
        // SAFETY: the caller's promise.
        unsafe { throw_out_of_memory(message) };
    }
    let check = symbol(c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_", Library::C10);
    let Some(check) = check else { return };
    let text: Vec<u8> = message.bytes().filter(|b| *b != 0).chain([0]).collect();
    // SAFETY: the symbol is `void torchCheckFail(const char*, const char*, uint32_t, const char*)`, which copies its texts and
    // throws. The vector is leaked by that, once per failure: destructors of ours run, since the frame unwinds.
    unsafe {
        let check: Check = core::mem::transmute(check);
        check(FUNCTION.as_ptr(), c"strandline".as_ptr(), 0, text.as_ptr().cast());
    }
}

unsafe fn throw_out_of_memory(message: &str) {
    let found = (
        symbol(
            c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            Library::C10,
        ),
        symbol(c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_appendEPKcm", Library::C10),
        symbol(c"__cxa_allocate_exception", Library::C10),
        symbol(c"__cxa_throw", Library::C10),
        symbol(c"_ZTIN3c1016OutOfMemoryErrorE", Library::C10Cuda),
        symbol(c"_ZTVN3c1016OutOfMemoryErrorE", Library::C10Cuda),
    );
    let (Some(construct), Some(append), Some(allocate), Some(throw), Some(info), Some(vtable)) = found else {
        return;
    };
    // SAFETY: the symbols are what their mangled names say. `OutOfMemoryError` adds nothing to `Error` but its own vtable,
    // whose first entry is the complete destructor (Itanium C++ ABI); the exception's memory is more than it takes, and is
    // handed over to the C++ runtime, which destroys and frees it. The string begins empty in its own short buffer, as
    // libstdc++ has it, and is moved out of by the constructor.
    unsafe {
        let construct: Construct = core::mem::transmute(construct);
        let append: Append = core::mem::transmute(append);
        let allocate: Allocate = core::mem::transmute(allocate);
        let throw: Throw = core::mem::transmute(throw);
        let mut text = Text { data: core::ptr::null_mut(), length: 0, short: [0; 16] };
        text.data = (&raw mut text.short).cast();
        append(&mut text, message.as_ptr(), message.len());
        let exception = allocate(ROOM);
        let source = Source { function: FUNCTION.as_ptr(), file: c"strandline".as_ptr(), line: 0 };
        construct(exception, source, &mut text);
        let entries = vtable.cast::<*const c_void>().add(2);
        *exception.cast::<*const c_void>() = entries.cast();
        throw(exception, info, *entries);
    }
}
