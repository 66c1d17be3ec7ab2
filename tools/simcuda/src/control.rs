//! What a test can call, for example through `ctypes.CDLL("libcuda.so.1")` once torch is imported.

use crate::device;
use crate::kernel;
use crate::model::{lock, now, simulator};
use crate::stream::Key;

/// Moves the manual clock forward by `nanoseconds`.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_advance(nanoseconds: u64) {
    simulator().clock.advance(nanoseconds);
}

/// The device's clock, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_now() -> u64 {
    now()
}

/// Occupies a stream of a device for `nanoseconds`. Returns 0, or the error's number.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_stream_busy(stream: usize, device: i32, nanoseconds: u64) -> i32 {
    let device = usize::try_from(device).unwrap_or_else(|_| device::current());
    let outcome = lock().work(Key::of(stream, device), Some(nanoseconds), now());
    crate::code::of(outcome).0
}

/// Sets how long one operation occupies its stream.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_set_op_ns(nanoseconds: u64) {
    lock().config.op_ns = nanoseconds;
}

/// Stops the clock (1) or lets it run (0).
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_set_clock_manual(manual: i32) {
    simulator().clock.set_manual(manual != 0);
}

/// Sets a device's capacity. Returns 0, or -1 if there is no such device.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_set_total(device: i32, bytes: u64) -> i32 {
    with_device(device, |device| device.total = bytes)
}

/// Sets how much of a device other processes hold. Returns 0, or -1 if there is no such device.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_set_other(device: i32, bytes: u64) -> i32 {
    with_device(device, |device| device.other = bytes)
}

/// Bytes of a device that this process holds.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_used(device: i32) -> u64 {
    let mut used = 0;
    with_device(device, |device| used = device.used);
    used
}

/// How often something happened, by the number of a [`crate::model::Counter`]: 0 device allocations, 1 device
/// frees, 2 operations, 3 physical allocations, 4 their releases, 5 events recorded, 6 events asked about, 7 waits.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_counter(number: i32) -> u64 {
    usize::try_from(number).ok().and_then(|number| lock().counters.get(number).copied()).unwrap_or(0)
}

/// A kernel goes wrong on the device: what has to do with its work returns this error from now on, as a broken context does.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_break(code: i32) {
    crate::call::break_context(code);
}

/// How long `torch.cuda._sleep(cycles)` occupies its stream, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_sim_cycles_ns(cycles: i64) -> u64 {
    kernel::nanoseconds(cycles)
}

fn with_device(device: i32, change: impl FnOnce(&mut device::Device)) -> i32 {
    let mut model = lock();
    match usize::try_from(device).ok().and_then(|device| model.devices.get_mut(device)) {
        Some(device) => {
            change(device);
            0
        }
        None => -1,
    }
}
