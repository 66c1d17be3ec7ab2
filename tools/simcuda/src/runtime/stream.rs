//! Streams.

use crate::abi::Out;
use crate::call::runtime;
use crate::callback;
use crate::code::{Code, Outcome};
use crate::model::{Counter, is_done, lock, now, simulator, wait_until};
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
        if is_done(done) { Ok(()) } else { Err(Code::NOT_READY) }
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

/// Calls the program back, on a thread of the device's, once the stream's work is done; in a capture never.
fn call_back(stream: usize, call: impl FnOnce() + Send + 'static) -> Outcome {
    note!("stream {stream:#x}");
    let key = named(stream)?;
    let mut model = lock();
    model.work(key, None, now())?;
    let stream = model.streams.get(key)?;
    let (captured, done) = (stream.capture.is_some(), stream.busy_until);
    drop(model);
    if !captured {
        callback::call_at(&simulator().clock, done, Box::new(call));
    }
    Ok(())
}

/// What the program wants its function to be given. Nobody here looks at it.
struct Data(*mut c_void);
// SAFETY: the caller of the two functions below promises that its function may be called with it on any thread.
unsafe impl Send for Data {}

/// Calls the program back in the stream's order.
///
/// # Safety
/// * `callback` may be called once with `data`, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cudaStreamAddCallback(
    stream: usize,
    callback: Option<Callback>,
    data: *mut c_void,
    _flags: u32,
) -> Code {
    runtime("cudaStreamAddCallback", || {
        let (callback, data) = (callback.ok_or(Code::INVALID_VALUE)?, Data(data));
        call_back(stream, move || {
            let Data(data) = { data };
            // SAFETY: the caller's promise. No lock is held.
            unsafe { callback(stream, Code::SUCCESS, data) }
        })
    })
}

/// Calls the program back in the stream's order.
///
/// # Safety
/// * `function` may be called once with `data`, on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sim_cudaLaunchHostFunc(
    stream: usize,
    function: Option<HostFunction>,
    data: *mut c_void,
) -> Code {
    runtime("cudaLaunchHostFunc", || {
        let (function, data) = (function.ok_or(Code::INVALID_VALUE)?, Data(data));
        call_back(stream, move || {
            let Data(data) = { data };
            // SAFETY: the caller's promise. No lock is held.
            unsafe { function(data) }
        })
    })
}
