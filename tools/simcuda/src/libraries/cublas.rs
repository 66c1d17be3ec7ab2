//! cuBLAS: handles remember their stream and modes; every operation occupies that stream and computes nothing.

use crate::abi::Out;
use crate::code::Code;
use crate::device;
use crate::handle::Handles;
use crate::model::{lock, now};
use crate::stream::Key;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// `cublasStatus_t`.
mod status {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const NOT_INITIALIZED: i32 = 1;
    pub(super) const INVALID_VALUE: i32 = 7;
    pub(super) const EXECUTION_FAILED: i32 = 13;
}

#[derive(Clone, Copy, Debug, Default)]
struct Context {
    stream: usize,
    math_mode: i32,
    pointer_mode: i32,
    atomics_mode: i32,
}

fn contexts() -> MutexGuard<'static, Handles<Context>> {
    static CONTEXTS: LazyLock<Mutex<Handles<Context>>> = LazyLock::new(|| Mutex::new(Handles::new(3)));
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn change(handle: usize, change: impl FnOnce(&mut Context)) -> i32 {
    match contexts().get_mut(handle) {
        Ok(context) => {
            change(context);
            status::SUCCESS
        }
        Err(_) => status::NOT_INITIALIZED,
    }
}

fn read<T: Copy>(handle: usize, value: Out<T>, read: impl FnOnce(&Context) -> T) -> i32 {
    match contexts().get(handle).map(read).map(|found| value.set(found)) {
        Ok(Ok(())) => status::SUCCESS,
        Ok(Err(_)) => status::INVALID_VALUE,
        Err(_) => status::NOT_INITIALIZED,
    }
}

/// Occupies a stream of the thread's device; returns a `cublasStatus_t`.
pub(super) fn occupy(stream: usize) -> i32 {
    match lock().work(Key::of(stream, device::current()), None, now()) {
        Ok(()) => status::SUCCESS,
        Err(Code(_)) => status::EXECUTION_FAILED,
    }
}

/// Makes a handle.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasCreate_v2(handle: Out<usize>) -> i32 {
    match handle.set(contexts().insert(Context::default())) {
        Ok(()) => status::SUCCESS,
        Err(_) => status::INVALID_VALUE,
    }
}

/// Destroys a handle.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasDestroy_v2(handle: usize) -> i32 {
    if contexts().remove(handle).is_ok() { status::SUCCESS } else { status::NOT_INITIALIZED }
}

/// Sets the stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasSetStream_v2(handle: usize, stream: usize) -> i32 {
    change(handle, |context| context.stream = stream)
}

/// The stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasGetStream_v2(handle: usize, stream: Out<usize>) -> i32 {
    read(handle, stream, |context| context.stream)
}

/// Sets the workspace, which nothing uses.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasSetWorkspace_v2(handle: usize, _address: usize, _size: usize) -> i32 {
    change(handle, |_| ())
}

/// Sets the math mode.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasSetMathMode(handle: usize, mode: i32) -> i32 {
    change(handle, |context| context.math_mode = mode)
}

/// The math mode.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasGetMathMode(handle: usize, mode: Out<i32>) -> i32 {
    read(handle, mode, |context| context.math_mode)
}

/// Sets where scalars lie.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasSetPointerMode_v2(handle: usize, mode: i32) -> i32 {
    change(handle, |context| context.pointer_mode = mode)
}

/// Where scalars lie.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasGetPointerMode_v2(handle: usize, mode: Out<i32>) -> i32 {
    read(handle, mode, |context| context.pointer_mode)
}

/// Sets whether atomics may be used.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasSetAtomicsMode(handle: usize, mode: i32) -> i32 {
    change(handle, |context| context.atomics_mode = mode)
}

/// Whether atomics may be used.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cublasGetAtomicsMode(handle: usize, mode: Out<i32>) -> i32 {
    read(handle, mode, |context| context.atomics_mode)
}

/// Every operation: generated libraries jump here for those that take a handle first. It computes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sim_operation_cublas(handle: usize) -> i32 {
    let stream = contexts().get(handle).map(|context| context.stream);
    stream.map_or(status::NOT_INITIALIZED, occupy)
}
