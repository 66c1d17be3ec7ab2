//! Which Python is in this process.

use crate::platform::real;
use std::ffi::{CStr, c_char, c_int};

/// The function that tells whether the interpreter is going away, by either of its names.
#[cold]
pub(crate) fn is_finalizing() -> Option<extern "C" fn() -> c_int> {
    // SAFETY: both of its names have this type, and need no GIL.
    [c"Py_IsFinalizing", c"_Py_IsFinalizing"].into_iter().find_map(|name| unsafe { real::of_python(name) })
}

/// What `sys.version` says, without the GIL.
#[cold]
pub(crate) fn python_version() -> Option<String> {
    // SAFETY: the function's type is part of the stable C API; it needs no GIL and returns a static string.
    let text = unsafe {
        let version = real::of_python::<extern "C" fn() -> *const c_char>(c"Py_GetVersion")?;
        CStr::from_ptr(version())
    };
    Some(text.to_string_lossy().into_owned())
}

/// The minor version of the Python 3 in this process, if there is one.
#[cold]
pub(crate) fn python_minor() -> Option<u32> {
    minor_of(&python_version()?)
}

/// Whether it is one without a global lock.
#[cold]
pub(crate) fn is_free_threaded() -> bool {
    python_version().is_some_and(|v| v.contains("free-threading"))
}

/// The minor version of a Python 3, from what `sys.version` says.
pub(crate) fn minor_of(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("3.")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minor_version_is_read_from_what_python_says() {
        assert_eq!(minor_of("3.11.7 (main, May 1 2026) [GCC 12]"), Some(11));
        assert_eq!(minor_of("3.14.0rc1 free-threading build"), Some(14));
        assert_eq!(minor_of("2.7.18"), None);
    }
}
