//! Errors and versions.

use super::VERSION;
use crate::abi::Out;
use crate::call::{self, runtime};
use crate::code::Code;
use std::ffi::c_char;

/// The thread's last error, which it then forgets.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetLastError() -> Code {
    call::take_last()
}

/// The thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaPeekAtLastError() -> Code {
    call::peek_last()
}

/// What an error means.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetErrorString(code: Code) -> *const c_char {
    code.text().as_ptr()
}

/// An error's name.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaGetErrorName(code: Code) -> *const c_char {
    code.runtime_name().as_ptr()
}

/// The driver's version.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaDriverGetVersion(version: Out<i32>) -> Code {
    runtime("cudaDriverGetVersion", || version.set(VERSION))
}

/// The runtime's version.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaRuntimeGetVersion(version: Out<i32>) -> Code {
    runtime("cudaRuntimeGetVersion", || version.set(VERSION))
}

/// Nothing records profiles here.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaProfilerStart() -> Code {
    runtime("cudaProfilerStart", || Ok(()))
}

/// Nothing records profiles here.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaProfilerStop() -> Code {
    runtime("cudaProfilerStop", || Ok(()))
}
