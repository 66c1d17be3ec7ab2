//! The pluggable door: an allocator for PyTorch's `CUDAPluggableAllocator`, on the driver's stream-ordered pools, that
//! records what it hands out.
//!
//! ```text
//! torch ─▶ strandline_malloc ─▶ driver::allocate ─▶ the device's lock: count, sequence number, record
//!                            └▶ graphs (a stream that is captured)
//! torch ─▶ strandline_free ───▶ the device's lock: count, number, record ─▶ driver::free, behind all users
//! ```
//!
//! It is an allocator, so unlike the rest of this crate it calls the driver, takes a lock of its own (one per device, as
//! PyTorch's allocator has one) and fails loudly: see `fail`. Memory goes out after the driver gave it and is written off
//! before the driver gets it back, so that the order of records is the order in which an address had its owners.
//!
//! What it records depends on who asks: see [`Mode`].

mod count;
mod device;
mod driver;
mod fail;
mod graphs;
mod record;
mod types;

use crate::platform::loader::is_global;
use crate::recorder::guard::enter;
use crate::recorder::{self, before};
use crate::torch::attach;
use count::Reset;
use cudarc::driver::sys::CUstream;
use once_cell::sync::OnceCell;
use serde_json::json;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use strandline_core::format::raw::Kind;
use types::{DOOR, Failure, Mode};

static MODE: OnceCell<Mode> = OnceCell::new();

/// Whether this `CUDAPluggableAllocator` is the door: it begins with its vtable and the `std::function` that allocates,
/// which holds our address.
///
/// # Safety
/// `object` must be such an object.
pub(crate) unsafe fn is_our_object(object: usize) -> bool {
    const FUNCTION_AT: usize = 1;
    // SAFETY: the object holds about ten functions of 32 bytes each, so its first five words are there.
    let words = unsafe { core::slice::from_raw_parts(object as *const usize, FUNCTION_AT + 4) };
    words.contains(&(strandline_malloc as *const () as usize))
}

/// Whether blocks come through the door.
pub(crate) fn is_open() -> bool {
    MODE.get() == Some(&Mode::Whole)
}

/// Facts about what is seen, once it is settled that all memory comes through the door.
pub(crate) fn facts() -> serde_json::Value {
    const ALONE: &str = "when streams are entered and left, when backward ends, and what other libraries allocate, because the job uses strandline's pluggable allocator without LD_PRELOAD";
    // Whether our hooks stand in front of the libraries: the program was started with this library, and did not open it later.
    let is_preloaded = || is_global(c"strandline_version", crate::control::strandline_version as *const ());
    let reason = before::missed().or_else(|| (!is_preloaded()).then_some(ALONE));
    json!({ "allocator": "pluggable", "coverage": { "level": "blocks", "reason": reason } })
}

fn mode() -> Mode {
    let mode = *MODE.get_or_init(settle);
    if mode == Mode::Whole && !attach::is_settled() {
        attach::attempt();
    }
    mode
}

#[cold]
fn settle() -> Mode {
    recorder::arm();
    match attach::allocator() {
        // SAFETY: the name says what it is.
        Some((object, name)) if !(name.contains(attach::PLUGGABLE) && unsafe { is_our_object(object) }) => {
            if attach::is_attached() {
                return Mode::Silent;
            }
            let reason = "only the segments of one memory pool are recorded, because it uses strandline's pluggable allocator without LD_PRELOAD";
            recorder::record_metadata(
                json!({ "allocator": "native", "coverage": { "level": "segments", "reason": reason } }),
            );
            Mode::Region
        }
        _ => Mode::Whole,
    }
}

/// Allocates `size` bytes on a device in a stream's order: PyTorch's signature. Null for nothing, and where an exception
/// cannot be thrown.
///
/// # Safety
/// `stream` must be a stream of that device, or null for its default stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn strandline_malloc(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    let Some(size) = u64::try_from(size).ok().filter(|s| *s > 0) else { return null_mut() };
    let mode = mode();
    let stream: CUstream = stream.cast();
    let got = device::get(device).and_then(|d| d.allocate(size, stream, mode));
    match got {
        Ok(addr) => addr as *mut c_void,
        Err(failure) => {
            // PyTorch's own allocator has its own way with a segment that it does not get.
            if mode == Mode::Whole {
                let (message, full) = message(&failure, size, device);
                // SAFETY: nothing is locked, and PyTorch expects exceptions from an allocator.
                unsafe { fail::throw(&message, full) };
            }
            null_mut()
        }
    }
}

/// Gives a block back: PyTorch's signature.
///
/// # Safety
/// `ptr` must have come from [`strandline_malloc`] with this size, device and stream, and is given back once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn strandline_free(
    ptr: *mut c_void,
    size: isize,
    device: c_int,
    stream: *mut c_void,
) {
    if let Some(d) = device::known(device).filter(|_| !ptr.is_null()) {
        d.free(ptr as u64, size.unsigned_abs() as u64, stream.cast(), mode());
    }
}

/// A block is used on another stream than its own. For `set_record_stream_fn`.
///
/// # Safety
/// `stream` must be a live stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn strandline_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    let Some(d) = device::device_of(ptr as u64) else { return };
    d.used_on(ptr as u64, stream.cast());
    if is_open()
        && let Some(mut t) = enter(DOOR)
    {
        t.note(Kind::RecordStream, d.index(), ptr as u64, 0, stream as u64);
    }
}

fn message(f: &Failure, size: u64, device: c_int) -> (String, bool) {
    let text = match f {
        Failure::Full { free, total, allocated, limit } => {
            let share = limit.map(|l| format!(" {} of it may be used by this process.", human(l)));
            let text = format!(
                "CUDA out of memory. Tried to allocate {}. GPU {device} has a total capacity of {} of which {} is free.{} Of the allocated memory {} is allocated by strandline's pluggable allocator.",
                human(size),
                human(*total),
                human(*free),
                share.unwrap_or_default(),
                human(*allocated),
            );
            return (text, true);
        }
        Failure::Driver(status) => match device::known(device) {
            Some(d) => d.explain(size, *status),
            None => format!("CUDA error {status} while GPU {device} was being set up"),
        },
        Failure::Absent(why) => why.clone(),
        Failure::Device => format!("there is no GPU {device}"),
    };
    (text, false)
}

/// Bytes in the words of PyTorch's own message.
fn human(bytes: u64) -> String {
    let b = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.2} KiB", b / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2} MiB", b / 1_048_576.0),
        _ => format!("{:.2} GiB", b / 1_073_741_824.0),
    }
}

/// Gives unused memory of all devices back. For `set_reset_fn`, which is `torch.cuda.empty_cache`.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strandline_empty_cache() {
    if let Some(mode) = MODE.get() {
        device::all().for_each(|d| d.trim(*mode));
    }
}

/// At most this share of a device may be handed out. For `set_memory_fraction_fn`.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strandline_set_memory_fraction(fraction: f64, device: c_int) {
    if let Ok(d) = device::get(device) {
        d.limit(fraction);
    }
}

/// That share; 1 where none was set.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strandline_memory_fraction(device: c_int) -> f64 {
    device::known(device).map_or(1.0, device::Device::fraction)
}

/// A capture on this device allocates to this pool from now on. For `set_begin_allocate_to_pool`; which streams are meant is
/// asked of the driver, so the filter is not looked at.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strandline_begin_pool(device: c_int, a: u64, b: u64, _filter: *mut c_void) {
    if let Ok(d) = device::get(device) {
        d.begin([a, b]);
    }
}

/// It no longer does. For `set_end_allocate_to_pool_fn`.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strandline_end_pool(device: c_int, a: u64, b: u64) {
    if let Some(d) = device::known(device) {
        d.end([a, b]);
    }
}

/// A graph that used this pool is gone. For `set_release_pool`.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strandline_release_pool(device: c_int, a: u64, b: u64) {
    if let Some(d) = device::known(device) {
        d.release([a, b]);
    }
}

/// Fills `out` with a device's numbers, as `count::Counts::words` orders them; returns how many there are.
///
/// # Safety
/// `out` must have room for `room` words.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn strandline_memory_stats(device: c_int, out: *mut u64, room: usize) -> usize {
    let mode = MODE.get().copied().unwrap_or(Mode::Silent);
    let words = device::known(device).map_or([0; count::WORDS], |d| d.words(mode));
    if !out.is_null() {
        // SAFETY: the caller's promise, and never more than there are.
        unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), out, room.min(words.len())) };
    }
    words.len()
}

/// Begins a device's peaks (`sums` = 0) or sums anew.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn strandline_reset_memory_stats(device: c_int, sums: c_int) {
    if let Some(d) = device::known(device) {
        d.reset(if sums == 0 { Reset::Peaks } else { Reset::Sums });
    }
}
