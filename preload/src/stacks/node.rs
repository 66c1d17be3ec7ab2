//! What an autograd node is called: the name in its type's own description. Cold.

use std::ffi::{CStr, c_char};

/// The mangled name of the C++ type whose vtable this is; empty where the type has no description.
#[cold]
pub(super) fn type_name(vtable: u64) -> String {
    // SAFETY: the vtable was read from a live node of the calling thread, so its library is loaded. The word before a
    // vtable's first entry points to the type_info, or is 0 without RTTI; the type_info's second word is the name, a static
    // C string (Itanium C++ ABI).
    unsafe {
        let info = *((vtable as usize - 8) as *const usize);
        if info == 0 {
            return String::new();
        }
        let name = *((info + 8) as *const *const c_char);
        if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
    }
}
