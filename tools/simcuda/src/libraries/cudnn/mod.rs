//! cuDNN: what it asks of PyTorch's allocator, by rules measured on an H200; nothing is computed.
//!
//! `graph` has the descriptions that PyTorch makes of a convolution, `workspace` what a convolution takes, `norm` batch norms, `others` the rest, and this file
//! handles. Functions that are not here say so and fail (`crate::stub`).

pub mod graph;
pub mod norm;
pub mod others;
mod workspace;

use crate::abi::Out;
use crate::device;
use crate::handle::Handles;
use crate::model::{lock, now};
use crate::stream::Key;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// `cudnnStatus_t`.
mod status {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const BAD_PARAM: i32 = 2000;
    pub(super) const EXECUTION_FAILED: i32 = 5000;
}

/// The streams of cuDNN's handles.
fn streams() -> MutexGuard<'static, Handles<usize>> {
    static STREAMS: LazyLock<Mutex<Handles<usize>>> = LazyLock::new(|| Mutex::new(Handles::new(5)));
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `SUCCESS` if what was asked for was there.
fn status<T, E>(outcome: Result<T, E>) -> i32 {
    if outcome.is_ok() { status::SUCCESS } else { status::BAD_PARAM }
}

/// Occupies the handle's stream, for as many nanoseconds as an operation takes or as are said.
fn run(handle: usize, nanoseconds: Option<u64>) -> i32 {
    let Ok(stream) = streams().get(handle).copied() else { return status::BAD_PARAM };
    let worked = lock().work(Key::of(stream, device::current()), nanoseconds, now());
    if worked.is_ok() { status::SUCCESS } else { status::EXECUTION_FAILED }
}

/// Makes a handle.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnCreate(handle: Out<usize>) -> i32 {
    status(handle.set(streams().insert(0)))
}

/// Destroys a handle.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnDestroy(handle: usize) -> i32 {
    status(streams().remove(handle))
}

/// What follows goes to this stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnSetStream(handle: usize, stream: usize) -> i32 {
    status(streams().get_mut(handle).map(|kept| *kept = stream))
}

/// Where it goes.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudnnGetStream(handle: usize, stream: Out<usize>) -> i32 {
    status(streams().get(handle).and_then(|kept| stream.set(*kept)))
}
