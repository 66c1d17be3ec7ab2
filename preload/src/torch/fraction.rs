//! What torch may take of a device at most: `torch.cuda.set_per_process_memory_fraction`.
//!
//! Since 2.11 the allocator computes it from numbers of its own, without a lock or a CUDA call, both where it is set and where
//! it is asked for: nothing of a call is seen, and asking is only to read. Older versions ask the driver for the
//! device's size; there it is found on the way ([`crate::stacks::fraction`]), and never asked for.

use super::versions::Version;
use crate::recorder::devices;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// The first version whose answer is computed from its own numbers alone.
pub(super) const ONLY_READS: Version = Version { major: 2, minor: 11 };

/// The native allocator, and `getMemoryFraction` of its class; 0 where it is not asked.
static OBJECT: AtomicUsize = AtomicUsize::new(0);
static FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// From now on the allocator is asked. `function`: the address of its `getMemoryFraction`.
pub(super) fn begin(object: usize, function: usize) {
    OBJECT.store(object, Relaxed);
    FUNCTION.store(function, Release);
}

/// Notes for every device what torch may take of it. Called by the drain, now and then.
pub(crate) fn poll() {
    let function = FUNCTION.load(Acquire);
    if function == 0 {
        return;
    }
    let object = OBJECT.load(Relaxed);
    // SAFETY: the symbol of a version whose function has this type: the object, and a device's index of one byte.
    let ask: extern "C" fn(usize, i8) -> f64 = unsafe { core::mem::transmute(function) };
    // Devices whose properties the program was told exist, and an initialized allocator knows all that do: only for others
    // would it throw.
    for device in devices::asked_for() {
        devices::note_fraction(device, ask(object, device as i8));
    }
}
