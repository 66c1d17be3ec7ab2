//! A Python object as the C API passes it, and what is needed of that API.

use std::ffi::c_void;

/// A pointer to a Python object: looked into nowhere, handed to the C API only.
pub(crate) type Object = *mut c_void;

/// Declares what is needed of the C API, looked up by its names: all of it is there or none is used.
macro_rules! c_api {
    ($(#[$about:meta])* struct $api:ident { $($field:ident: $name:literal = $t:ty,)* }) => {
        $(#[$about])*
        pub(crate) struct $api { $(pub(crate) $field: $t,)* }
        impl $api {
            fn look_up() -> Option<$api> {
                // SAFETY: what has these names has had these types wherever it exists.
                unsafe { Some($api { $($field: $crate::platform::real::of_python::<$t>($name)?,)* }) }
            }
        }
    };
}
pub(crate) use c_api;
