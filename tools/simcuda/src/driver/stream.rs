//! Streams and events through the driver, which share their handles with the runtime's.

use crate::abi::Out;
use crate::call::{driver, known_as};
use crate::code::{Code, Outcome};
use crate::memory::Memory;
use crate::model::{lock, now};
use crate::runtime::event as events;
use crate::runtime::stream::{self as streams, Callback, HostFunction, named};
use std::ffi::c_void;

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamCreate(stream: Out<usize>, flags: u32) -> Code {
    known_as("cuStreamCreate", || streams::sim_cudaStreamCreateWithFlags(stream, flags))
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamCreateWithPriority(stream: Out<usize>, flags: u32, priority: i32) -> Code {
    known_as("cuStreamCreateWithPriority", || {
        streams::sim_cudaStreamCreateWithPriority(stream, flags, priority)
    })
}

/// Destroys a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamDestroy_v2(stream: usize) -> Code {
    known_as("cuStreamDestroy_v2", || streams::sim_cudaStreamDestroy(stream))
}

/// Whether a stream is idle.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamQuery(stream: usize) -> Code {
    known_as("cuStreamQuery", || streams::sim_cudaStreamQuery(stream))
}

/// Waits for a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamSynchronize(stream: usize) -> Code {
    known_as("cuStreamSynchronize", || streams::sim_cudaStreamSynchronize(stream))
}

/// Makes a stream wait for an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> Code {
    known_as("cuStreamWaitEvent", || streams::sim_cudaStreamWaitEvent(stream, event, flags))
}

/// Whether a stream is being captured.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuStreamIsCapturing(stream: usize, state: Out<i32>) -> Code {
    known_as("cuStreamIsCapturing", || crate::runtime::graph::sim_cudaStreamIsCapturing(stream, state))
}

/// Exchanges the thread's capture mode.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuThreadExchangeStreamCaptureMode(mode: Out<i32>) -> Code {
    known_as("cuThreadExchangeStreamCaptureMode", || {
        crate::runtime::graph::sim_cudaThreadExchangeStreamCaptureMode(mode)
    })
}

/// Makes an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuEventCreate(event: Out<usize>, flags: u32) -> Code {
    known_as("cuEventCreate", || events::sim_cudaEventCreateWithFlags(event, flags))
}

/// Destroys an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuEventDestroy_v2(event: usize) -> Code {
    known_as("cuEventDestroy_v2", || events::sim_cudaEventDestroy(event))
}

/// Records an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuEventRecord(event: usize, stream: usize) -> Code {
    known_as("cuEventRecord", || events::sim_cudaEventRecord(event, stream))
}

/// Whether what an event stands for is done.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuEventQuery(event: usize) -> Code {
    known_as("cuEventQuery", || events::sim_cudaEventQuery(event))
}

/// Waits for an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuEventSynchronize(event: usize) -> Code {
    known_as("cuEventSynchronize", || events::sim_cudaEventSynchronize(event))
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
    sim_cuStreamDestroy_v2(stream)
}

/// The first form.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cuEventDestroy(event: usize) -> Code {
    sim_cuEventDestroy_v2(event)
}
