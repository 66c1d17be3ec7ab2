//! Streams.

use crate::abi::Out;
use crate::call::runtime;
use crate::code::{Code, Outcome};
use crate::model::{Counter, lock, now, wait_until};
use crate::note;
use crate::stream::Key;
use std::ffi::c_void;

/// The stream that a handle names on the calling thread.
pub fn named(handle: usize) -> Outcome<Key> {
    Ok(Key::of(handle, lock().current()?))
}

/// Waits for a stream.
pub fn synchronize(key: Key) -> Outcome {
    let done = lock().stream_done(key)?;
    wait_until(done);
    Ok(())
}

fn create(stream: Out<usize>, flags: u32, priority: i32) -> Outcome {
    let mut model = lock();
    let device = model.current()?;
    let handle = model.streams.create(device, flags, priority);
    note!("device {device} flags {flags} priority {priority} = {handle:#x}");
    stream.set(handle)
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamCreateWithPriority(stream: Out<usize>, flags: u32, priority: i32) -> Code {
    runtime("cudaStreamCreateWithPriority", || create(stream, flags, priority))
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamCreateWithFlags(stream: Out<usize>, flags: u32) -> Code {
    runtime("cudaStreamCreateWithFlags", || create(stream, flags, 0))
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamCreate(stream: Out<usize>) -> Code {
    runtime("cudaStreamCreate", || create(stream, 0, 0))
}

/// Destroys a stream; the work given to it still ends when it would have.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamDestroy(stream: usize) -> Code {
    runtime("cudaStreamDestroy", || {
        note!("stream {stream:#x}");
        let key = named(stream)?;
        lock().destroy_stream(key)
    })
}

/// Whether a stream is idle.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamQuery(stream: usize) -> Code {
    runtime("cudaStreamQuery", || {
        note!("stream {stream:#x}");
        let key = named(stream)?;
        let mut model = lock();
        model.count(Counter::Query);
        let done = model.stream_done(key)?;
        model.captures.potentially_unsafe()?;
        if now() >= done { Ok(()) } else { Err(Code::NOT_READY) }
    })
}

/// Waits for a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamSynchronize(stream: usize) -> Code {
    runtime("cudaStreamSynchronize", || {
        note!("stream {stream:#x}");
        synchronize(named(stream)?)
    })
}

/// The priority a stream was made with.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamGetPriority(stream: usize, priority: Out<i32>) -> Code {
    runtime("cudaStreamGetPriority", || {
        let key = named(stream)?;
        priority.set(lock().streams.get(key)?.priority)
    })
}

/// The flags a stream was made with.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamGetFlags(stream: usize, flags: Out<u32>) -> Code {
    runtime("cudaStreamGetFlags", || {
        let key = named(stream)?;
        flags.set(lock().streams.get(key)?.flags)
    })
}

/// The device a stream lives on.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamGetDevice(stream: usize, device: Out<i32>) -> Code {
    runtime("cudaStreamGetDevice", || {
        let key = named(stream)?;
        device.set(lock().streams.get(key)?.device as i32)
    })
}

/// Makes a stream wait for an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaStreamWaitEvent(stream: usize, event: usize, flags: u32) -> Code {
    runtime("cudaStreamWaitEvent", || {
        note!("stream {stream:#x} event {event:#x}");
        let key = named(stream)?;
        lock().wait_event(key, event, flags, now())
    })
}

/// `cudaStreamCallback_t`.
pub type Callback = unsafe extern "C" fn(usize, Code, *mut c_void);
/// `cudaHostFn_t`.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// Calls the program back once the stream's work is done. Here that is at once, on the calling thread.
///
/// # Safety
/// * `callback` may be called once with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cudaStreamAddCallback(
    stream: usize,
    callback: Option<Callback>,
    data: *mut c_void,
    _flags: u32,
) -> Code {
    let code = runtime("cudaStreamAddCallback", || {
        let key = named(stream)?;
        callback.map(drop).ok_or(Code::INVALID_VALUE)?;
        lock().work(key, None, now())
    });
    if let (Code::SUCCESS, Some(callback)) = (code, callback) {
        // SAFETY: the caller's promise. No lock is held.
        unsafe { callback(stream, Code::SUCCESS, data) }
    }
    code
}

/// Calls the program back in the stream's order. Here that is at once, on the calling thread; in a capture never.
///
/// # Safety
/// * `function` may be called once with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cudaLaunchHostFunc(
    stream: usize,
    function: Option<HostFunction>,
    data: *mut c_void,
) -> Code {
    let mut captured = false;
    let code = runtime("cudaLaunchHostFunc", || {
        note!("stream {stream:#x}");
        let key = named(stream)?;
        function.map(drop).ok_or(Code::INVALID_VALUE)?;
        let mut model = lock();
        captured = model.streams.get(key)?.capture.is_some();
        model.work(key, None, now())
    });
    if let (Code::SUCCESS, false, Some(function)) = (code, captured, function) {
        // SAFETY: the caller's promise. No lock is held.
        unsafe { function(data) }
    }
    code
}
