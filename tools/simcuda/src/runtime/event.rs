//! Events.

use super::stream::named;
use crate::abi::Out;
use crate::call::runtime;
use crate::code::{Code, Outcome};
use crate::model::{Counter, is_done, lock, now, wait_until};
use crate::note;

fn create(event: Out<usize>, flags: u32) -> Outcome {
    let mut model = lock();
    model.current()?;
    let handle = model.events.create(flags);
    note!("flags {flags} = {handle:#x}");
    event.set(handle)
}

/// Makes an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaEventCreateWithFlags(event: Out<usize>, flags: u32) -> Code {
    runtime("cudaEventCreateWithFlags", || create(event, flags))
}

/// Makes an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaEventCreate(event: Out<usize>) -> Code {
    runtime("cudaEventCreate", || create(event, 0))
}

/// Destroys an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaEventDestroy(event: usize) -> Code {
    runtime("cudaEventDestroy", || {
        note!("event {event:#x}");
        lock().events.destroy(event)
    })
}

fn record(event: usize, stream: usize, flags: u32) -> Outcome {
    note!("event {event:#x} stream {stream:#x}");
    let key = named(stream)?;
    lock().record(event, key, flags, now())
}

/// Records an event in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaEventRecord(event: usize, stream: usize) -> Code {
    runtime("cudaEventRecord", || record(event, stream, 0))
}

/// Records an event in a stream.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaEventRecordWithFlags(event: usize, stream: usize, flags: u32) -> Code {
    runtime("cudaEventRecordWithFlags", || record(event, stream, flags))
}

/// Whether what an event stands for is done.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaEventQuery(event: usize) -> Code {
    runtime("cudaEventQuery", || {
        note!("event {event:#x}");
        let mut model = lock();
        model.count(Counter::Query);
        let done = model.events.done(event)?;
        model.captures.potentially_unsafe()?;
        if is_done(done) { Ok(()) } else { Err(Code::NOT_READY) }
    })
}

/// Waits for an event.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaEventSynchronize(event: usize) -> Code {
    runtime("cudaEventSynchronize", || {
        note!("event {event:#x}");
        let done = lock().events.done(event)?;
        wait_until(done);
        Ok(())
    })
}

/// Milliseconds between two events.
#[unsafe(no_mangle)]
pub extern "C" fn sim_cudaEventElapsedTime(milliseconds: Out<f32>, from: usize, to: usize) -> Code {
    runtime("cudaEventElapsedTime", || milliseconds.set(lock().events.elapsed(from, to, now())?))
}
