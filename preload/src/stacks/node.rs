//! What the class of a C++ object is called: the name in its type's own description.

use std::ffi::{CStr, c_char};

/// The mangled name of the C++ type whose vtable this is; empty where the type has no description (`-fno-rtti`).
#[cold]
pub(crate) fn type_name(vtable: u64) -> &'static str {
    // SAFETY: the vtable was read from a live object (a node of the calling thread, PyTorch's allocator), so its library is loaded, and stays so. The word before a
    // vtable's first entry points to the type_info, or is 0 without RTTI; the type_info's second word is the name, a static
    // C string (Itanium C++ ABI).
    unsafe {
        let info = *((vtable as usize - 8) as *const usize);
        if info == 0 {
            return "";
        }
        let name = *((info + 8) as *const *const c_char);
        if name.is_null() { "" } else { CStr::from_ptr(name).to_str().unwrap_or_default() }
    }
}
