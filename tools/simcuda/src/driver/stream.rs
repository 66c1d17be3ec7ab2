//! Streams and events through the driver, which share their handles with the runtime's.

use crate::abi::Out;
use crate::call::{alike, driver, known_as};
use crate::code::{Code, Outcome};
use crate::memory::Memory;
use crate::model::{lock, now};
use crate::runtime::event as events;
use crate::runtime::graph as graphs;
use crate::runtime::stream::{self as streams, Callback, HostFunction, named};
use std::ffi::c_void;

alike! {
    /// Makes a stream.
    cuStreamCreate(stream: Out<usize>, flags: u32) = streams::sim_cudaStreamCreateWithFlags;
    /// Makes a stream.
    cuStreamCreateWithPriority(stream: Out<usize>, flags: u32, priority: i32)
        = streams::sim_cudaStreamCreateWithPriority;
    /// Destroys a stream.
    cuStreamDestroy_v2(stream: usize) = streams::sim_cudaStreamDestroy;
    /// Whether a stream is idle.
    cuStreamQuery(stream: usize) = streams::sim_cudaStreamQuery;
    /// Waits for a stream.
    cuStreamSynchronize(stream: usize) = streams::sim_cudaStreamSynchronize;
    /// Makes a stream wait for an event.
    cuStreamWaitEvent(stream: usize, event: usize, flags: u32) = streams::sim_cudaStreamWaitEvent;
    /// Whether a stream is being captured.
    cuStreamIsCapturing(stream: usize, state: Out<i32>) = graphs::sim_cudaStreamIsCapturing;
    /// Exchanges the thread's capture mode.
    cuThreadExchangeStreamCaptureMode(mode: Out<i32>)
        = graphs::sim_cudaThreadExchangeStreamCaptureMode;
    /// Makes an event.
    cuEventCreate(event: Out<usize>, flags: u32) = events::sim_cudaEventCreateWithFlags;
    /// Destroys an event.
    cuEventDestroy_v2(event: usize) = events::sim_cudaEventDestroy;
    /// Records an event.
    cuEventRecord(event: usize, stream: usize) = events::sim_cudaEventRecord;
    /// Whether what an event stands for is done.
    cuEventQuery(event: usize) = events::sim_cudaEventQuery;
    /// Waits for an event.
    cuEventSynchronize(event: usize) = events::sim_cudaEventSynchronize;
}

/// Calls the program back in the stream's order.
///
/// # Safety
/// * As for [`streams::sim_cudaLaunchHostFunc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cuLaunchHostFunc(
    stream: usize,
    function: Option<HostFunction>,
    data: *mut c_void,
) -> Code {
    // SAFETY: the caller's promise.
    known_as("cuLaunchHostFunc", || unsafe { streams::sim_cudaLaunchHostFunc(stream, function, data) })
}

/// Calls the program back in the stream's order.
///
/// # Safety
/// * As for [`streams::sim_cudaStreamAddCallback`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cuStreamAddCallback(
    stream: usize,
    callback: Option<Callback>,
    data: *mut c_void,
    flags: u32,
) -> Code {
    // SAFETY: the caller's promise.
    known_as("cuStreamAddCallback", || unsafe {
        streams::sim_cudaStreamAddCallback(stream, callback, data, flags)
    })
}

fn words(memory: &Memory, address: usize, count: usize) -> Outcome {
    let bytes = count.checked_mul(4).ok_or(Code::INVALID_VALUE)?;
    if !address.is_multiple_of(4) {
        return Err(Code::INVALID_VALUE);
    }
    memory.reachable(address, bytes, true)
}

fn write_words(address: usize, value: u32, count: usize, stream: usize) -> Outcome {
    let key = named(stream)?;
    let mut model = lock();
    words(&model.memory, address, count)?;
    model.work(key, None, now())?;
    for index in 0..count {
        // SAFETY: the words were found live, writable and aligned above, and the lock that guards the table of
        // what is live is held.
        unsafe { ((address + index * 4) as *mut u32).write(value) }
    }
    Ok(())
}

/// Fills words in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuMemsetD32Async(address: usize, value: u32, count: usize, stream: usize) -> Code {
    driver("cuMemsetD32Async", || write_words(address, value, count, stream))
}

/// Writes a word in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamWriteValue32_v2(
    stream: usize,
    address: usize,
    value: u32,
    _flags: u32,
) -> Code {
    driver("cuStreamWriteValue32_v2", || write_words(address, value, 1, stream))
}

/// The first form, which other flags set apart.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamWriteValue32(stream: usize, address: usize, value: u32, flags: u32) -> Code {
    sim_cuStreamWriteValue32_v2(stream, address, value, flags)
}

/// The first form.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamDestroy(stream: usize) -> Code {
    cuStreamDestroy_v2(stream)
}

/// The first form.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuEventDestroy(event: usize) -> Code {
    cuEventDestroy_v2(event)
}
