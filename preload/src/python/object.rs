//! A Python object as the C API passes it.

use std::ffi::c_void;

/// A pointer to a Python object: looked into nowhere, handed to the C API only.
pub(crate) type Object = *mut c_void;
