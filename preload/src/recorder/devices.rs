//! What the program was told about its devices when it asked. We never ask ourselves.
//!
//! Written by hooks, so it is a fixed table without a lock; read by the drain.

use core::cell::UnsafeCell;
use cudarc::runtime::sys::cudaDeviceProp;
use serde_json::{Value, json};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

const DEVICES: usize = 32;
const NAME: usize = 256;

/// The two fields that we read lie at the same place in the structure of CUDA 11, 12 and 13.
const NAME_AT: usize = core::mem::offset_of!(cudaDeviceProp, name);
const TOTAL_AT: usize = core::mem::offset_of!(cudaDeviceProp, totalGlobalMem);
const _: () = assert!(NAME_AT == 0 && TOTAL_AT == 288);

struct Device {
    /// 0 nothing, 1 the name is being written, 2 it is there.
    named: AtomicU8,
    name: UnsafeCell<[u8; NAME]>,
    total: AtomicU64,
    /// Bits of the fraction of it that torch may take; 0 where that was never less than all.
    fraction: AtomicU64,
}

// SAFETY: `name` is written once, by whoever moved `named` from 0 to 1, and read only after it is 2.
unsafe impl Sync for Device {}

static TABLE: [Device; DEVICES] = [const {
    Device {
        named: AtomicU8::new(0),
        name: UnsafeCell::new([0; NAME]),
        total: AtomicU64::new(0),
        fraction: AtomicU64::new(0),
    }
}; DEVICES];
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Has `write` write the name of a device that has none yet. For good: of several at once only the first writes.
fn name(index: i32, write: impl FnOnce(&Device)) {
    let Some(d) = usize::try_from(index).ok().and_then(|i| TABLE.get(i)) else { return };
    if d.named.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
        write(d);
        d.named.store(2, Release);
        CHANGES.fetch_add(1, Release);
    }
}

/// Copies name and memory out of a filled `cudaDeviceProp`.
///
/// # Safety
/// `properties` must be what `cudaGetDeviceProperties` has just filled.
pub(crate) unsafe fn note_properties(index: i32, properties: *const c_void) {
    // SAFETY: the structure is larger than 296 bytes in every version and has the two fields there; this call is the only
    // writer of the name.
    name(index, |d| unsafe {
        core::ptr::copy_nonoverlapping(properties.cast::<u8>(), d.name.get().cast(), NAME);
        d.total.store(*properties.byte_add(TOTAL_AT).cast::<u64>(), Relaxed);
    });
}

/// Notes the name and the memory (bytes) of a device that the program had queried before this library was loaded; the program passes them on.
#[cold]
pub(crate) fn note_known_device(index: i32, known: &CStr, total: u64) {
    name(index, |d| {
        // SAFETY: this call is the only writer of the name; it is zero behind what is copied, and stays so.
        let text = unsafe { &mut *d.name.get() };
        text[..NAME - 1].iter_mut().zip(known.to_bytes()).for_each(|(to, from)| *to = *from);
        d.total.store(total, Relaxed);
    });
}

/// Notes a device's memory from `cudaMemGetInfo`.
pub(crate) fn note_total(index: u8, total: u64) {
    let Some(d) = TABLE.get(usize::from(index)) else { return };
    if d.total.load(Relaxed) == 0 {
        d.total.store(total, Relaxed);
        CHANGES.fetch_add(1, Release);
    }
}

/// Notes that torch may take so much of a device and no more: 0 to 1.
pub(crate) fn note_fraction(index: u8, fraction: f64) {
    let Some(d) = TABLE.get(usize::from(index)) else { return };
    let (old, new) = (d.fraction.load(Relaxed), fraction.to_bits());
    let is_news = if old == 0 { fraction < 1.0 } else { old != new };
    if is_news {
        d.fraction.store(new, Relaxed);
        CHANGES.fetch_add(1, Release);
    }
}

/// Devices whose properties the program has asked for.
pub(crate) fn asked_for() -> impl Iterator<Item = u8> {
    (0..DEVICES as u8).filter(|&i| TABLE[usize::from(i)].named.load(Acquire) == 2)
}

/// Counts up when something new is known.
pub(crate) fn changes() -> u32 {
    CHANGES.load(Acquire)
}

/// Devices of which something is known, as the recording's facts have them.
pub(crate) fn facts() -> Value {
    let known = TABLE.iter().enumerate().filter(|(_, d)| d.total.load(Relaxed) != 0);
    Value::Array(
        known
            .map(|(i, d)| {
                let mut fact =
                    json!({ "index": i, "name": d.name(), "capacity_bytes": d.total.load(Relaxed) });
                match d.fraction.load(Relaxed) {
                    0 => {}
                    bits => fact["memory_fraction"] = f64::from_bits(bits).into(),
                }
                fact
            })
            .collect(),
    )
}

/// The first named device in words, for the line at attachment.
pub(crate) fn first() -> Option<String> {
    let d = TABLE.iter().find(|d| d.total.load(Relaxed) != 0)?;
    let gib = d.total.load(Relaxed) as f64 / f64::from(1 << 30);
    Some(format!("{} {gib:.1} GiB", d.name().unwrap_or_else(|| "GPU".into())))
}

impl Device {
    fn name(&self) -> Option<String> {
        if self.named.load(Acquire) != 2 {
            return None;
        }
        // SAFETY: 2 was stored with Release after the only write.
        let name = unsafe { &*self.name.get() };
        Some(CStr::from_bytes_until_nul(name).ok()?.to_string_lossy().into_owned())
    }
}
